from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainproof.report.axes import Scale, ticks, value_scale

FINITE = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(st.floats(allow_subnormal=False), max_size=20), st.booleans())
def test_any_values_get_a_scale_that_holds_them(values: list[float], log: bool) -> None:
    scale = value_scale(values, log)
    assert math.isfinite(scale.low)
    assert math.isfinite(scale.high)
    assert scale.low < scale.high
    for value in values:
        if math.isfinite(value) and (value > 0 or not log):
            assert scale.low <= value <= scale.high
            assert 0 <= scale(value) <= 1


@given(st.lists(FINITE, min_size=1, max_size=20), st.booleans(), st.integers(2, 8))
def test_ticks_are_few_ordered_and_told_apart(values: list[float], log: bool, count: int) -> None:
    scale = value_scale(values, log)
    marks = ticks(scale, count)
    assert len(marks) <= 3 * count
    assert all(scale.low <= value <= scale.high for value, _ in marks)
    assert [value for value, _ in marks] == sorted({value for value, _ in marks})
    assert all(len(label) <= 12 for _, label in marks)


@pytest.mark.parametrize(
    ("scale", "labels"),
    [
        (Scale(0, 5), ["0", "1", "2", "3", "4", "5"]),
        (Scale(1.1, 3.7), ["1.5", "2", "2.5", "3", "3.5"]),
        (Scale(0, 5e-5), ["0", "1e-5", "2e-5", "3e-5", "4e-5", "5e-5"]),
        (Scale(1, 100_000), ["20,000", "40,000", "60,000", "80,000", "100,000"]),
        (Scale(-0.02, 0.04), ["-0.02", "-0.01", "0", "0.01", "0.02", "0.03", "0.04"]),
        (Scale(1e-4, 20, log=True), ["0.0001", "0.001", "0.01", "0.1", "1", "10"]),
        (Scale(0.8, 30, log=True), ["1", "2", "5", "10", "20"]),
        (Scale(1e-300, 1e300, log=True), ["1e-300", "1e-200", "1e-100", "1", "1e100", "1e200", "1e300"]),
    ],
)
def test_labels_are_short_and_round(scale: Scale, labels: list[str]) -> None:
    assert [label for _, label in ticks(scale, 6)] == labels


def test_scale_starts_at_zero_when_that_costs_little() -> None:
    assert value_scale([0.1, 5.0], False).low == 0
    assert value_scale([4.0, 5.0], False).low == pytest.approx(4 - 0.12 / 2)


def test_constant_and_missing_values_get_room() -> None:
    assert value_scale([3.0, 3.0], False) == Scale(1.5, 4.5)
    assert value_scale([0.0], False) == Scale(-0.5, 0.5)
    assert value_scale([float("nan")], False) == Scale(0.0, 1.06)


def test_log_scale_is_even_in_decades() -> None:
    scale = Scale(1, 100, log=True)
    assert [scale(v) for v in (1, 10, 100)] == pytest.approx([0, 0.5, 1])
