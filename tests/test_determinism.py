"""The same bytes in give the same bytes out, on any machine."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy._core._multiarray_umath import (  # type: ignore[import-not-found]  # numpy has no stub of it
    __cpu_dispatch__,
    __cpu_features__,
)

RNG = np.random.default_rng(5)
RECORDS = 700


def log_text() -> str:
    """A log that many rules have something to say of: noise, a spike, drift, a lost loss, text, and names that are not ASCII."""
    loss = (1.15 + 2 * np.exp(-np.arange(RECORDS) / 60)) * RNG.lognormal(0, 0.1, RECORDS)
    loss[300:303] *= 40
    loss[500:] *= np.linspace(1, 3, RECORDS - 500)
    lines = ["not a record"]
    for i in range(RECORDS):
        record = {
            "step": i + 1,
            "loss": math.nan if i > RECORDS - 5 else float(loss[i]),
            "learning_rate": 1e-3 * (1 - i / RECORDS),
            "grad_norm": float(RNG.lognormal(0, 0.3)),
            "größe": i,
        }
        if i % 50 == 0:
            record["eval_loss"] = float(loss[i]) * 1.1
        lines.append(json.dumps(record, ensure_ascii=False))
    return "\n".join(lines)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("run") / "log.jsonl"
    path.write_text(log_text(), encoding="utf-8")
    return path


def outputs(log: Path, folder: Path, **environment: str) -> tuple[bytes, bytes, bytes]:
    """The JSON report, the text report and the HTML report."""
    command = [sys.executable, "-m", "trainproof", "epoch", str(log), "--html", str(folder / "page.html")]
    environment = {**os.environ, **environment}
    printed = []
    for output_format in ("json", "text"):
        run = subprocess.run(
            [*command, "--output-format", output_format], capture_output=True, cwd=folder, env=environment, check=False
        )
        assert run.returncode == 1, run.stderr.decode()
        printed.append(run.stdout)
    return printed[0], printed[1], (folder / "page.html").read_bytes()


@pytest.fixture(scope="module")
def expected(log: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes, bytes]:
    return outputs(log, tmp_path_factory.mktemp("expected"), PYTHONHASHSEED="0")


def test_the_log_gives_the_rules_something_to_say(expected: tuple[bytes, bytes, bytes]) -> None:
    (run,) = json.loads(expected[0])["runs"]
    assert run["verdict"] == "FAIL"
    assert len(run["findings"]) + sum(len(finding["related"]) for finding in run["findings"]) > 1
    assert run["dropped"] == 1


#: numpy's own names of what it dispatches on and this machine has: the ones that may be turned off here
DISPATCHED = [name for name in __cpu_dispatch__ if __cpu_features__.get(name)]

ENVIRONMENTS = {
    **{f"hash seed {seed}": {"PYTHONHASHSEED": str(seed)} for seed in (1, 2, 3, 4, 12345)},
    "C locale": {"LC_ALL": "C"},
    "another locale": {"LC_ALL": "de_DE.ISO-8859-1", "LANG": "de_DE.ISO-8859-1"},
    "UTF-8 locale": {"LC_ALL": "C.UTF-8"},
    "time zone east": {"TZ": "Asia/Kathmandu"},
    "time zone west": {"TZ": "America/St_Johns"},
    "no SIMD": {"NPY_DISABLE_CPU_FEATURES": " ".join(DISPATCHED)},
    "one thread": {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    "another terminal": {"COLUMNS": "41", "TERM": "dumb"},
}


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_the_reports_are_the_same_bytes(
    name: str, log: Path, expected: tuple[bytes, bytes, bytes], tmp_path: Path
) -> None:
    assert outputs(log, tmp_path, **ENVIRONMENTS[name]) == expected  # each in a working directory of its own


def test_the_features_that_are_turned_off_are_off() -> None:
    """Without this, a name that numpy does not know would make the comparison above one of equals."""
    code = (
        "from numpy._core._multiarray_umath import __cpu_features__ as on; import sys; "
        "sys.exit(any(on[name] for name in sys.argv[1:]))"
    )
    environment = {**os.environ, **ENVIRONMENTS["no SIMD"]}
    assert subprocess.run([sys.executable, "-c", code, *DISPATCHED], env=environment, check=False).returncode == 0


def test_a_pipe_changes_nothing_but_the_name(log: Path, expected: tuple[bytes, bytes, bytes], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "trainproof", "epoch", "-", "--output-format", "json", "--no-html"]
    piped = subprocess.run(command, input=log.read_bytes(), capture_output=True, cwd=tmp_path, check=False)
    assert piped.stdout.replace(b'"-"', json.dumps(str(log)).encode()) == expected[0]


def comparison(log: Path, baselines: list[Path], folder: Path, **environment: str) -> tuple[bytes, bytes]:
    """The JSON report of a comparison, and its page."""
    command = [sys.executable, "-m", "trainproof", "compare", str(log), *map(str, baselines), "--output-format", "json"]
    run = subprocess.run(
        [*command, "--html", "page.html"],
        capture_output=True,
        cwd=folder,
        env={**os.environ, **environment},
        check=False,
    )
    assert run.returncode == 1, run.stderr.decode()
    return run.stdout, (folder / "page.html").read_bytes()


def test_a_comparison_gives_the_same_bytes(log: Path, tmp_path: Path) -> None:
    healthy = (1.15 + 2 * np.exp(-np.arange(RECORDS) / 60)) * np.random.default_rng([5, 6]).lognormal(
        0, 0.1, (2, RECORDS)
    )
    baselines = []
    for number, loss in enumerate(healthy):
        baselines.append(tmp_path / f"baseline{number}.jsonl")
        lines = (json.dumps({"step": i, "loss": value}) for i, value in enumerate(loss.tolist(), 1))
        baselines[-1].write_text("\n".join(lines))
    folders = {name: tmp_path / name for name in ("usual", "no SIMD", "hash seed 3", "C locale")}
    for folder in folders.values():
        folder.mkdir()
    seen = {name: comparison(log, baselines, folder, **ENVIRONMENTS.get(name, {})) for name, folder in folders.items()}
    (run,) = json.loads(seen["usual"][0])["runs"]
    assert {"TP971", "TP101"} <= {f["rule"] for f in run["findings"]}
    assert len(run["compared"]["figures"]) >= 5
    assert set(seen.values()) == {seen["usual"]}
