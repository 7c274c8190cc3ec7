"""Whether a series rises or falls, by how much, and since when."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from trainproof.stats.arrays import MAD_TO_SIGMA, ROWS, Floats, Ints, distinct, median, middle

#: asymptotic efficiency of Theil-Sen against least squares, normal law (3 / pi), as a factor of the standard error
THEIL_SEN_SE = math.sqrt(math.pi / 3)
TREND_BLOCKS = 120


class Change(NamedTuple):
    """The robust change over a window, its standard error, and the median of the window, in units of the series."""

    change: float
    se: float
    level: float


class Trend(NamedTuple):
    """The change over a window in units of the series, its standard error, and the Mann-Kendall Z."""

    change: float
    se: float
    z: float


def block_medians(x: Floats, blocks: int = TREND_BLOCKS) -> Floats:
    """Medians of at most `blocks` equal stretches of x (all of x when it is no longer); the remainder is left out at the start."""
    if len(x) <= blocks:
        return x
    width = len(x) // blocks
    half = width // 2
    stretches = x[len(x) - width * blocks :].reshape(blocks, width)
    rows = np.partition(stretches, half, axis=1)  # by one place, as in `median`
    return rows[:, half] if width % 2 else middle(rows[:, :half].max(axis=1), rows[:, half])


@lru_cache(maxsize=2 * TREND_BLOCKS)
def _pairs(n: int) -> tuple[Ints, Ints, Floats]:
    """The indices i < j of all pairs of n points, and j - i: the same for every trend of a run, so they are made once."""
    i, j = np.triu_indices(n, 1)
    return i, j, (j - i).astype(np.float64)


def theil_sen(t: Floats, y: Floats) -> float:
    """The median slope over all pairs (Sen 1968), in units of y per unit of t; 0 for fewer than 2 points."""
    if len(y) < 2:
        return 0.0
    i, j, _ = _pairs(len(y))
    return median((y.take(j) - y.take(i)) / (t.take(j) - t.take(i)))


def mann_kendall(y: Floats) -> float:
    """The Mann-Kendall Z with the continuity correction and the correction for ties (Kendall 1975); 0 for fewer than 3 points."""
    n = len(y)
    if n < 3:
        return 0.0
    i, j, _ = _pairs(n)
    s = int(np.sign(y.take(j) - y.take(i)).sum())
    ties = distinct(y)[1]
    variance = (n * (n - 1) * (2 * n + 5) - int((ties * (ties - 1) * (2 * ties + 5)).sum())) / 18
    return 0.0 if variance <= 0 or s == 0 else (s - math.copysign(1, s)) / math.sqrt(variance)


def trend_z(x: Floats) -> float:
    """The Mann-Kendall Z of the block medians of x: whether it rises (positive) or falls over the whole of it."""
    return mann_kendall(block_medians(x))


def change_over(x: Floats) -> Change:
    """The Theil-Sen change from the first to the last block median of x (at most 120 blocks), and its standard error.

    The standard error is that of a least-squares slope with the robust scale of the residuals, over the efficiency of Theil-Sen.
    """
    return _change(block_medians(x))


def _change(y: Floats) -> Change:
    m = len(y)
    if m < 3:
        return Change(0.0, math.inf, median(y) if m else math.nan)
    t = np.arange(m, dtype=np.float64)
    i, j, apart = _pairs(m)
    slope = median((y.take(j) - y.take(i)) / apart)  # theil_sen(t, y), whose distances are known
    residual = y - slope * t
    return Change(slope * (m - 1), _change_se(median(np.abs(residual - median(residual))), m), median(y))


def _change_se(mad: float, m: int) -> float:
    """The standard error of the change over m points whose residuals have this median absolute deviation."""
    return THEIL_SEN_SE * (MAD_TO_SIGMA * mad) * math.sqrt(12 * (m - 1) / (m * (m + 1)))


def may_stand_still(x: Floats, share: float) -> bool:
    """Whether `change_over` may find a change of x that is less than `share` of its level, two standard errors included.

    It asks for no slope: where the change is less than a limit, the residuals' median absolute deviation is less than that of x by
    the limit at most.
    """
    y = block_medians(x)
    if len(y) < 3:
        return True
    level = median(y)
    limit = share * abs(level)
    least = _change_se(median(np.abs(y - level)) - limit, len(y))
    return 2 * least < 1.001 * limit  # more than a rounding error more


def trend(x: Floats, lo: int, hi: int) -> Trend:
    """The trend of x[lo:hi]: its `change_over`, the standard error of that, and the Z of its block medians."""
    y = block_medians(x[lo:hi])
    seen = _change(y)
    return Trend(seen.change, seen.se, mann_kendall(y))


def page_hinkley(z: Floats, delta: float, limit: float, start: int = 0) -> tuple[int, int] | None:
    """The first index from `start` at which the cumulative excess of z over `delta` stands `limit` above its running minimum (Page
    1954), and the index after that minimum, where the change most likely began.

    The sum begins at `start`. It is taken in pieces that grow, so that a test begun anew after each hit stays linear.
    """
    total, lowest, since, size = 0.0, 0.0, start, 64
    while start < len(z):
        sums = total + np.cumsum(z[start : start + size] - delta)
        low = np.minimum(np.minimum.accumulate(sums), lowest)
        hits = np.flatnonzero(sums - low > limit)
        upto = int(hits[0]) if len(hits) else len(sums) - 1
        if low[upto] < lowest:
            lowest, since = float(low[upto]), start + int(np.argmin(sums[: upto + 1])) + 1
        if len(hits):
            return start + upto, since
        total, start, size = float(sums[-1]), start + size, min(2 * size, ROWS)
    return None
