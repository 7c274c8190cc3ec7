"""Fewer points that look the same: no spike is lost."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from trainproof.frame import Floats, Ints, Series


def decimate(series: Series, most: int, keep: Collection[int] = ()) -> Ints:
    """Indices, ascending, of at most `most` points of `series` that draw as all of them do.

    Kept are the smallest and the largest finite value of each of equally long stretches, the first and the last point, and the
    points at `keep` (all of them, even where they alone are more than `most`). A stretch without a finite value keeps one point,
    so that the gap shows.
    """
    n = len(series)
    if n <= most:
        return np.arange(n)
    stretches = max(1, (most - len(keep) - 4) // 2)
    width = -(-n // stretches)
    low, high = _bounds(series)
    full = n // width * width
    starts = np.arange(0, full, width)
    kept: list[NDArray[np.int64]] = [np.fromiter(keep, np.int64, len(keep)), np.array([0, n - 1])]
    for values, pick in ((low, np.argmin), (high, np.argmax)):
        kept.append(starts + pick(values[:full].reshape(-1, width), axis=1))
        if full < n:
            kept.append(np.array([full + pick(values[full:])]))
    return np.unique(np.concatenate(kept))


def _bounds(series: Series) -> tuple[Floats, Floats]:
    """The values with the non-finite ones out of the way: of the search for the smallest, and for the largest."""
    if series.finite is series:
        return series.value, series.value
    finite = np.isfinite(series.value)
    return np.where(finite, series.value, np.inf), np.where(finite, series.value, -np.inf)
