"""The public functions, as a script uses them."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

import trainproof
from trainproof.errors import FormatError, InputError, UsageError

LOSSES = [3.0 / i**0.3 + 0.01 * ((i * 7919) % 13) for i in range(1, 101)]


def write_log(path: Path, losses: list[float] = LOSSES, name: str = "loss") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"step": i, name: loss}) + "\n" for i, loss in enumerate(losses, 1)))
    return path


def test_every_public_name_is_there() -> None:
    for name in trainproof.__all__:
        assert getattr(trainproof, name).__name__ == name
    assert set(trainproof.__all__) < set(dir(trainproof))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = trainproof.nothing


def test_the_function_judge_is_not_lost_to_the_module_of_that_name() -> None:
    from trainproof.judge import judge_run

    assert judge_run.__module__ == "trainproof.judge"
    assert trainproof.judge.__module__ == "trainproof.api"


def test_read_gives_the_one_run_of_a_log(tmp_path: Path) -> None:
    frame = trainproof.read(write_log(tmp_path / "log.jsonl"), facts={"max_steps": 100})
    assert frame["loss"].value.tolist() == LOSSES
    assert frame.total_steps == 100
    assert frame.source.format == "jsonl"


def test_read_of_several_runs_says_what_to_type(tmp_path: Path) -> None:
    write_log(tmp_path / "a.jsonl")
    write_log(tmp_path / "b.jsonl")
    with pytest.raises(UsageError, match=r"holds 2 runs, expected one; read them with trainproof\.read_all\(path\)"):
        trainproof.read(tmp_path)
    assert [Path(frame.source.path).name for frame in trainproof.read_all(tmp_path)] == ["a.jsonl", "b.jsonl"]


def test_the_same_run_gets_the_same_verdict_however_it_is_given(tmp_path: Path) -> None:
    losses = [*LOSSES, *[float("nan")] * 20]
    columns = {"step": list(range(1, 121)), "loss": losses}
    reports = [
        trainproof.judge(write_log(tmp_path / "log.jsonl", losses)),
        trainproof.judge(str(tmp_path / "log.jsonl")),
        trainproof.judge(trainproof.read(tmp_path / "log.jsonl")),
        trainproof.judge(columns),
        trainproof.judge(trainproof.Frame.from_pandas(pd.DataFrame(columns), nan_is_logged=True)),
    ]
    assert {report.verdict for report in reports} == {trainproof.Verdict.FAIL}
    found = [[(f.rule, f.flagged_step, f.evidence) for f in report.findings] for report in reports]
    assert found == [found[0]] * 5
    assert found[0][0][:2] == ("TP101", found[0][0][1])


def test_judge_takes_a_data_frame() -> None:
    assert trainproof.judge(pd.DataFrame({"step": range(1, 101), "loss": LOSSES})).verdict is trainproof.Verdict.PASS


def test_judge_of_a_directory_judges_all_its_runs(tmp_path: Path) -> None:
    for name in ("a/log.jsonl", "b/log.jsonl", "c.jsonl"):
        write_log(tmp_path / name)
    (tmp_path / "b" / "notes.txt").write_text("no log")
    assert len(trainproof.judge(tmp_path).runs) == 3


def test_selection_and_thresholds() -> None:
    table = {"loss": LOSSES}
    assert trainproof.judge(table, select=["TP2"], ignore=["TP201"]).runs[0].checked[0] == "TP202"
    report = trainproof.judge(table, thresholds={"loss.diverged_ratio": 9.0})
    assert report.runs[0].overrides == {"loss.diverged_ratio": 9.0}
    with pytest.raises(UsageError, match="no rule matches 'XX9'"):
        trainproof.judge(table, select=["XX9"])
    with pytest.raises(UsageError, match=r"unknown threshold 'loss.nothing'"):
        trainproof.judge(table, thresholds={"loss.nothing": 1.0})


def test_an_unknown_fact_is_told() -> None:
    with pytest.raises(UsageError, match="'vocabulary' is not a known fact; known: total_steps,"):
        trainproof.judge({"loss": LOSSES}, facts={"vocabulary": 5})


def test_given_facts_win_over_the_frames_own(tmp_path: Path) -> None:
    frame = trainproof.read(write_log(tmp_path / "log.jsonl"), facts={"total_steps": 100, "seed": 1})
    assert trainproof.judge(frame, facts={"total_steps": 200}).runs[0].facts == {"total_steps": 200, "seed": 1}


def test_what_cannot_be_read_is_raised(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file or directory"):
        trainproof.judge("nowhere.jsonl")
    with pytest.raises(FormatError, match="no training log below this directory"):
        trainproof.read_all(tmp_path)
    with pytest.raises(FormatError, match="cannot judge a int, expected a path, a Frame, a DataFrame"):
        trainproof.judge(5)
    with pytest.raises(UsageError, match="unknown format"):
        trainproof.read(write_log(tmp_path / "log.jsonl"), format="excel")


def test_the_log_may_have_its_own_names(tmp_path: Path) -> None:
    path = write_log(tmp_path / "log.jsonl", name="elbow")
    assert "loss" not in trainproof.read(path)
    assert trainproof.read(path, mapping={"loss": "elbow"})["loss"].value.tolist() == LOSSES
