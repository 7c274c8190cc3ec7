"""Which records of two runs are taken together."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.comparing.helpers import curve, falling
from trainproof.comparing.matching import match


def test_the_same_steps_are_matched_one_to_one() -> None:
    pairs = match(curve([1.0, 2.0, 4.0]), curve([1.0, 1.0, 2.0]))
    assert (pairs.run.tolist(), pairs.base.tolist(), pairs.how) == ([1, 2, 4], [1, 1, 2], "steps")
    assert pairs.ratio.tolist() == pytest.approx([0, np.log(2), np.log(2)])


def test_only_the_shared_range_counts() -> None:
    pairs = match(curve([1.0] * 5, [1, 2, 3, 4, 5]), curve([2.0] * 9, [4, 5, 6, 7, 8, 9, 10, 11, 12]))
    assert pairs.step.tolist() == [4, 5]
    assert len(match(curve([1.0], [1]), curve([1.0], [2]))) == 0


def test_values_that_are_not_finite_are_left_out() -> None:
    pairs = match(curve([1.0, np.nan, 3.0, 4.0]), curve([1.0, 2.0, np.inf, 4.0]))
    assert pairs.step.tolist() == [1, 4]


@given(st.lists(st.floats(0.1, 10), min_size=4, max_size=60), st.integers(2, 7))
def test_a_thinned_run_is_matched_exactly(values: list[float], every: int) -> None:
    whole = curve(values)
    index = list(range(0, len(values), every))
    thin = curve([values[i] for i in index], [i + 1 for i in index])
    for pairs in (match(thin, whole), match(whole, thin)):
        assert pairs.step.tolist() == thin.step.tolist()
        assert (pairs.ratio == 0).all()


def test_means_over_an_interval_are_compared_with_means() -> None:
    """A single noisy record beside a mean would be a biased pair: the mean of a skewed law is above its median."""
    often = falling(400, sigma=0.5)
    rare = [float(np.mean(often[i : i + 10])) for i in range(0, 400, 10)]
    steps = list(range(10, 401, 10))
    for pairs in (match(curve(rare, steps), curve(often)), match(curve(often), curve(rare, steps))):
        assert pairs.how == "intervals"
        assert len(pairs) == 40
        assert np.abs(pairs.ratio).max() < 1e-12


def test_intervals_that_do_not_meet_are_compared_by_their_levels() -> None:
    run = curve(falling(700, 1, sigma=0.05)[6::7], list(range(7, 701, 7)))
    base = curve(falling(700, 2, sigma=0.05)[9::10], list(range(10, 701, 10)))
    pairs = match(run, base)
    assert pairs.how == "intervals"
    assert len(pairs) == len(base.x)
    assert abs(float(np.median(pairs.ratio))) < 0.02


def test_where_the_values_are_not_positive_differences_replace_ratios() -> None:
    base = np.linspace(1, -1, 101)
    pairs = match(curve(base + 0.18), curve(base))
    assert pairs.scale == pytest.approx(1.8)
    assert pairs.ratio.tolist() == pytest.approx([0.1] * 101)
    assert match(curve([1.0, 2.0]), curve([1.0, 2.0])).scale is None


def test_lines_and_steps_of_both_sides_are_kept() -> None:
    run, base = curve([3.0, 2.0], [10, 20]), curve([3.0, 2.5, 2.0], [10, 15, 20])
    pairs = match(run._replace(line=np.array([7, 9])), base._replace(line=np.array([4, 5, 6])))
    assert (pairs.line.tolist(), pairs.base_line.tolist()) == ([7, 9], [4, 6])
    assert pairs.base_step.tolist() == [10, 20]
