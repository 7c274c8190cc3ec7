"""MLflow's file store: metric files, run folders, trees of runs."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tests.readers.logs import points, pour, read_bytes
from trainproof.errors import FormatError
from trainproof.frame import Frame, Source
from trainproof.readers.base import sniff
from trainproof.readers.discover import read_logs

#: unix time in ms of the first point
START = 1_700_000_000_000


def metric(*values: float | str, first: int = 0, stride: int = 1, start: int = START, tail: str = "") -> str:
    """A metric file: one point a second."""
    return "".join(f"{start + 1000 * i} {value} {first + stride * i}{tail}\n" for i, value in enumerate(values))


def make_run(
    folder: Path, metrics: dict[str, str], params: dict[str, str] | None = None, meta: str = "status: 3"
) -> Path:
    files = {f"metrics/{name}": text for name, text in metrics.items()}
    files |= {f"params/{name}": text for name, text in (params or {}).items()}
    files |= {
        "meta.yaml": f"lifecycle_stage: active\nrun_id: abc\n{meta}\n",
        "artifacts/model/loss.jsonl": '{"step": 1, "loss": 2}\n' * 9,
    }
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def read_one(path: Path) -> Frame:
    (log,) = read_logs([str(path)])
    (frame,) = log.frames
    return frame


@pytest.mark.parametrize(
    ("head", "recognised"),
    [
        (b"1741789017085 0.0004 0\n1741789317342 0.0007 1\n", True),
        (b"1741789017085 nan 0\n", True),
        (b"1741789017085 0.5\n1741789017086 0.25\n", True),  # before there were steps
        (b"1741789017085 0.5 3 squad 1a2b\n", True),  # with a data set
        (b"1741789017085 0.5 3\r\n", True),
        (b"1741789017085 fast 3\n", False),
        (b"17 0.5 3\n", False),
        (b"1741789017085 0.5 3\nloss: 3\n", False),
    ],
)
def test_a_metric_file_is_known_by_its_lines(head: bytes, recognised: bool) -> None:
    reader = sniff(head)
    assert (reader is not None and reader.name == "mlflow") is recognised


def test_a_metric_file_alone() -> None:
    frame = read_bytes("mlflow", metric(3.0, "nan", "inf", "-Infinity", first=10, stride=10).encode())
    assert points(frame, "log") == [(10, 3.0, 1), (20, "nan", 2), (30, math.inf, 3), (40, -math.inf, 4)]
    assert points(frame, "time") == [(10, 0.0, 1), (20, 1.0, 2), (30, 2.0, 3), (40, 3.0, 4)]


def test_data_sets_and_their_digests_stand_behind_the_step() -> None:
    frame = read_bytes("mlflow", metric(3.0, 2.0, first=5, tail=" squad 1a2b").encode())
    assert points(frame, "log") == [(5, 3.0, 1), (6, 2.0, 2)]


def test_a_bad_line_costs_itself() -> None:
    lines = metric(*range(5)).splitlines()
    lines[1] = lines[1][:15]  # cut
    lines[3] = "1700000003000 3.0 three"
    out = pour("mlflow", "\n".join(lines).encode())
    (frame,) = out.build(Source("log", "mlflow"))
    assert [dropped.line for dropped in frame.dropped] == [2, 4]
    assert frame["log"].step.tolist() == [0, 2, 4]


def test_a_file_of_other_lines_is_refused() -> None:
    with pytest.raises(FormatError, match="<unix ms> <value> <step>"):
        pour("mlflow", b"step loss\n1 two\n")


def test_a_run_folder_is_one_run_with_its_facts(tmp_path: Path) -> None:
    metrics = {"train/loss": metric(3, 2, 1), "metrics/mAP50B": metric(0.5, first=2), "lr": metric(1e-3, 1e-3, 1e-3)}
    params = {"lr": "0.001", "max_steps": "300", "max_grad_norm": "None", "opt/name": "adam"}
    frame = read_one(make_run(tmp_path / "run", metrics, params))
    assert points(frame, "loss") == [(0, 3.0, 1), (1, 2.0, 2), (2, 1.0, 3)]
    assert set(frame) == {"loss", "lr", "eval/mAP50B", "time"}
    assert dict(frame.facts) == {"learning_rate": 0.001, "total_steps": 300, "status": "FINISHED"}
    assert frame.facts.where("total_steps") == "params/max_steps"
    assert frame.ended


@pytest.mark.parametrize(("status", "name"), [("4", "FAILED"), ("1", "RUNNING"), ("KILLED", "KILLED")])
def test_a_run_that_did_not_finish(tmp_path: Path, status: str, name: str) -> None:
    frame = read_one(make_run(tmp_path / "run", {"loss": metric(3, 2, 1)}, meta=f"status: {status}"))
    assert frame.facts["status"] == name
    assert not frame.ended


def test_the_same_run_by_every_path_to_it(tmp_path: Path) -> None:
    run = make_run(tmp_path / "mlruns" / "metrics" / "run", {"a/loss": metric(3, 2, 1), "metrics/loss": metric(3, 1)})
    assert set(read_one(run)) == set(read_one(run / "metrics")) == set(read_one(tmp_path))
    assert set(read_one(run / "metrics" / "metrics" / "loss")) == {"eval/loss", "time"}


def test_a_tree_holds_each_run_once(tmp_path: Path) -> None:
    for name in ("0/aaa", "0/bbb", "1/ccc"):
        make_run(tmp_path / name, {"train/loss": metric(3, 2, 1), "lr": metric(1, 1, 1)})
    make_run(tmp_path / "0" / "ddd", {"loss": metric(1)}, meta="status: 3\nlifecycle_stage: deleted")
    make_run(tmp_path / ".trash" / "eee", {"loss": metric(1)})
    make_run(tmp_path / "1" / "models" / "m-1", {"loss": metric(1)}, meta="model_id: m-1")
    (tmp_path / "0" / "meta.yaml").write_text("name: Default\n")
    logs = list(read_logs([str(tmp_path)]))
    assert [log.path for log in logs] == [str(tmp_path / name) for name in ("0/aaa", "0/bbb", "1/ccc")]
    assert all(log.problem is None and set(log.frames[0]) == {"loss", "lr", "time"} for log in logs)


def test_a_run_without_steps_is_counted_and_its_evaluations_stand_at_their_time(tmp_path: Path) -> None:
    metrics = {
        "val_loss": metric(9, 8, stride=0, start=START + 2500),
        "loss": metric(*range(6), stride=0),
        "best": metric(7, stride=0),
    }
    frame = read_one(make_run(tmp_path / "run", metrics))
    assert points(frame, "loss") == [(i + 1, float(i), i + 1) for i in range(6)]
    assert points(frame, "eval/loss") == [(3, 9.0, 1), (4, 8.0, 2)]
    assert points(frame, "best") == [(0, 7.0, 1)]


def test_a_metric_without_steps_stands_beside_those_with(tmp_path: Path) -> None:
    metrics = {"loss": metric(*range(6), first=10, stride=10), "acc": metric(1, 2, stride=0, start=START + 2500)}
    frame = read_one(make_run(tmp_path / "run", metrics))
    assert points(frame, "acc") == [(30, 1.0, 1), (40, 2.0, 2)]


def test_a_second_run_in_the_same_folder_is_cut_by_time(tmp_path: Path) -> None:
    """The evaluation at step 3 came before the loss began anew, though its line number is smaller than any cut's."""
    again = START + 100_000
    metrics = {
        "loss": metric(*range(9, 1, -1)) + metric(*range(19, 11, -1), start=again),
        "val_loss": metric(5.0, first=3, start=START + 3500) + metric(6.0, first=3, start=again + 3500),
    }
    (log,) = read_logs([str(make_run(tmp_path / "run", metrics))])
    first, second = log.frames
    assert first["loss"].value.tolist() == list(range(9, 1, -1))
    assert second["loss"].value.tolist() == list(range(19, 11, -1))
    assert (first["eval/loss"].value.tolist(), second["eval/loss"].value.tolist()) == ([5.0], [6.0])


def test_points_stay_in_their_order_where_the_clock_was_set_back(tmp_path: Path) -> None:
    metrics = {
        "loss": metric(*range(9, 1, -1)) + metric(*range(19, 11, -1), start=START - 100_000),
        "lr": metric(*[0.1] * 8),
    }
    (log,) = read_logs([str(make_run(tmp_path / "run", metrics))])
    first, second = log.frames
    assert first["loss"].value.tolist() == list(range(9, 1, -1))
    assert second["loss"].value.tolist() == list(range(19, 11, -1))
    assert first["loss"].line[-1] < second["loss"].line[0]
