"""What a logger writes is what is read: any numbers, in the files of known loggers."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.readers.known import lines, run
from trainproof.frame import Frame

NUMBERS = st.floats(allow_nan=False, width=64)
CURVES = st.lists(st.tuples(NUMBERS, st.one_of(st.none(), NUMBERS)), min_size=3, max_size=40)


def table(columns: Sequence[str], rows: Sequence[Mapping[str, object]], *, lineterminator: str = "\n") -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator=lineterminator)
    writer.writeheader()
    writer.writerows([{k: v for k, v in row.items() if v is not None} for row in rows])
    return text.getvalue()


def lightning(curve: Sequence[tuple[float, float | None]]) -> str:
    rows: list[dict[str, object]] = []
    for i, (loss, held_out) in enumerate(curve):
        rows.append({"epoch": i // 10, "step": i, "train_loss": loss})
        rows.append({"epoch": i // 10, "step": i, "val_loss": held_out})
    return table(["epoch", "step", "train_loss", "val_loss"], rows, lineterminator="\r\n")


def keras(curve: Sequence[tuple[float, float | None]]) -> str:
    return table(
        ["epoch", "loss", "val_loss"],
        [{"epoch": i, "loss": a, "val_loss": "NA" if b is None else b} for i, (a, b) in enumerate(curve)],
    )


def llamafactory(curve: Sequence[tuple[float, float | None]]) -> str:
    records: list[dict[str, object]] = []
    for i, (loss, held_out) in enumerate(curve):
        records.append({"current_steps": i, "total_steps": 1000, "loss": loss, "lr": 0.1})
        if held_out is not None:
            records.append({"current_steps": i, "total_steps": 1000, "eval_loss": held_out})
    return lines(records)


def mmcv(curve: Sequence[tuple[float, float | None]]) -> str:
    records: list[dict[str, object]] = []
    for i, (loss, held_out) in enumerate(curve):
        records.append({"mode": "train", "epoch": 1, "iter": i, "loss": loss})
        if held_out is not None:
            records.append({"mode": "val", "epoch": 1, "iter": 7, "loss": held_out})
    return lines(records)


def points(frame: Frame, name: str) -> list[tuple[int, float]]:
    series = frame.get(name)
    return [] if series is None else list(zip(series.step.tolist(), series.value.tolist(), strict=True))


@pytest.mark.parametrize("write", [lightning, keras, llamafactory, mmcv])
@given(curve=CURVES)
def test_losses_of_training_and_evaluation_come_back(write: object, curve: list[tuple[float, float | None]]) -> None:
    assert callable(write)
    frame = run(write(curve))
    assert frame.source.format in {"lightning", "keras", "llamafactory", "mmengine"}
    assert points(frame, "loss") == [(i, loss) for i, (loss, _) in enumerate(curve)]
    assert points(frame, "eval/loss") == [
        (i, held_out) for i, (_, held_out) in enumerate(curve) if held_out is not None
    ]
    assert frame.dropped_count == 0


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("write", [lightning, keras, llamafactory, mmcv])
def test_a_loss_that_is_not_finite_comes_back_as_it_is(write: object, value: float) -> None:
    assert callable(write)
    frame = run(write([(1.0, 1.0), (0.5, None), (value, value)]))
    assert str(frame["loss"].value.tolist()) == str([1.0, 0.5, value])
    assert str(frame["eval/loss"].value.tolist()) == str([1.0, value])
