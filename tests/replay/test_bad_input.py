"""Recordings, checkpoints and jobs that are not what they should be: one line, exit 2, nothing executed, nothing lost."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.commands import Run, runner
from tests.replay import jobs
from trainproof.errors import InputError, TrainproofError
from trainproof.record.codec import Raw
from trainproof.record.storage import MANIFEST, STATE, open_state, safetensors_of
from trainproof.record.tape import Tape, TapeWriter
from trainproof.replay.replaying import replay, segment_around
from trainproof.replay.worker import ask

frameworks = pytest.mark.frameworks
HEADER: dict[str, Any] = {"recording": "trainproof recording 1", "tensors": ["w"], "fingerprint": {"world_size": 1}}
ROWS: list[dict[str, Any]] = [
    {
        "step": i,
        "loss": 1 / i,
        "lr": 0.1,
        "grad_norm": 1.0,
        "params": f"{i:016x}",
        "batch": "00",
        "ids": [i],
        "cursor": i,
    }
    for i in range(1, 7)
]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    return runner(monkeypatch, capfd)


def written(folder: Path, *rows: Any, header: Any = HEADER) -> Path:
    folder.mkdir(exist_ok=True)
    lines = [json.dumps(row) for row in (header, *(rows or ROWS))]
    (folder / "steps-0.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "tensors-0.bin").write_bytes(bytes(range(12)) * len(lines[1:]))
    return folder


def test_a_recording_that_was_cut_off_anywhere_keeps_its_whole_rows(tmp_path: Path) -> None:
    folder = written(tmp_path)
    data, tensors = (folder / "steps-0.jsonl").read_bytes(), (folder / "tensors-0.bin").read_bytes()
    for cut in range(0, len(data), 7):
        (folder / "steps-0.jsonl").write_bytes(data[:cut])
        (folder / "tensors-0.bin").write_bytes(tensors[: cut % 60])
        if cut >= data.index(b"\n"):
            tape, whole = Tape(folder), max(data[:cut].count(b"\n"), 1)
            # a last row that lacks nothing but its end of line is whole too
            assert whole - 1 <= len(tape.steps) <= whole
            assert len(tape.hashes) == min(len(tape.steps), (cut % 60) // 12)
        else:
            with pytest.raises(InputError, match="no recorded run"):
                Tape(folder)
    (folder / "steps-0.jsonl").write_bytes(data[:300] + b"\x00garbage" + data[300:])
    with pytest.raises(InputError, match=r"line \d is no JSON"):
        Tape(folder)


HEADERS = [
    {**HEADER, "recording": "trainproof recording 99"},
    {**HEADER, "tensors": 5, "fingerprint": [], "settings": "x", "job": ["a"], "keyed": "k", "eval_every": -3},
    {**HEADER, "fingerprint": {"world_size": 10**9}},
    {**HEADER, "tensors": {"a": 1}, "job": "nowhere.py:make"},
    [],
]


@pytest.mark.parametrize("header", HEADERS, ids=str)
@pytest.mark.parametrize("command", ["replay", "bisect"])
def test_a_header_that_is_wrong(tmp_path: Path, run: Run, command: str, header: Any) -> None:
    ran = run(command, str(written(tmp_path / "run", header=header)), "--no-html")
    assert (ran.code, len(ran.err.strip().splitlines())) == (2, 1)


def test_rows_that_are_none_are_left_out(tmp_path: Path) -> None:
    broken: list[Any] = [
        *({"step": "x", "loss": 1}, {"step": 1.5, "loss": 1, "cursor": 1}, {"step": True, "loss": 1, "cursor": 1}),
        *({"step": 7, "loss": [], "cursor": 1}, {"step": 7, "loss": 1.0, "cursor": "a"}, {"step": 7, "loss": 1.0}),
        *({"step": 7, "loss": 1.0, "lr": "x", "cursor": 7}, {"step": 7, "loss": 1.0, "cursor": 7, "ids": "abc"}),
        *({"step": 7, "eval_loss": "x"}, {"step": None}, [], 5, None, "x"),
    ]
    tape = Tape(written(tmp_path, *ROWS, *broken))
    assert list(tape.steps) == [1, 2, 3, 4, 5, 6]
    assert tape.evaluations == {}
    assert tape.checkpoints() == {}


def test_what_is_no_recording(tmp_path: Path, run: Run) -> None:
    (tmp_path / "file").write_text("x")
    huge = written(tmp_path / "huge", *ROWS, {"step": 7, "loss": 1.0, "cursor": 10**15})
    place = huge / "checkpoints" / "step-00000000"
    place.mkdir(parents=True)
    (place / MANIFEST).write_text("{}")
    for arguments in (
        ("replay", str(tmp_path / "nothing")),
        ("replay", str(tmp_path / "file")),
        ("bisect", str(tmp_path)),
        ("bisect", str(tmp_path), "--forensic", "--job", "x.py:make"),
        ("replay", str(written(tmp_path / "run"))),  # no checkpoint
        ("replay", str(tmp_path / "run"), "--steps", "x"),
        ("replay", str(tmp_path / "run"), "--steps", "4-2"),
        ("replay", str(tmp_path / "run"), "--steps", "9-12"),
        ("replay", str(tmp_path / "run"), "--finding", "TP201@x"),
        ("replay", str(tmp_path / "run"), "--finding", "TP201@3"),
        ("replay", str(huge), "--steps", "7-7", "--plan", str(tmp_path / "plan.json")),
        ("bisect", str(tmp_path / "run"), "--try", "[1, 2]"),
        ("resume", str(tmp_path / "run" / "none.py:make")),
        ("resume", "demo", "--seeds", "0"),
        ("record-check", "x"),
        ("record", "x.py", "--out", str(tmp_path / "out")),
        ("record", "x.py:make", "--out", str(tmp_path / "out")),
        ("record", "x.py:make", "stray", "--out", str(tmp_path / "out")),
    ):
        ran = run(*arguments)
        assert (ran.code, len(ran.err.strip().splitlines())) == (2, 1), (arguments, ran.err)
    assert not (tmp_path / "plan.json").exists()


def checkpoint(folder: Path, state: Any, **manifest: Any) -> Path:
    folder.mkdir(exist_ok=True)
    tensors = {"model.w": Raw("float32", (2,), memoryview(bytes(8)))}
    (folder / STATE).write_bytes(b"".join(bytes(part) for part in safetensors_of(tensors)))
    about = {"kind": "trainproof checkpoint 1", "state": state, **manifest}
    (folder / MANIFEST).write_text(json.dumps(about))
    return folder


def test_a_checkpoint_that_lies(tmp_path: Path, run: Run) -> None:
    good = checkpoint(tmp_path / "good", {"model": {"w": {"$t": "model.w"}}})
    assert open_state(good)[1]["model"]["w"].nbytes == 8
    deep: Any = 1
    for _ in range(400):
        deep = {"$l": [deep]}
    for state in (
        {"model": {"$t": "model.other"}},
        {"model": {"$t": ["model.w"]}},
        {"model": {"$b": 5}},
        {"model": {"$d": [[[1], 2], 3]}},
        {"model": {"$s": [{"$d": [[1, 2]]}]}},
        {"model": {"$pickle": "gASVHgAAAAAAAACMBXBvc2l4lIwGc3lzdGVtlJOUjAN4eHiUhZRSlC4="}},
        {"model": deep},
    ):
        bad = checkpoint(tmp_path / "bad", state)
        with pytest.raises(InputError):
            open_state(bad)
        ran = run("checkpoint", str(bad), "--no-html")
        assert (ran.code, len(ran.err.strip().splitlines())) == (2, 1), ran.err


JOBS = {
    "raises": "def make():\n    raise ValueError('no data\\nat all')",
    "syntax": "def make(:",
    "exits": "import sys\ndef make():\n    sys.exit(7)",
    "dies": "import os\ndef make():\n    os._exit(3)",
    "nothing": "def make():\n    return None",
    "no model": "class make:\n    stateful = {}\n    def batches(self, cursor): return iter(())\n    def step(self, batch): return 1.0",
    "no function": "make = 5",
}


@pytest.mark.parametrize("name", JOBS)
def test_a_factory_that_fails(tmp_path: Path, run: Run, name: str) -> None:
    (tmp_path / "train.py").write_text(JOBS[name])
    ran = run("record", f"{tmp_path / 'train.py'}:make", "--out", str(tmp_path / "out"))
    assert ran.code == 2
    assert ran.err.startswith("trainproof: ")
    assert len(ran.err.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_of_several_ranks_the_one_that_fails_ends_the_others(tmp_path: Path) -> None:
    text = "import os, time\ndef make():\n    if os.environ['RANK'] == '1':\n        raise ValueError('rank 1')\n    time.sleep(600)"
    (tmp_path / "train.py").write_text(text)
    request = {"named": f"{tmp_path / 'train.py'}:make", "settings": {}, "out": str(tmp_path / "out"), "until": 1}
    with pytest.raises(InputError, match="rank 1"):
        ask("record", request, ranks=2)


def test_a_script_that_records_elsewhere(tmp_path: Path, run: Run) -> None:
    (tmp_path / "train.py").write_text("")
    ran = run("record", str(tmp_path / "train.py"), "--out", str(tmp_path / "out"))
    assert (ran.code, len(ran.err.strip().splitlines())) == (2, 1)
    assert "recorded nothing in" in ran.err


FULL = """
import resource, sys
from pathlib import Path
from trainproof.record.tape import TapeWriter
tape = TapeWriter(Path(sys.argv[1]), {"tensors": []})
for step in range(1, 1000):
    try:
        tape.row({"step": step, "loss": 1.0, "cursor": step})
    except OSError:
        print(step)
        break
"""


def test_a_full_disk_keeps_the_rows_before(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path / "run")],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)),
        capture_output=True,
        text=True,
        check=True,
    )
    assert list(Tape(tmp_path / "run").steps) == list(range(1, int(done.stdout)))
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        TapeWriter(tmp_path / "file", {})


RECORDED = """
import resource, sys, torch, trainproof
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
rec = trainproof.Recorder(sys.argv[1], model=model, optimizer=optimizer, checkpoint_every=5)
for batch in rec.batches(torch.randn(60, 8, 64)):
    with rec.step() as step:
        loss = (model(batch) ** 2).mean()
        loss.backward()
        optimizer.step()
        step.loss(loss)
    if rec.steps == 7:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
print(rec.steps)
"""


@frameworks
def test_a_full_disk_ends_the_recording_and_not_the_training(tmp_path: Path) -> None:
    command = [sys.executable, "-c", RECORDED, str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "60"
    assert "the recording ends here" in done.stderr
    assert "no checkpoint: " in done.stderr
    assert "Traceback" not in done.stderr
    tape = Tape(tmp_path / "run")
    assert list(tape.checkpoints()) == [0, 5]
    assert list(tape.steps) == list(range(1, len(tape.steps) + 1))
    assert not list((tmp_path / "run" / "checkpoints").glob(".*"))


def recorded(folder: Path, job: str) -> Tape:
    ask(
        "record",
        {"named": f"{jobs.FILE}:{job}", "settings": {}, "out": str(folder), "until": 4, "checkpoint_every": 2},
    )
    return Tape(folder)


@frameworks
def test_data_that_changed_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tape = recorded(tmp_path / "run", "changing")
    monkeypatch.setenv("TRAINPROOF_TEST_DATA", "1")
    mismatch = replay(tape, segment_around(tape, 3, 4)).mismatch
    assert mismatch is not None
    assert (mismatch.step, mismatch.channel) == (3, "batch contents")


@frameworks
def test_steps_that_are_not_deterministic_prove_nothing(tmp_path: Path, run: Run) -> None:
    recorded(tmp_path / "run", "shaky")
    ran = run("replay", str(tmp_path / "run"), "--steps", "1-4", "--output-format", "json", "--no-html")
    assert (ran.code, ran.run["verdict"]) == (1, "FAIL")
    assert ran.run["reason"].startswith("INCONCLUSIVE: parameters 2.weight at step 3")


@frameworks
def test_a_job_that_fails_in_the_middle_keeps_what_was_recorded(tmp_path: Path) -> None:
    with pytest.raises(TrainproofError, match="the job failed at micro-batch 5: OSError: gone"):
        recorded(tmp_path / "run", "failing")
    assert list(Tape(tmp_path / "run").steps) == [1, 2]


def _altered(folder: Path, name: str, value: Any) -> None:
    """The manifest of a checkpoint with another part of its state; None takes the part out."""
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["state"][name] = value
    if value is None:
        del manifest["state"][name]
    (folder / MANIFEST).write_text(json.dumps(manifest))


@frameworks
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("stream", None),
        ("stream", {"cursor": "x", "step": None}),
        ("stream", {"cursor": 0, "step": -(10**12)}),
        ("rng", [1, 2]),
        ("model", {"other": 1}),
        ("optimizer", {"a": 1}),
        ("gradients", {"0.weight": 5}),
    ],
)
def test_a_state_that_does_not_fit_the_job(tmp_path: Path, run: Run, name: str, value: Any) -> None:
    tape = recorded(tmp_path / "run", "changing")
    _altered(tape.checkpoints()[2], name, value)
    ran = run("replay", str(tape.folder), "--steps", "3-4", "--no-html")
    assert (ran.code, len(ran.err.strip().splitlines())) == (2, 2), ran.err  # what is replayed, and why it cannot be
