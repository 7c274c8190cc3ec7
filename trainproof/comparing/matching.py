"""Which records of two runs belong together: on equal positions, or over the intervals of the run that logs more rarely."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

from trainproof import stats
from trainproof.comparing.reference import Curve
from trainproof.frame import Floats, Ints

#: share of the rarer run's records on equal positions from which on only those are compared
EQUAL_SHARE = 0.5
#: the part of a baseline's values that makes a scale for those that have no ratio
RANGE = (0.05, 0.95)
#: ratios are cut off here: what follows is computed with squares and exponentials of them
LARGEST = 700.0
#: records needed to tell an averaged loss from a single one by its noise
AVERAGED_RECORDS = 8


class Pairs:
    """Matched finite values, shape (n,): position, the run's and the baseline's value, and the step and line of each.

    `how` is "steps" (equal positions), "intervals" (of the run that logs more rarely) or "stretches" (of a stored summary). `ratio` is
    the run over the baseline as a logarithm, or where values are not positive as (run - baseline) / `scale`.
    """

    def __init__(
        self, x: Floats, run: Floats, base: Floats, logged: tuple[Ints, Ints], base_logged: tuple[Ints, Ints], how: str
    ) -> None:
        self.x, self.run, self.base, self.how = x, run, base, how
        self.step, self.line = logged
        self.base_step, self.base_line = base_logged

    def __len__(self) -> int:
        return len(self.x)

    @cached_property
    def scale(self) -> float | None:
        """None where all values are positive, so that ratios mean something; else the range of the baseline's middle 90 %."""
        if not len(self) or (self.run.min() > 0 and self.base.min() > 0):
            return None
        with np.errstate(all="ignore"):
            low, high = np.quantile(self.base, RANGE)
            return float(high - low)

    @property
    def measurable(self) -> bool:
        """Whether a distance between the two means something: all values are positive, or the baseline has a range."""
        return self.scale is None or 0 < self.scale < math.inf

    @cached_property
    def ratio(self) -> Floats:
        """log(run / baseline), or (run - baseline) / scale, shape (n,); 0 exactly where the values are equal."""
        with np.errstate(all="ignore"):
            ratio = np.log(self.run / self.base) if self.scale is None else (self.run - self.base) / self.scale
        return np.clip(ratio, -LARGEST, LARGEST)

    def last(self, count: int) -> Pairs:
        """The last `count` pairs."""
        return self.take(slice(max(0, len(self) - count), None))

    def take(self, index: slice | Ints | stats.Bools) -> Pairs:
        return Pairs(
            self.x[index],
            self.run[index],
            self.base[index],
            (self.step[index], self.line[index]),
            (self.base_step[index], self.base_line[index]),
            self.how,
        )


_NO_VALUES, _NO_STEPS = np.empty(0), np.empty(0, np.int64)
NO_PAIRS = Pairs(_NO_VALUES, _NO_VALUES, _NO_VALUES, (_NO_STEPS, _NO_STEPS), (_NO_STEPS, _NO_STEPS), "steps")


Index = Ints | slice


def match(run: Curve, base: Curve) -> Pairs:
    """The matched records of the shared range; none when the ranges do not meet."""
    if not len(run.x) or not len(base.x):
        return NO_PAIRS
    if base.start is not None:
        return _stretches(run, base, base.start)
    mine, theirs = _equal(run.x, base.x)
    rarer = min(_shared(run.x, base.x), _shared(base.x, run.x))
    if len(run.x[mine]) >= EQUAL_SHARE * rarer and not _averaged(run, base, mine, theirs):
        return _pairs(run, run.value[mine], base, base.value[theirs], mine, theirs, "steps")
    return _intervals(run, base)


def _equal(x: Floats, y: Floats) -> tuple[Index, Index]:
    """Where the equal positions are."""
    common = min(len(x), len(y))
    if np.array_equal(x[:common], y[:common]):  # the same steps, or a prefix of them: spare the sort
        return slice(0, common), slice(0, common)
    _, mine, theirs = np.intersect1d(x, y, assume_unique=True, return_indices=True)
    return mine, theirs


def _shared(x: Floats, y: Floats) -> int:
    """How many of the positions x lie within the range of y."""
    lo, hi = np.searchsorted(x, [y[0], y[-1]], side="left"), np.searchsorted(x, [y[0], y[-1]], side="right")
    return int(hi[1] - lo[0])


def _averaged(run: Curve, base: Curve, mine: Index, theirs: Index) -> bool:
    """Whether the run that logs more rarely logs means over its interval: its noise is nearer to that of a mean than of a record."""
    rare, often = (run, base) if _spacing(run.x) >= _spacing(base.x) else (base, run)
    times = _spacing(rare.x) / _spacing(often.x)
    if times < 2 or min(len(rare.x), len(often.x)) < AVERAGED_RECORDS:
        return False
    equal = np.count_nonzero(run.value[mine] == base.value[theirs])
    return bool(2 * equal <= len(run.x[mine]) and 0 < _noise(rare.value) < _noise(often.value) / times**0.25)


def _spacing(x: Floats) -> float:
    return stats.median(np.diff(stats.thinned(x))) * len(stats.thinned(x)) / len(x) if len(x) > 1 else math.inf


def _noise(value: Floats) -> float:
    finite = value[np.isfinite(value) & (value > 0)]
    return stats.difference_noise(np.log(finite))


def _intervals(run: Curve, base: Curve) -> Pairs:
    """Each interval between two records of the rarer run, its value beside the level of the other one's records in it."""
    swapped = len(base.x) < len(run.x)
    rare, often = (base, run) if swapped else (run, base)
    edges = np.searchsorted(often.x, rare.x, side="right")
    before = 2 * rare.x[0] - rare.x[1] if len(rare.x) > 1 else -math.inf  # the first interval is as long as the second
    lo = np.searchsorted(often.x, np.append(before, rare.x[:-1]), side="right")
    inside = (rare.x >= often.x[0]) & (rare.x <= often.x[-1])
    kept = np.flatnonzero((edges > lo) & inside)
    averaged = 0 < _noise(rare.value) < _noise(often.value) / max(1.0, _spacing(rare.x) / _spacing(often.x)) ** 0.25
    level = _means if averaged else _medians
    values = level(often.value, lo[kept], edges[kept])
    if swapped:
        return _pairs(run, values, base, base.value[kept], edges[kept] - 1, kept, "intervals")
    return _pairs(run, run.value[kept], base, values, kept, edges[kept] - 1, "intervals")


def _stretches(run: Curve, base: Curve, start: Floats) -> Pairs:
    """The stretches of a summary that the run covers, each beside the median of the run's own records in it."""
    lo, hi = np.searchsorted(run.x, start, side="left"), np.searchsorted(run.x, base.x, side="right")
    kept = np.flatnonzero((hi > lo) & (run.x[0] <= start) & (run.x[-1] >= base.x))
    values = _medians(run.value, lo[kept], hi[kept])
    return _pairs(run, values, base, base.value[kept], hi[kept] - 1, kept, "stretches")


def _medians(value: Floats, lo: Ints, hi: Ints) -> Floats:
    if (hi - lo == 1).all():
        return value[lo]
    parts = [value[a:b] for a, b in zip(lo.tolist(), hi.tolist(), strict=True)]
    return np.array([_median(part[np.isfinite(part)]) for part in parts], np.float64)


def _median(part: Floats) -> float:
    return stats.median(part) if len(part) else math.nan


def _means(value: Floats, lo: Ints, hi: Ints) -> Floats:
    if (hi - lo == 1).all():
        return value[lo]
    parts = [value[a:b] for a, b in zip(lo.tolist(), hi.tolist(), strict=True)]
    return np.array(
        [math.fsum(part) / len(part) if np.isfinite(part).all() else math.nan for part in parts], np.float64
    )


def _pairs(run: Curve, values: Floats, base: Curve, levels: Floats, mine: Index, theirs: Index, how: str) -> Pairs:
    logged, base_logged = (run.step[mine], run.line[mine]), (base.step[theirs], base.line[theirs])
    pairs = Pairs(run.x[mine], values, levels, logged, base_logged, how)
    finite = np.isfinite(values) & np.isfinite(levels)
    return pairs if finite.all() else pairs.take(finite)
