from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from trainproof.decimate import decimate
from trainproof.frame import Series

VALUES = st.one_of(st.floats(-1e300, 1e300), st.sampled_from([np.nan, np.inf, -np.inf, 0.0]))


def series(values: list[float]) -> Series:
    steps = np.arange(len(values))
    return Series("loss", steps, np.array(values, np.float64), steps)


@given(st.lists(VALUES, min_size=1, max_size=400), st.integers(12, 60), st.data())
def test_every_stretch_keeps_its_extremes(values: list[float], most: int, data: st.DataObject) -> None:
    keep = data.draw(st.sets(st.integers(0, len(values) - 1), max_size=6))
    one = series(values)
    kept = decimate(one, most, keep)
    assert len(kept) <= most
    assert (np.diff(kept) > 0).all()
    assert keep <= set(kept.tolist())
    assert {0, len(values) - 1} <= set(kept.tolist())
    width = 1 if len(values) <= most else -(-len(values) // max(1, (most - len(keep) - 4) // 2))
    for start in range(0, len(values), width):
        stretch = one.value[start : start + width]
        finite = stretch[np.isfinite(stretch)]
        drawn = one.value[kept[(kept >= start) & (kept < start + width)]]
        if len(finite):
            assert {finite.min(), finite.max()} <= set(drawn.tolist())
        else:
            assert len(drawn)


def test_a_short_series_is_left_alone() -> None:
    assert decimate(series([1.0, np.nan, 3.0]), 1000).tolist() == [0, 1, 2]


def test_cited_points_are_kept_even_when_they_alone_are_too_many() -> None:
    cited = set(range(0, 4000, 2))
    assert cited <= set(decimate(series([0.0] * 5000), 1000, cited).tolist())
