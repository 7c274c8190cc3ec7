"""Exports of trackers: a row a metric, CatBoost's JSON, a table of runs."""

from __future__ import annotations

import json
import math

import pytest

from tests.readers.console.test_generic import HUNDREDS, VALID
from tests.readers.logs import pour
from trainproof.errors import FormatError
from trainproof.frame import Frame, Source
from trainproof.readers.base import sniff

SHIFTED = [(100 * e, v) for e, v in VALID]
PAIRS = [(step, t, v) for (step, t), (_, v) in zip(HUNDREDS, SHIFTED, strict=True)]


def frames(text: str, expected: str = "long-table") -> list[Frame]:
    reader = sniff(text.encode())
    assert reader is not None
    assert reader.name == expected
    return pour(expected, text.encode()).build(Source("log", expected))


def points(frame: Frame, name: str) -> list[tuple[int, float]]:
    return list(zip(frame[name].step.tolist(), frame[name].value.tolist(), strict=True))


@pytest.mark.parametrize(
    ("head", "train", "evaluation"),
    [
        ("step,metric,value", "{s},train_loss,{t}", "{s},val_loss,{v}"),
        (
            "Run ID,Name,Key,Value,Timestamp,Step",
            "0ab1,first,train_loss,{t},1589,{s}",
            "0ab1,first,val_loss,{v},1589,{s}",
        ),
        (
            "experimentKey,metricName,metricValue,step,epoch,timestamp,runContext",
            "a,loss,{t},{s},,1589,train",
            "a,loss,{v},{s},,1589,validate",
        ),
        (
            "run.hash,metric.name,metric.context,step,epoch,value",
            '9f,loss,"{{""subset"": ""train""}}",{s},1,{t}',
            '9f,loss,"{{""subset"": ""val""}}",{s},1,{v}',
        ),
        ("iter\tseries\tvalue", "{s}\tloss\t{t}", "{s}\tval/loss\t{v}"),
    ],
)
def test_a_row_a_metric(head: str, train: str, evaluation: str) -> None:
    rows = [line.format(s=s, t=t, v=v) for s, t, v in PAIRS for line in (train, evaluation)]
    (frame,) = frames("\n".join([head, *rows]) + "\n")
    assert (points(frame, "loss"), points(frame, "eval/loss")) == (HUNDREDS, SHIFTED)
    assert frame["loss"].line[:2].tolist() == [2, 4]


def test_runs_of_one_table_are_runs_of_their_own() -> None:
    rows = [f"{run},train_loss,{t},{s}" for s, t, _ in PAIRS for run in ("a", "b")]
    found = frames("\n".join(["run_id,key,value,step", *rows, "a,train_loss,nan,9999", "b,train_loss,,9999"]) + "\n")
    assert [len(frame["loss"]) for frame in found] == [len(PAIRS) + 1, len(PAIRS)]
    assert math.isnan(found[0]["loss"].value[-1])


def test_other_tables_of_keys_and_values_are_none() -> None:
    text = "key,value,step\n" + "".join(f"colour{i},{i},{i}\n" for i in range(20))
    reader = sniff(text.encode())
    assert reader is None or reader.name != "long-table"


def test_the_training_of_catboost() -> None:
    document = {
        "meta": {
            "learn_metrics": [{"best_value": "Max", "name": "AUC"}, {"best_value": "Min", "name": "Logloss"}],
            "test_metrics": [{"best_value": "Max", "name": "AUC"}, {"best_value": "Min", "name": "Logloss"}],
            "iteration_count": 5000,
        },
        "iterations": [{"iteration": s, "learn": [0.5, t], "test": [0.6, v], "passed_time": 1.5} for s, t, v in PAIRS],
    }
    (frame,) = frames(json.dumps(document, indent=1), "catboost")
    assert (points(frame, "loss"), points(frame, "eval/loss")) == (HUNDREDS, SHIFTED)
    assert set(frame["eval/AUC"].value) == {0.6}
    assert frame.total_steps == 5000
    with pytest.raises(FormatError, match="no meta"):
        pour("catboost", b'{"iterations": []}')


def test_a_table_of_runs_is_no_curve() -> None:
    text = '"Name","State","train/loss"\n' + "".join(f'"run-{i}","finished","{i / 7}"\n' for i in range(30))
    reader = sniff(text.encode())
    assert reader is not None
    with pytest.raises(FormatError, match="no curve"):
        pour(reader.name, text.encode())
    (frame,) = frames(text.replace("finished", "0.5"), "csv")
    assert len(frame["loss"]) == 30
