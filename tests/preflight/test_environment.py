"""Each shortage of a machine is named by its check; a machine that is large enough has none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.preflight.helpers import codes
from trainproof.apart import Subject, judge_apart
from trainproof.judge import Settings
from trainproof.preflight.known_faults import KNOWN_FAULTS, known_faults
from trainproof.preflight.machine import Imported, Machine, Needs, Saved, free_memory, imported, look, saved_below
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
        ("TPE111", {"versions": {"transformers": "4.45.2"}}),
        ("TPE112", {"saved": (Saved(1.8e9, 31.0),)}),
        ("TPE112", {"saved": tuple(Saved(1.8e9 + 3600 * hour, 2.0) for hour in range(4))}),
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


def test_known_faults_of_versions() -> None:
    def told(**installed: str) -> list[str]:
        return [fault.source for fault in known_faults({name.replace("_", "-"): v for name, v in installed.items()})]

    assert told(lightning="2.6.3", pytorch_lightning="2.6.1") == ["GHSA-w37p-236h-pfx3"]
    assert told(ultralytics="8.3.43") == []
    assert told(ultralytics="8.3.46") == ["ultralytics/ultralytics#18018"]
    assert told(torch="2.2.2+cu121", numpy="2.0.1") == ["TorchIO-project/torchio#1183"]
    assert told(torch="2.2.2", numpy="1.26.4") == told(torch="2.2.2") == []
    assert told(transformers="4.47.0") == ["huggingface/transformers#35207"]
    assert told(transformers="4.47.1", librosa="0.10.2", numpy="2.1") == []
    assert told(transformers="unknown") == []


def test_every_known_fault_has_a_date_and_a_source() -> None:
    for fault in KNOWN_FAULTS:
        assert fault.first < fault.before
        assert "2020" < fault.date < "2027"
        assert "#" in fault.source or fault.source.startswith("GHSA-")


def test_what_is_harmful_is_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {"lightning": "2.6.2"}
    monkeypatch.setattr("trainproof.preflight.machine.installed_versions", lambda: versions)
    monkeypatch.setattr("trainproof.preflight.machine.imported", lambda module: pytest.fail(f"imported {module}"))
    machine = look(["lightning.pytorch"], str(tmp_path), Needs())
    assert machine.imports[0].outcome == "unsafe"
    told = {finding.rule: finding.severity for finding in judged(machine).findings}
    assert told["TPE111"] == "FAIL"


def test_checkpoints_are_known_by_their_names(tmp_path: Path) -> None:
    (tmp_path / "checkpoint-500").mkdir()
    (tmp_path / "checkpoint-500" / "model.safetensors").write_bytes(bytes(1 << 20))
    (tmp_path / "checkpoint-500" / "again").symlink_to(tmp_path)
    (tmp_path / "epoch=3-step=9.ckpt").write_bytes(bytes(1 << 19))
    for name in ("train.log", "steps.json", "config.json"):
        (tmp_path / name).write_text("x")
    (tmp_path / "checkpoint-last").symlink_to(tmp_path / "checkpoint-500")
    assert [round(one.size * 1024, 1) for one in saved_below(tmp_path)] == [1.0, 0.5]
    assert saved_below(tmp_path / "none") == ()
