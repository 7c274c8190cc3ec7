"""FrameBuilder: record-wise and column-wise points become the same series, in the order of the log."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainproof.errors import UsageError
from trainproof.facts import Facts
from trainproof.frame import Frame, Source
from trainproof.readers.builder import DROPPED_SHOWN, FrameBuilder

SOURCE = Source("log", "test")
NAMES = st.sampled_from(["loss", "learning_rate", "my_metric", "eval_loss"])
RECORDS = st.lists(st.dictionaries(NAMES, st.floats(width=32), min_size=1), min_size=1, max_size=30)


def build(out: FrameBuilder) -> Frame:
    (frame,) = out.build(SOURCE)
    return frame


@given(RECORDS)
def test_records_come_back_as_they_were_added(records: list[dict[str, float]]) -> None:
    out = FrameBuilder()
    for i, record in enumerate(records):
        out.add(10 * i, record, i + 1)
    frame = build(out)
    for name, series in frame.items():
        theirs = frame.original_names[name]
        expected = [(10 * i, record[theirs], i + 1) for i, record in enumerate(records) if theirs in record]
        np.testing.assert_array_equal(
            np.array([series.step, series.value, series.line], float), np.array(expected, float).T
        )
    assert set(frame.original_names.values()) == {name for record in records for name in record}


@given(RECORDS, st.integers(0, 30))
def test_columns_give_what_records_give(records: list[dict[str, float]], cut: int) -> None:
    by_record, by_column = FrameBuilder(), FrameBuilder()
    for i, record in enumerate(records):
        by_record.add(i, record, i + 1)
    for name in dict.fromkeys(name for record in records for name in record):
        points = [(i, record[name], i + 1) for i, record in enumerate(records) if name in record]
        for piece in (points[cut:], points[:cut]):  # the later block first: lines are the order of the log
            columns = np.array(piece, float).reshape(-1, 3).T
            by_column.extend(name, columns[0].astype(np.int64), columns[1], columns[2].astype(np.int64))
    first, second = build(by_record), build(by_column)
    assert set(first) == set(second)
    for name in first:
        np.testing.assert_array_equal(first[name].value, second[name].value)
        np.testing.assert_array_equal(first[name].line, second[name].line)


def test_records_of_different_metrics_on_one_line_keep_their_order() -> None:
    out = FrameBuilder()
    for step in range(1, 7):
        out.add(step, {"loss": 1.0 / step} if step % 2 else {"loss": 1.0 / step, "val_loss": 1.0}, line=1)
    frame = build(out)
    assert frame["loss"].step.tolist() == [1, 2, 3, 4, 5, 6]
    assert frame.repairs == ()


def test_columns_are_not_copied_and_share_their_steps() -> None:
    step = np.arange(100)
    loss = np.linspace(2, 1, 100)
    out = FrameBuilder()
    out.extend("loss", step, loss, step)
    out.extend("lr", step, loss, step)
    frame = build(out)
    assert frame["loss"].step is step
    assert frame["lr"].step is step
    assert frame["loss"].value is loss


def test_blocks_and_records_of_the_same_points_share_their_steps() -> None:
    out = FrameBuilder()
    for start in (0, 50):
        step = np.arange(start, start + 50)
        for name in ("loss", "lr"):
            out.extend(name, step, np.ones(50), step)
    for number in range(100, 110):
        out.add(number, {"a": 1.0, "b": 2.0}, number)
    frame = build(out)
    assert frame["loss"].step is frame["lr"].step
    assert frame["a"].line is frame["b"].line


@pytest.mark.parametrize("step", [2**62 + 1, -(2**63), 10**400])
def test_a_step_out_of_bounds_costs_its_record(step: int) -> None:
    out = FrameBuilder()
    out.add(1, {"loss": 1.0}, 1)
    out.add(step, {"loss": 2.0}, 2)
    frame = build(out)
    assert frame["loss"].value.tolist() == [1.0]
    assert frame.dropped_count == 1
    assert frame.dropped[0].line == 2


def test_steps_out_of_bounds_cost_their_points() -> None:
    out = FrameBuilder()
    out.extend("loss", np.array([1, np.iinfo(np.int64).max, 3]), np.array([1.0, 2.0, 3.0]), np.array([1, 2, 3]))
    frame = build(out)
    assert frame["loss"].step.tolist() == [1, 3]
    assert [drop.line for drop in frame.dropped] == [2]


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="loss: 2 steps, 1 values, 2 lines"):
        FrameBuilder().extend("loss", np.arange(2), np.ones(1), np.arange(2))


def test_an_empty_builder_is_an_empty_frame() -> None:
    out = FrameBuilder()
    out.extend("loss", np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.int64))
    frame = build(out)
    assert not len(frame)
    assert (frame.main, frame.records, frame.objective) == (None, 0, "unknown")


def test_non_finite_and_whole_values() -> None:
    out = FrameBuilder()
    for step, value in enumerate([math.nan, math.inf, -math.inf, -0.0, 3, True]):
        out.add(step, {"loss": value}, step + 1)
    assert build(out)["loss"].value.tolist() == pytest.approx([math.nan, math.inf, -math.inf, 0, 3, 1], nan_ok=True)


def test_a_constant_column_of_a_declared_number_is_a_fact() -> None:
    out = FrameBuilder()
    for step in range(5):
        out.add(step, {"loss": 1.0, "total_steps": 500, "warmup_steps": step}, step + 1)
    frame = build(out)
    assert frame.total_steps == 500
    assert "total_steps" not in frame
    assert "warmup_steps" in frame  # it changes: no declaration
    assert out.build(SOURCE, Facts({"total_steps": 700}))[0].total_steps == 700  # the user's word wins


def test_what_was_said_beside_the_points() -> None:
    out = FrameBuilder()
    out.add(1, {"train_loss": 1.0}, 1)
    out.mask("train_loss")
    out.event("oom", "CUDA out of memory", 7)
    out.end()
    for line in range(100):
        out.drop(line, "why")
    frame = build(out)
    assert frame.masked == {"loss"}
    assert [event.line for event in frame.events] == [7]
    assert frame.ended
    assert (frame.dropped_count, len(frame.dropped)) == (100, DROPPED_SHOWN)


def test_the_users_mapping() -> None:
    out = FrameBuilder({"loss": "my_thing"})
    out.add(1, {"my_thing": 1.0, "loss": 2.0}, 1)
    assert build(out)["loss"].value.tolist() == [1.0]
    other = FrameBuilder({"lr": "gone"})
    other.add(1, {"loss": 1.0}, 1)
    with pytest.raises(UsageError, match="the log has no 'gone'; it has loss"):
        other.build(SOURCE)


def side_by_side(mapping: dict[str, str] | None = None) -> FrameBuilder:
    out = FrameBuilder(mapping)
    for name, loss in (("a", "train/loss"), ("b - 2", "cost")):
        for i in range(3):
            out.run(name).add(i, {loss: float(i), "lr": 0.1}, i + 1)
    return out


def test_runs_side_by_side_are_frames_of_their_names() -> None:
    out = side_by_side()
    out.facts.declare("vocab_size", 100, "the header")
    out.run("a").facts.declare("vocab_size", 7, "a's own")
    out.run("a").drop(9, "its own")
    out.drop(1, "nobody's")
    first, second = out.build(Source("x", "csv"), Facts({"seed": 3}), Facts({"seed": 4, "num_classes": 5}, "beside"))
    assert (first.source.name, second.source.name) == ("a", "b - 2")
    assert list(first) == ["loss", "lr"]
    assert list(second) == ["cost", "lr"]
    assert dict(first.facts) == {"seed": 3, "vocab_size": 7, "num_classes": 5}
    assert dict(second.facts) == {"seed": 3, "vocab_size": 100, "num_classes": 5}
    assert [line.line for line in first.dropped] == [1, 9]
    assert second.dropped_count == 0


def test_a_mapping_has_to_fit_one_of_the_runs() -> None:
    first, second = side_by_side({"loss": "cost"}).build(Source("x", "csv"))
    assert list(first) == list(second) == ["loss", "lr"]
    with pytest.raises(UsageError, match="no 'coss'"):
        side_by_side({"loss": "coss"}).build(Source("x", "csv"))


def test_lines_that_a_carriage_return_ended_are_counted_out() -> None:
    """Three records on line 1, two on line 2, and a restart in between."""
    out = FrameBuilder()
    lines = np.arange(1, 13)
    out.soft(np.array([1, 2]))
    out.soft(np.array([4]))
    steps = np.array([1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6])
    out.extend("loss", steps, np.linspace(2, 1, 12), lines)
    out.drop(5, "no number")
    out.event("killed", "Killed", 12)
    first, second = out.build(Source("log", "test"))
    assert first["loss"].line.tolist() == [1, 1, 1, 2, 2, 3]
    assert second["loss"].line.tolist() == [4, 5, 6, 7, 8, 9]
    assert [(dropped.line, dropped.why) for dropped in first.dropped] == [(2, "no number")]
    assert [event.line for event in second.events] == [9]
