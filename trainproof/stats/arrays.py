"""What is asked of any array: its median, its distinct values, its stretches."""

from __future__ import annotations

import math
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
T = TypeVar("T", bound=np.generic)
#: standard deviation of a normal law over its median absolute deviation
MAD_TO_SIGMA = 1.4826
#: standard error of a median over that of a mean, normal law (sqrt(pi / 2))
MEDIAN_SE = 1.2533
#: a robust scale of a long prefix is taken from at most this many evenly spaced values (2 % standard error)
THINNED = 4096
#: values below which sorting them all is quicker than selecting some
SHORT = 400
#: values looked at in one go: they stay in the processor's cache
ROWS = 8192


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
    return values.item(half) if n % 2 else below / 2 + values.item(half) / 2  # as middle


def middle(low: Floats, high: Floats) -> Floats:
    """The mean of both; halves first, so that two values near the largest float do not overflow."""
    return low / 2 + high / 2


def distinct(x: NDArray[T]) -> tuple[NDArray[T], Ints]:
    """The distinct values of x in order, and how often each occurs. As np.unique, which loads the masked arrays too."""
    values = np.sort(x)
    starts = np.flatnonzero(np.concatenate(([True], values[1:] != values[:-1]))[: len(values)])
    return values[starts], np.diff(np.append(starts, len(values)))


def thinned(x: NDArray[T], most: int = THINNED) -> NDArray[T]:
    """At most about `most` evenly spaced values of x."""
    return x[:: max(1, -(-len(x) // most))]


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
