"""Each shortage of a machine is named by its check; a machine that is large enough has none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.preflight.helpers import codes
from trainproof.apart import Subject, judge_apart
from trainproof.judge import Settings
from trainproof.preflight.machine import Imported, Machine, Needs, free_memory, imported, look
from trainproof.verdict import RunReport

NEEDS = Needs(memory=8, disk=10, gpu=16, checkpoint=5, checkpoints=2)
GOOD = Machine((Imported("numpy", "ok", "2.0"),), 16.0, 30.0, 8.0, (24.0, 2.0), 65_536, 1.9e9, 1.8e9, NEEDS)


def judged(machine: Machine) -> RunReport:
    return judge_apart("environment", machine, Subject(".", "machine", "", 1), Settings())


def test_a_machine_that_is_large_enough() -> None:
    assert judged(GOOD).findings == ()


@pytest.mark.parametrize(
    ("code", "change"),
    [
        ("TPE101", {"imports": (Imported("torch", "missing", "no module"),)}),
        ("TPE102", {"imports": (Imported("torch", "error", "ImportError"),)}),
        ("TPE103", {"imports": (Imported("torch", "crash", "signal 11"),)}),
        ("TPE104", {"imports": (Imported("torch", "hang", ""),)}),
        ("TPE105", {"memory": 7.9}),
        ("TPE106", {"disk": 24.0}),
        ("TPE107", {"gpus": (15.0, 15.0)}),
        ("TPE107", {"gpus": None}),
        ("TPE108", {"shared": 0.0625}),
        ("TPE109", {"files": 256}),
        ("TPE110", {"now": 0.0}),
        ("TPE110", {"newest": 1.95e9}),
    ],
)
def test_a_shortage_is_named(code: str, change: dict[str, object]) -> None:
    assert codes(judged(GOOD._replace(**change))) == {code}  # type: ignore[arg-type]  # fields by name


def test_imports_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    for name, body in {
        "fine": "__version__ = '1.2'",
        "raises": "raise ImportError('a library of the system')",
        "lacks": "import that_is_not_there",
        "dies": "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
        "waits": "import time; time.sleep(60)",
    }.items():
        (tmp_path / f"{name}.py").write_text(body)
    assert imported("fine") == Imported("fine", "ok", "1.2")
    assert imported("nothing_here").outcome == "missing"
    assert imported("raises").said == "ImportError: a library of the system"
    assert imported("lacks").outcome == "error"
    assert imported("dies") == Imported("dies", "crash", "killed by signal 11")
    assert imported("waits", patience=2).outcome == "hang"


def test_the_limit_of_a_container_counts(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 99 kB\nMemAvailable: 33554432 kB\n")
    assert free_memory(tmp_path / "meminfo", tmp_path) == 32.0
    (tmp_path / "memory.max").write_text(f"{4 * 1024**3}\n")
    (tmp_path / "memory.current").write_text(f"{1024**3}\n")
    assert free_memory(tmp_path / "meminfo", tmp_path) == 3.0
    assert free_memory(tmp_path / "none", tmp_path / "none") is None


def test_this_machine_can_be_looked_at(tmp_path: Path) -> None:
    machine = look(["json"], str(tmp_path), Needs())
    assert machine.imports[0].outcome == "ok"
    assert machine.disk is not None
    assert judged(machine).verdict in ("PASS", "WARN")
