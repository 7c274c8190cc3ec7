"""Tables in memory as runs."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.readers.logs import points
from trainproof.errors import FormatError
from trainproof.frame import Frame, Series
from trainproof.readers.memory import frame_of

NAMES = ("loss", "eval/loss", "lr", "grad_norm", "loss/kl", "my_metric")


def test_a_dict_of_lists() -> None:
    frame = frame_of({"step": [10, 20, 30], "train_loss": [3.0, None, math.nan], "lr": [1e-3, 1e-4, 1e-5]})
    assert points(frame, "loss") == [(10, 3.0, 1), (30, "nan", 3)]
    assert points(frame, "lr") == [(10, 1e-3, 1), (20, 1e-4, 2), (30, 1e-5, 3)]


def test_without_steps_records_are_numbered_from_one() -> None:
    assert points(frame_of({"loss": np.array([2.0, 1.0])}), "loss") == [(1, 2.0, 1), (2, 1.0, 2)]
    assert frame_of(pd.DataFrame({"loss": [2.0, 1.0]}))["loss"].step.tolist() == [1, 2]


def test_a_record_without_a_usable_step_is_dropped() -> None:
    frame = frame_of({"step": [1, None, 2.5, 4], "loss": [4.0, 3.0, 2.0, 1.0]})
    assert frame["loss"].step.tolist() == [1, 4]
    assert [drop.line for drop in frame.dropped] == [2, 3]


def test_nan_in_a_table_is_not_logged_unless_said() -> None:
    table = pd.DataFrame({"step": [1, 2, 3], "loss": [3.0, np.nan, 1.0]})
    assert frame_of(table)["loss"].step.tolist() == [1, 3]
    assert points(Frame.from_pandas(table, nan_is_logged=True), "loss")[1] == (2, "nan", 2)


def test_an_integer_index_that_somebody_set_numbers_the_records() -> None:
    table = pd.DataFrame({"loss": [3.0, 2.0]}, index=[100, 200])
    assert frame_of(table)["loss"].step.tolist() == [100, 200]


def test_names_can_be_mapped() -> None:
    assert "loss" in frame_of({"elbow": [1.0, 2.0]}, mapping={"loss": "elbow"})


def test_two_columns_of_one_name_do_not_crash() -> None:
    table = pd.DataFrame([[1.0, 2.0], [3.0, 4.0]], columns=["loss", "loss"])
    assert frame_of(table)["loss"].value.size >= 2


@pytest.mark.parametrize("table", [5, None, [1, 2], {"loss": 3.0}, {"loss": [1.0, 2.0], "lr": [1.0]}])
def test_what_is_no_table_is_one_clear_line(table: object) -> None:
    with pytest.raises(FormatError, match=r"expected [^\n]*\Z"):
        frame_of(table)


def test_text_columns_are_passed_over() -> None:
    frame = frame_of({"loss": [1.0, 2.0], "note": ["start", "end"]})
    assert list(frame) == ["loss"]


@st.composite
def frames(draw: st.DrawFn) -> Frame:
    """Runs of the usual metrics, each logged at its own steps."""
    series = {}
    for name in draw(st.lists(st.sampled_from(NAMES), min_size=1, unique=True)):
        steps = sorted(draw(st.sets(st.integers(0, 10**9), min_size=1, max_size=20)))
        values = draw(
            st.lists(st.floats(allow_nan=False, allow_infinity=True), min_size=len(steps), max_size=len(steps))
        )
        series[name] = Series(name, np.array(steps, np.int64), np.array(values), np.arange(1, len(steps) + 1))
    return Frame(series)


@given(frames())
def test_a_frame_survives_pandas(frame: Frame) -> None:
    back = Frame.from_pandas(frame.to_pandas())
    assert set(back) == set(frame)
    for name, series in frame.items():
        assert back[name].step.tolist() == series.step.tolist()
        assert back[name].value.tolist() == series.value.tolist()
