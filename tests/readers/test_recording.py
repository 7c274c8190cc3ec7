from __future__ import annotations

import json
from pathlib import Path

import trainproof
from trainproof.errors import InputError

HEADER = {"recording": "trainproof recording 1", "rank": 0, "facts": {"total_steps": 40}}


def write(path: Path, cut: bool = False) -> Path:
    rows = [
        {"step": i, "loss": 3.0 / i, "lr": 0.1, "grad_norm": 1.0, "batch": "ab", "ids": [1, 2], "cursor": 2 * i}
        for i in range(1, 21)
    ]
    rows.insert(10, {"step": 10, "eval_loss": 0.5})
    text = "".join(json.dumps(row) + "\n" for row in [HEADER, *rows])
    path.parent.mkdir(exist_ok=True)
    path.write_text(text[:-30] if cut else text)
    return path


def test_a_recording_is_a_log(tmp_path: Path) -> None:
    frame = trainproof.read(write(tmp_path / "run" / "steps-0.jsonl"))
    assert (frame.source.format, list(frame)) == ("recording", ["loss", "lr", "grad_norm", "eval/loss"])
    assert frame["loss"].value.tolist() == [3.0 / i for i in range(1, 21)]
    assert frame["eval/loss"].step.tolist() == [10]
    assert frame.total_steps == 40
    assert trainproof.read(tmp_path / "run").source.format == "recording"


def test_a_recording_that_was_killed_loses_its_last_row_only(tmp_path: Path) -> None:
    frame = trainproof.read(write(tmp_path / "run" / "steps-0.jsonl", cut=True))
    assert (len(frame["loss"]), frame.dropped_count) == (19, 1)


def test_its_own_reader_says_the_same(tmp_path: Path) -> None:
    from trainproof.record.tape import Tape

    tape = Tape(write(tmp_path / "run" / "steps-0.jsonl", cut=True).parent)
    assert list(tape.steps) == list(range(1, 20))
    assert tape.evaluations == {10: 0.5}
    assert tape.checkpoints() == {}
    for broken in ("", "{}\n", '{"recording": 3}\n'):
        (tmp_path / "run" / "steps-0.jsonl").write_text(broken)
        try:
            Tape(tmp_path / "run")
        except InputError as error:
            said = str(error)
        assert "no recorded run" in said
