"""One training and its broken twin, written through every logger by the real frameworks (tests/data/make_samples.py).

Our readers have to find in each file what the framework's own reader finds; that reading is committed beside the samples,
and made anew by the tests marked `frameworks`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.data.own_readers import EXPECTED, READERS, own_reading, written
from trainproof.frame import Frame
from trainproof.judge import judge_run
from trainproof.readers.discover import read_logs
from trainproof.verdict import Verdict

SAMPLES = Path(__file__).parents[1] / "data" / "samples"
#: the logs that both twins share
TOGETHER = {"mlflow": "mlruns", "mlflow-db": "mlflow.db.xz", "wandb-export": "wandb_export.csv"}
LOGGERS = sorted([*READERS, *TOGETHER])
#: metric -> [step, value], what is not finite as text
Points = dict[str, list[list[int | float | str]]]


def frames(path: Path) -> Iterator[Frame]:
    for log in read_logs([str(path)]):
        assert log.problem is None
        yield from log.frames


def twins_of(logger: str) -> dict[str, list[Frame]]:
    """twin -> what is read of its logs; the first is the one that `expected.json` speaks of."""
    folder = SAMPLES / logger
    if logger not in TOGETHER:
        file, _ = READERS[logger]
        found = {}
        for twin in ("healthy", "nan"):
            main = folder / twin / file.format(twin=twin)
            others = [path for path in sorted((folder / twin).glob("*.log")) if path != main]
            found[twin] = [frame for path in (main, *others) for frame in frames(path)]
        return found
    return {_twin_of(frame): [frame] for frame in frames(folder / TOGETHER[logger])}


def _twin_of(frame: Frame) -> str:
    return frame.source.name or Path(frame.source.path, "tags", "mlflow.runName").read_text()


def found(frame: Frame) -> Points:
    """A frame's points under the logger's own names."""
    points = {
        frame.original_names[name]: list(zip(series.step.tolist(), series.value.tolist(), strict=True))
        for name, series in frame.items()
    }
    result: Points = written({"run": points})["run"]
    return result


def later_wins(points: Points) -> Points:
    """One value a step: Lightning repeats the epoch in the rows of a step, of an evaluation and of an epoch's end."""
    return {name: list({point[0]: point for point in series}.values()) for name, series in points.items()}


@pytest.mark.parametrize("logger", LOGGERS)
def test_every_value_that_the_frameworks_own_reader_finds(logger: str) -> None:
    expected: dict[str, Points] = json.loads((SAMPLES / logger / EXPECTED).read_text())
    twins = twins_of(logger)
    assert sorted(twins) == sorted(expected) == ["healthy", "nan"]
    for twin, (frame, *_) in twins.items():
        ours = found(frame)
        assert {name: ours.get(name) for name in expected[twin]} == later_wins(expected[twin])
        assert ours.keys() - expected[twin].keys() <= {"wall_time", "_runtime", "epoch"}
        assert frame.dropped_count == 0


@pytest.mark.frameworks
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("logger", LOGGERS)
def test_what_is_committed_is_what_the_frameworks_own_reader_finds(logger: str) -> None:
    for module in ("tensorboard", "wandb", "mlflow", "sqlalchemy"):
        pytest.importorskip(module)
    assert written(own_reading(logger, SAMPLES / logger)) == json.loads((SAMPLES / logger / EXPECTED).read_text())


@pytest.mark.parametrize("logger", LOGGERS)
def test_the_broken_twin_fails_by_its_loss_and_the_healthy_one_passes(logger: str) -> None:
    twins = twins_of(logger)
    for frame in twins["healthy"]:
        assert judge_run(frame).verdict is Verdict.PASS
    for frame in twins["nan"]:
        report = judge_run(frame)
        assert report.verdict is Verdict.FAIL
        assert "TP101" in {finding.rule for finding in report.findings}


def test_the_settings_of_the_run_are_facts() -> None:
    for logger in ("wandb", "mlflow", "mlflow-db"):
        facts = twins_of(logger)["healthy"][0].facts
        assert {name: facts[name] for name in ("learning_rate", "total_steps", "num_classes", "status")} == {
            "learning_rate": 0.02,
            "total_steps": 40,
            "num_classes": 4,
            "status": "FINISHED",
        }


def test_the_whole_tree_holds_each_twin_once() -> None:
    runs = list(frames(SAMPLES / "mlflow"))
    assert sorted(map(_twin_of, runs)) == ["healthy", "nan"]
    assert [frame.source.path.count("metrics") for frame in runs] == [0, 0]
