"""Fewer points that look the same: no spike is lost."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

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
    full = n // width * width
    kept: list[Ints] = [np.fromiter(keep, np.int64, len(keep)), np.array([0, n - 1])]
    for start, rows in ((0, series.value[:full].reshape(-1, width)), (full, series.value[full:].reshape(1, -1))):
        if rows.size:
            begins = start + width * np.arange(len(rows))
            kept += [begins + column for column in _extremes(rows)]
    return np.unique(np.concatenate(kept))


def _extremes(rows: Floats) -> tuple[Ints, Ints]:
    """The columns of the smallest and of the largest finite value of each row; of column 0 where a row has none."""
    low, high = rows.argmin(axis=1), rows.argmax(axis=1)
    at = np.arange(len(rows))
    # A value that is not finite is picked as the smallest or the largest of its row: only such rows need a second look.
    again = np.flatnonzero(~(np.isfinite(rows[at, low]) & np.isfinite(rows[at, high])))
    if len(again):
        finite = np.isfinite(rows[again])
        low[again] = np.where(finite, rows[again], np.inf).argmin(axis=1)
        high[again] = np.where(finite, rows[again], -np.inf).argmax(axis=1)
    return low, high
