"""Recorded runs, replayed: the same bits, or the step and the tensor where they are not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.commands import runner
from tests.replay import jobs
from tools import trial_jobs
from trainproof.errors import InputError
from trainproof.record.storage import load_state
from trainproof.record.tape import Tape
from trainproof.replay import demo
from trainproof.replay.replaying import Segment, frame_of, plan, replay, segment_around
from trainproof.replay.skipping import SkippingDataLoader
from trainproof.replay.worker import ask

frameworks = pytest.mark.frameworks


def recorded(folder: Path, job: str = f"{demo.__file__}:make", steps: int = 8, **options: Any) -> Tape:
    settings = options.pop("settings", {})
    ask(
        "record",
        {
            "named": job,
            "settings": settings,
            "out": str(folder),
            "until": steps,
            "checkpoint_every": 4,
            "eval_every": 4,
            **options,
        },
    )
    return Tape(folder)


@frameworks
def test_a_replay_is_the_same_bits_and_a_corrupted_gradient_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINPROOF_TEST_FAULT", "6")
    tape = recorded(tmp_path / "run", f"{jobs.FILE}:faulty")
    monkeypatch.delenv("TRAINPROOF_TEST_FAULT")
    assert list(tape.checkpoints()) == [0, 4, 8]
    assert tape.evaluations.keys() == {4, 8}
    before = replay(tape, segment_around(tape, 1, 4))
    assert (before.mismatch, before.differences, before.repeatable) == (None, (), True)
    assert before.frame is not None
    assert before.frame["loss"].value.tolist() == frame_of(tape.folder / "steps-0.jsonl")["loss"].value.tolist()[:4]
    after = replay(tape, segment_around(tape, 5, 8))
    assert after.mismatch is not None
    assert (after.mismatch.step, after.mismatch.channel, after.mismatch.tensor) == (6, "parameters", "2.weight")
    assert after.repeatable


@frameworks
@pytest.mark.parametrize(
    "settings", [{"threads": 2}, {"bf16": True}, {"workers": 2}, {"compile": True, "bf16": True, "threads": 2}], ids=str
)
def test_a_replay_is_the_same_bits_under_the_same_settings(tmp_path: Path, settings: dict[str, Any]) -> None:
    tape = recorded(tmp_path / "run", f"{jobs.FILE}:several", settings=settings, hashes=True)
    again = replay(tape, segment_around(tape, 5, 8))
    assert (again.mismatch, again.differences, again.repeatable) == (None, (), True)
    assert tape.fingerprint["compile"] is bool(settings.get("compile"))


@frameworks
def test_two_ranks_are_replayed_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    command = ["record", f"{jobs.FILE}:ranks", "--out", str(tmp_path / "run"), "--steps=6", "--checkpoint-every=3"]
    assert runner(monkeypatch, capfd)(*command, "--ranks=2").code == 0
    tape = Tape(tmp_path / "run")
    assert (tape.ranks, list(tape.checkpoints()), tape.fingerprint["world_size"]) == (2, [0, 3, 6], 2)
    other = Tape(tmp_path / "run", 1)
    assert tape.steps[4]["params"] == other.steps[4]["params"]
    assert tape.steps[4]["batch"] != other.steps[4]["batch"]
    again = replay(tape, segment_around(tape, 4, 6))
    assert (again.mismatch, again.differences, again.repeatable) == (None, (), True)
    # a rank whose recording differs is told
    rows = (tape.folder / "steps-1.jsonl").read_text().replace(other.steps[5]["batch"], "0" * 16)
    (tape.folder / "steps-1.jsonl").write_text(rows)
    mismatch = replay(tape, segment_around(tape, 4, 6)).mismatch
    assert mismatch is not None
    assert (mismatch.step, mismatch.channel) == (5, "batch contents on rank 1")
    (tape.checkpoints()[3].with_name("rank-1-step-00000003") / "manifest.json").unlink()
    assert list(tape.checkpoints()) == [0, 6]


@frameworks
def test_another_process_is_not_comparable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tape = recorded(tmp_path / "run", f"{jobs.FILE}:several", steps=2, settings={"threads": 1})
    segment = segment_around(tape, 1, 2)
    tape.settings["threads"] = 2
    assert replay(tape, segment).differences == ("threads was 1, is 2",)
    tape.settings.update(threads=1, compile=True)
    assert replay(tape, segment).differences == ("compile was False, is True",)
    tape.settings["compile"] = False
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")
    assert replay(tape, segment).differences[0].endswith("is DEFAULT")


@frameworks
def test_a_finding_is_confirmed_planned_around_and_refused_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    run, folder = runner(monkeypatch, capfd), tmp_path / "run"
    recorded(folder, f"{jobs.FILE}:pulsed", steps=60, checkpoint_every=20)
    command = ["replay", str(folder), "--finding", "TP203", "--output-format", "json", "--no-html"]
    ran = run(*command, "--plan", str(tmp_path / "plan.json"))
    assert (ran.code, ran.run["verdict"], ran.run["facts"]["replayed steps"]) == (0, "WARN", "41-57")
    assert ran.run["reason"] == "CONFIRMED: TP203 at step 57, the same bits"
    assert (
        json.loads((tmp_path / "plan.json").read_text())["skip"][0] == 90
    )  # two micro-batches a step, from step 46 on
    text = (folder / "steps-0.jsonl").read_text()
    (folder / "steps-0.jsonl").write_text(text.replace('"machine": "', '"machine": "not '))
    ran = run(*command)
    assert ran.code == 2
    assert ran.run["reason"].startswith("NOT COMPARABLE: machine was not ")


@frameworks
@pytest.mark.parametrize(
    ("fault", "kind"),
    [("flipped_labels", "DATA,"), ("data_and_state", "DATA x STATE,"), ("lr_pulse", "LEARNING RATE,")],
)
def test_the_cause_of_a_finding_is_decided_by_intervention(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], fault: str, kind: str
) -> None:
    run, folder = runner(monkeypatch, capfd), tmp_path / "run"
    settings = {"fault": fault, "seed": 0}
    recorded(folder, f"{trial_jobs.__file__}:make", steps=110, checkpoint_every=20, settings=settings, keyed=0)
    ran = run("replay", str(folder), "--finding", "TP203", "--cause", "--output-format", "json", "--no-html")
    assert (ran.code, ran.run["verdict"]) == (1, "FAIL")
    assert ran.run["reason"].startswith("CONFIRMED: TP203 at step ")
    assert ran.run["facts"]["cause"].startswith(kind)
    assert "counterfactual 1" in ran.run["facts"]
    assert ran.run["repeat"][0].endswith(" --cause")


@frameworks
def test_damaged_checkpoints_are_refused(tmp_path: Path) -> None:
    tape = recorded(tmp_path / "run", steps=4)
    folder = tape.checkpoints()[4]
    state = folder / "state.safetensors"
    data = bytearray(state.read_bytes())
    data[-1] ^= 1
    state.write_bytes(data)
    with pytest.raises(InputError, match="are not those that were written"):
        load_state(folder)
    (folder / "manifest.json").unlink()
    assert list(tape.checkpoints()) == [0]
    with pytest.raises(InputError, match="holds a recorded run already"):
        recorded(tmp_path / "run", steps=4)


SCRIPT = """
import os, torch, trainproof
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
rec = trainproof.Recorder(os.environ["TRAINPROOF_RUN"], model=model, optimizer=optimizer, checkpoint_every=2)
data = [{"x": torch.randn(8, 4), "ids": torch.arange(8)} for _ in range(6)]
for batch in rec.batches(data):
    with rec.step() as step:
        optimizer.zero_grad()
        loss = (model(batch["x"]) ** 2).mean()
        loss.backward()
        if rec.cursor != 3:
            optimizer.step()
        step.loss(loss)
        step.log(accuracy=0.5)
    if rec.cursor == 5:
        rec.evaluated(eval_loss=1.5)
        os.kill(os.getpid(), 9)
"""


@frameworks
def test_a_loop_of_ones_own_that_is_killed(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "trainproof", "record", str(tmp_path / "train.py"), "--out", str(tmp_path / "run")]
    done = subprocess.run(command, check=False, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    assert done.returncode == 128 + 9
    tape = Tape(tmp_path / "run")
    assert list(tape.steps) == [1, 2, 3, 4]  # the third batch was a micro-batch of the third step
    assert [row["cursor"] for row in tape.steps.values()] == [1, 2, 4, 5]
    assert [len(row["ids"]) for row in tape.steps.values()] == [8, 8, 16, 8]
    assert tape.evaluations == {4: 1.5}
    assert list(tape.checkpoints()) == [0, 2]
    assert tape.steps[1]["accuracy"] == 0.5
    assert load_state(tape.checkpoints()[2])["model"]["weight"].shape == (1, 4)


def tape_of(tmp_path: Path) -> Tape:
    rows: list[dict[str, Any]] = [{"recording": "trainproof recording 1"}]
    rows += [{"step": i, "loss": 1.0, "cursor": 2 * i, "ids": [10 * i, 10 * i + 1]} for i in range(1, 9)]
    (tmp_path / "steps-0.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Tape(tmp_path)


def test_a_plan_names_the_batches_and_a_loader_leaves_them_out(tmp_path: Path) -> None:
    document = plan(tape_of(tmp_path), [3, 4])
    assert (document["skip"], document["samples"]) == ([4, 5, 6, 7], [30, 31, 40, 41])
    (tmp_path / "plan.json").write_text(json.dumps(document))
    loader = SkippingDataLoader(list("abcde"), tmp_path / "plan.json")
    assert [list(loader), list(loader)] == [list("abcd"), list("de")]  # the fifth to the eighth batch, over two epochs
    assert list(SkippingDataLoader(list("abc"), [3], start=2)) == ["a", "c"]
    (tmp_path / "plan.json").write_text("{}")
    with pytest.raises(InputError, match="no replay plan"):
        SkippingDataLoader([], tmp_path / "plan.json")
    with pytest.raises(InputError, match="step 9 was not recorded; steps 1 to 8 were"):
        plan(tape_of(tmp_path), [9])


def test_a_segment_needs_a_checkpoint_before_it(tmp_path: Path) -> None:
    tape = tape_of(tmp_path)
    with pytest.raises(InputError, match="no whole checkpoint before step 5"):
        segment_around(tape, 5, 6)
    for step in (0, 4):
        place = tmp_path / "checkpoints" / f"step-{step:08d}"
        place.mkdir(parents=True)
        (place / "manifest.json").write_text("{}")
    assert segment_around(tape, 5, 6) == Segment(4, tmp_path / "checkpoints" / "step-00000004", 6)
    assert segment_around(tape, 4, 6).start == 0
    tape = tape_of(tmp_path)
    del tape.steps[5]
    with pytest.raises(InputError, match="a broken recording: step 5 is not in it"):
        segment_around(tape, 6, 7)
