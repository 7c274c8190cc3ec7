"""Robust statistics: pure, deterministic functions on float64 arrays.

Only order statistics, differences and fixed-order sums are used, so that no SIMD width changes a digit that reaches a report. All of
them are causal: what is returned for record i depends on records 0..i alone. Arrays are finite unless a docstring says otherwise.
"""

from __future__ import annotations

import math
import os
from bisect import insort
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
T = TypeVar("T", bound=np.generic)
R = TypeVar("R")

#: standard deviation of a normal law over its median absolute deviation
MAD_TO_SIGMA = 1.4826
#: standard deviation of the noise over the median absolute difference of neighbours
STEP_TO_SIGMA = MAD_TO_SIGMA / math.sqrt(2)
#: standard error of a median over that of a mean, normal law (sqrt(pi / 2))
MEDIAN_SE = 1.2533
#: asymptotic efficiency of Theil-Sen against least squares, normal law (3 / pi), as a factor of the standard error
THEIL_SEN_SE = math.sqrt(math.pi / 3)

BASELINE_WINDOW = 64
BASELINE_MINIMUM = 20
_MIDDLE = (
    24,
    40,
)  # between these of 64 sorted values lies a stretch that is no wider than their scale, unless few differ
#: every record has a baseline of its own up to here; past it the baseline is renewed every BASELINE_STRIDE records, which a log
#: of that length cannot tell apart and which keeps a million records affordable
BASELINE_EXACT = 2048
BASELINE_STRIDE = 32
TREND_BLOCKS = 120
#: records before the first count of the common schedule
SCHEDULE_START = 50
#: a robust scale of a long prefix is taken from at most this many evenly spaced values (2 % standard error)
THINNED = 4096
#: differences from which on a correlation of neighbours can be told from none
SERIAL_MINIMUM = 32
#: values below which sorting them all is quicker than selecting some
SHORT = 400
_ROWS = 8192  # values looked at in one go
_SORTED = 65536  # values sorted at a time: 512 KiB stay in the processor's cache
#: values sorted in all from which on several threads share the work: numpy lets go of the interpreter while it sorts
_SHARED = 16 * _SORTED
_THREADS = 4


class Baseline(NamedTuple):
    """Where a series stood just before each record: median M, scale S and 95th percentile, shape (n,), NaN where too few came before."""

    median: Floats
    scale: Floats
    high: Floats


class Renewed(NamedTuple):
    """A statistic that was renewed at these record counts, shape (k,) each; between them it stays as it is."""

    counts: Ints
    values: Floats

    def each(self, size: int, first: int = 0, stride: int = 1) -> Floats:
        """Its value at the records (from 0) first, first + stride, ..., shape (size,); +inf before the first count."""
        begins = np.clip(-((first + 1 - self.counts) // stride), 0, size)
        return np.repeat(np.append(np.inf, self.values), np.diff(np.concatenate(([0], begins, [size]))))


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


def processors() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def median5(x: Floats) -> Floats:
    """The median of the last 5 values, shape (n,); NaN for the first 4. A minimum/maximum network: exact, without sorting."""
    out = np.full(len(x), np.nan)
    for start in range(0, len(x) - 4, _ROWS):  # pieces that stay in the processor's cache
        piece = x[start : start + _ROWS + 4]
        small, large, last = np.minimum(piece[:-1], piece[1:]), np.maximum(piece[:-1], piece[1:]), piece[4:]
        low, high = np.maximum(small[:-3], small[2:-1]), np.minimum(large[:-3], large[2:-1])
        middle = np.minimum(np.maximum(last, low), high)
        np.maximum(np.minimum(last, low), middle, out=out[start + 4 : start + len(piece)])
    return out


def windows(x: Floats, width: int, made: Callable[[int, Floats], R], stride: int = 1) -> list[R]:
    """made(index of the first row, sorted windows), piece by piece: row r holds x[r * stride : r * stride + width], sorted."""
    if len(x) < width:
        return []
    x = np.ascontiguousarray(x, dtype=np.float64)
    rows = (len(x) - width) // stride + 1
    view = np.ndarray(
        (rows, width), np.float64, x, 0, (stride * x.itemsize, x.itemsize)
    )  # several times as quick to make
    # as by sliding_window_view
    size = max(1, _SORTED // width)

    def piece(start: int) -> R:
        return made(start, np.sort(view[start : start + size], axis=1))

    starts = range(0, len(view), size)
    if len(view) * width < _SHARED:
        return [piece(start) for start in starts]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(min(processors(), _THREADS)) as threads:
        return list(threads.map(piece, starts))


def row_median(rows: Floats) -> Floats:
    """The median of each row of rows sorted along axis 1; of an even number, the mean of the two middle values."""
    width = rows.shape[1]
    return rows[:, width // 2] if width % 2 else _middle(rows[:, width // 2 - 1], rows[:, width // 2])


def _middle(low: Floats, high: Floats) -> Floats:
    return low / 2 + high / 2  # halves first: two values near the largest float do not overflow


def trailing_median(x: Floats, width: int, stride: int = 1) -> tuple[Ints, Floats]:
    """(index of the last record, median) of the windows of `width` records that end at width-1, width-1+stride, ..."""
    parts = windows(x, width, lambda _, rows: row_median(rows), stride)
    values = np.concatenate(parts) if parts else np.empty(0)
    return np.arange(len(values), dtype=np.int64) * stride + (width - 1), values


def trailing_minimum(x: Floats, width: int) -> Floats:
    """The minimum of the last `width` values, shape (n,); -inf for the first width-1 (nothing has held that long yet)."""
    out = x.copy()
    done = 1
    while done < width:
        shift = min(done, width - done)
        out[shift:] = np.minimum(out[shift:], out[:-shift]) if shift < len(out) else out[shift:]
        done += shift
    out[: width - 1] = -np.inf
    return out


def baseline(x: Floats, lag: int = 5) -> Baseline:
    """M and S of the 64 (at least 20) records that end `lag` records before each record.

    S = max(1.4826 MAD, 0.02 |M|, print quantum), so that a constant stretch or a coarsely printed one has a scale. The lag keeps the
    last 5 records, which rules compare with M, out of it. Source: CATALOGUE of rules, shared machinery; the floor of 2 % and the
    quantum are measured on public logs (bfloat16 losses have a MAD of 0).
    """
    n, first = len(x), BASELINE_MINIMUM - 1 + lag  # the first record that has a baseline
    base = Baseline(np.empty(n), np.empty(n), np.empty(n))
    for column in base:
        column[:first] = np.nan
    exact = min(n, max(BASELINE_EXACT, BASELINE_WINDOW - 1 + lag))
    if n > first:
        before = np.full(BASELINE_WINDOW - BASELINE_MINIMUM, np.inf)  # the first windows are not full
        head = Baseline(*(column[:exact] for column in base))
        _fill(np.concatenate((before, x[: exact - lag])), 1, first, BASELINE_MINIMUM, head)
    if n > exact:
        start = exact - (BASELINE_WINDOW - 1 + lag)
        _fill(x[start : n - lag], BASELINE_STRIDE, exact, BASELINE_WINDOW, base)
    return base


def _fill(x: Floats, stride: int, first: int, width: int, base: Baseline) -> None:
    """Write the baselines of the windows of `x`, `stride` apart, into records `first` on; each one serves `stride` records.

    The first window holds `width` values, behind infinities, each that follows one more, until they are full.
    """
    n = len(base.median)

    def write(start: int, rows: Floats) -> None:
        widths = np.minimum(width + start + np.arange(len(rows)), BASELINE_WINDOW)
        at = first + start * stride
        stop = min(n, at + len(rows) * stride)
        for column, values in zip(base, _described(rows, widths), strict=True):
            column[at:stop] = np.repeat(values, stride)[: stop - at] if stride > 1 else values

    windows(x, BASELINE_WINDOW, write, stride)


def prefixes(x: Floats, widths: Ints) -> Floats:
    """The first widths[r] values of x, sorted, in row r, and +inf behind them (and for NaN); shape (len(widths), widths.max())."""
    most = int(widths.max())
    return np.sort(np.where(np.arange(most) < widths[:, np.newaxis], np.fmin(x[:most], np.inf), np.inf), axis=1)


def prefix_median(rows: Floats, widths: Ints) -> Floats:
    """The median of the first widths[r] values of each sorted row (one width: of all rows)."""
    at = np.arange(len(rows))
    high = rows[at, widths // 2]
    return np.where(widths % 2 == 1, high, _middle(rows[at, (widths - 1) // 2], high))


def _described(rows: Floats, widths: Ints) -> Baseline:
    """M, S and the 95th percentile of the first widths[r] values of each sorted row; what is behind them is +inf."""
    median = prefix_median(rows, widths)
    with np.errstate(over="ignore", invalid="ignore"):
        mad = prefix_median(np.sort(np.abs(rows - median[:, np.newaxis]), axis=1), widths)
        scale = np.maximum(MAD_TO_SIGMA * mad, 0.02 * np.abs(median))
        middle = rows[:, _MIDDLE[1]] - rows[:, _MIDDLE[0]]
        coarse = np.flatnonzero(~((middle > 0) & (middle <= scale)))  # elsewhere no quantum is larger than the scale
        if len(coarse):
            gaps = np.diff(rows[coarse], axis=1)
            quantum = np.where(gaps > 0, gaps, np.inf).min(axis=1)
            scale[coarse] = np.maximum(scale[coarse], np.where(np.isinf(quantum), 0.0, quantum))
    return Baseline(median, scale, rows[np.arange(len(rows)), np.ceil(0.95 * widths).astype(np.int64) - 1])


def schedule(n: int) -> Ints:
    """The record counts at which trends are judged: ceil(50 x 1.05^k) up to n, and n itself. One schedule for every judge."""
    if n <= 0:
        return np.empty(0, np.int64)
    counts = _counts(n)
    return np.append(counts[counts < n], n)


@lru_cache(maxsize=16)
def _counts(n: int) -> Ints:
    """ceil(50 x 1.05^k) up to n; unlike `schedule`, without n itself: what holds at n holds however long the log grows."""
    steps = max(0, math.ceil(math.log(max(n / SCHEDULE_START, 1), 1.05))) + 1
    counts = distinct(np.ceil(SCHEDULE_START * 1.05 ** np.arange(steps)).astype(np.int64))[0]
    counts = counts[counts <= n]
    counts.flags.writeable = False
    return counts


@lru_cache(maxsize=1)
def scheduled_counts() -> frozenset[int]:
    """The counts of the common schedule up to ten billion records, more than a log may hold."""
    return frozenset(_counts(10**10).tolist())


def renewals(n: int, first: int) -> Ints:
    """The record counts at which a slowly moving statistic is renewed: each from `first` to 50, then the common schedule."""
    return np.append(np.arange(first, min(n + 1, SCHEDULE_START)), _counts(n))


def block_medians(x: Floats, blocks: int = TREND_BLOCKS) -> Floats:
    """Medians of at most `blocks` equal stretches of x (all of x when it is no longer); the remainder is left out at the start."""
    if len(x) <= blocks:
        return x
    width = len(x) // blocks
    half = width // 2
    rows = np.partition(
        x[len(x) - width * blocks :].reshape(blocks, width), half, axis=1
    )  # by one place, as in `median`
    return rows[:, half] if width % 2 else _middle(rows[:, :half].max(axis=1), rows[:, half])


@lru_cache(maxsize=2 * TREND_BLOCKS)
def _pairs(n: int) -> tuple[Ints, Ints, Floats]:
    """The indices i < j of all pairs of n points, and j - i: the same for every trend of a run, so they are made once."""
    i, j = np.triu_indices(n, 1)
    return i, j, (j - i).astype(np.float64)


def distinct(x: NDArray[T]) -> tuple[NDArray[T], Ints]:
    """The distinct values of x in order, and how often each occurs. As np.unique, which loads the masked arrays too."""
    values = np.sort(x)
    starts = np.flatnonzero(np.concatenate(([True], values[1:] != values[:-1]))[: len(values)])
    return values[starts], np.diff(np.append(starts, len(values)))


def median(x: ArrayLike) -> float:
    """The median of all values of x; NaN when x is empty or holds one.

    As np.median, which is several times slower on short arrays and loads the masked arrays, a tenth of the cold start.
    """
    values = np.array(x, dtype=np.float64).ravel()
    n = len(values)
    half = n // 2
    if not half:
        return float(values[0]) if n else math.nan
    if n < SHORT:
        values.sort()
        below, last = values.item(half - 1), values.item(n - 1)
    else:
        values.partition(half)  # by one place it is several times as quick as by two
        below, last = float(values[:half].max()), float(values[half:].max())
    if math.isnan(last):  # NaN is sorted to the end
        return math.nan
    return values.item(half) if n % 2 else below / 2 + values.item(half) / 2  # as _middle


def condensed(x: Floats, width: int) -> Floats:
    """The medians of consecutive stretches of `width` records; the remainder is left out at the end. Long series are looked at so."""
    return row_median(np.sort(x[: len(x) // width * width].reshape(-1, width), axis=1))


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


def thinned(x: NDArray[T], most: int = THINNED) -> NDArray[T]:
    """At most about `most` evenly spaced values of x."""
    return x[:: max(1, -(-len(x) // most))]


def difference_noise(x: Floats) -> float:
    """The robust standard deviation of x about its local level, from successive differences; 0 for fewer than 2 values.

    Differences of neighbours cancel a trend; their standard deviation is sqrt(2) times that of the noise (von Neumann 1941).
    """
    if len(x) < 2:
        return 0.0
    apart = max(1, -(-(len(x) - 1) // THINNED))
    return STEP_TO_SIGMA * median(np.abs(x[1::apart] - x[:-1:apart]))


def noise_so_far(x: Floats, first: int = 9) -> Floats:
    """`difference_noise` of the records up to each record, shape (n,); +inf before the `first` record has come.

    Renewed at every record up to 50 and then on the common schedule.
    """
    return noise_renewed(x, first).each(len(x))


def noise_renewed(x: Floats, first: int = 9) -> Renewed:
    """`noise_so_far`, as it was renewed."""
    steps = np.abs(np.diff(x))
    counts = renewals(len(x), first)
    if len(steps) < SHORT and bool(np.isfinite(steps).all()):
        return Renewed(counts, STEP_TO_SIGMA * np.array(_growing_medians(steps.tolist(), (counts - 1).tolist())))
    early = counts[counts <= SCHEDULE_START] - 1
    medians = prefix_median(prefixes(steps, early), early).tolist() if len(early) else []
    medians += [median(thinned(steps[: count - 1])) for count in counts[len(early) :].tolist()]
    return Renewed(counts, STEP_TO_SIGMA * np.array(medians))


def _growing_medians(values: list[float], widths: list[int]) -> list[float]:
    """The medians of the first `widths` values each, widths ascending: of few values quicker than by arrays."""
    medians: list[float] = []
    ordered: list[float] = []
    for width in widths:
        for value in values[len(ordered) : width]:
            insort(ordered, value)
        high = ordered[width // 2]
        medians.append(high if width % 2 else ordered[width // 2 - 1] / 2 + high / 2)
    return medians


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
        total, start, size = float(sums[-1]), start + size, min(2 * size, _ROWS)
    return None


def runs_of(mask: Bools) -> list[tuple[int, int]]:
    """The stretches of True as (start, stop), stop exclusive."""
    if not len(mask):
        return []
    edges = (np.flatnonzero(mask[1:] != mask[:-1]) + 1).tolist()
    edges = [*([0] if mask[0] else ()), *edges, *([len(mask)] if mask[-1] else ())]
    return list(zip(edges[::2], edges[1::2], strict=True))


def first_run(mask: Bools, length: int) -> tuple[int, int] | None:
    """The first stretch of at least `length` True, as (start, stop)."""
    return next(((a, b) for a, b in runs_of(mask) if b - a >= length), None)


def last_run(mask: Bools) -> tuple[int, int] | None:
    """The stretch of True that reaches the end: a state that still holds, and since when."""
    if not len(mask) or not mask[-1]:
        return None
    false = np.flatnonzero(~mask)
    return (int(false[-1]) + 1 if len(false) else 0), len(mask)


def student_limit(z: float, df: float) -> float:
    """The limit of Student's t with `df` degrees of freedom that is passed as rarely as `z` is by a normal law.

    Cornish-Fisher expansion (Abramowitz and Stegun 26.7.5), good to a few percent from 4 degrees on; fewer count as 4.
    """
    v = max(df, 4.0)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / v + second / v**2 + third / v**3


def serial_correlation(x: Floats, most: int = THINNED) -> float:
    """The correlation r of neighbours in x, whatever its trend, from its last `most` values; 0 when it cannot be told from none.

    Of an AR(1) series the differences have the correlation -(1 - r) / 2 at lag 1. They are cut off at 3 robust standard deviations,
    so that jumps and outliers do not count. The standard error of r, where there is no correlation, is 2 sqrt(1 / 2n) (Bartlett
    1946); only 3 of them count as one, and
    no fewer than 32 differences. At most 0.99.
    """
    step = np.diff(x[-most:])
    cut = 3 * MAD_TO_SIGMA * median(np.abs(step)) if len(step) else 0.0
    step = np.clip(step, -cut, cut)
    whole = math.fsum(step * step)
    if len(step) < SERIAL_MINIMUM or whole == 0:
        return 0.0
    r = 1 + 2 * math.fsum(step[1:] * step[:-1]) / whole
    return min(r, 0.99) if r > 3 * math.sqrt(2 / len(step)) else 0.0


def print_quantum(x: Floats, most_digits: int = 6) -> float:
    """The step in which values were printed: 10^-d for the fewest decimals d that spell all of x; 0 when more than `most_digits`."""
    some = thinned(x)
    for digits in range(most_digits + 1):
        if (np.abs(np.round(some, digits) - some) <= 1e-12 * np.abs(some)).all():
            return float(10.0**-digits)
    return 0.0


def is_running_sum(x: Floats) -> bool:
    """True when x looks like a sum since the start, or since the start of each epoch: it rises by its first value, again and again.

    It falls at most in one record of ten, and then to one to three rises; what it rises by does not grow, and it reaches eight rises
    and more. A noisy loss falls in half of its records; one that diverges starts far above its first rise. 48 records at least.
    """
    if len(x) < 48:
        return False
    steps = np.diff(x)
    falls = steps < 0
    rises = steps[~falls]
    if falls.mean() > 0.1 or not rises.min() > 0:
        return False
    usual, quarter = median(rises), len(rises) // 4
    begins = np.append(x[0], x[1:][falls])
    steady = median(rises[-quarter:]) <= 2 * median(rises[:quarter]) and float(x.max()) >= 8 * usual
    return steady and bool((begins >= 0.3 * usual).all() and (begins <= 3 * usual).all())


def is_running_mean(x: Floats) -> bool:
    """True when x looks like a mean since the start: its steps shrink as 1/n (a single record can hardly move it any more).

    n times the step from record n-1 to n is then the noise of the records themselves, as large at the end as at the start: its median
    is compared over four quarters of the series, which steps of noisy records (growing with n) and of smooth curves do not pass.
    48 records at least.
    """
    if len(x) < 48:
        return False
    at = thinned(np.arange(1, len(x) - 1), 4 * THINNED)
    steps, following = x[at] - x[at - 1], x[at + 1] - x[at]
    medians = [median(quarter) for quarter in np.array_split(np.abs(steps) * at, 4)]
    turns = float((np.sign(steps) != np.sign(following)).mean())
    return turns > 0.3 and 0 < max(medians) <= 2 * min(medians)
