"""The order of the points of a series: whether its steps rise, which points repeat another, which of a step is the last."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trainproof.frame import Ints, Series

Bools = NDArray[np.bool_]


def rises(step: Ints) -> bool:
    return bool((step[1:] > step[:-1]).all())


def repeats(series: Series) -> Bools:
    """Which points repeat an earlier one exactly: the same step with the same value (a NaN repeats a NaN)."""
    repeated = np.zeros(len(series), dtype=bool)
    if rises(series.step):
        return repeated
    bits = np.ascontiguousarray(series.value).view(np.int64)
    order = np.lexsort((bits, series.step))  # stable: of equal points the first in the log comes first
    same = (np.diff(series.step[order]) == 0) & (np.diff(bits[order]) == 0)
    repeated[order[1:][same]] = True
    return repeated


def _order(step: Ints) -> Ints:
    """Indices of the last record of each step, by step."""
    order = np.argsort(step, kind="stable")
    ordered = step[order]
    last: Ints = order[np.append(ordered[1:] != ordered[:-1], True)]
    return last


def later_wins(series: Series) -> Series:
    """The series by step; of several points of one step the one that was logged last."""
    return series if rises(series.step) else series.take(_order(series.step))


def all_later_wins(series: dict[str, Series]) -> dict[str, Series]:
    """The same for all series; those that were logged together share their steps and lines, before and after."""
    done: dict[tuple[int, int], tuple[Series, Ints]] = {}
    result = {}
    for name, points in series.items():
        key = (id(points.step), id(points.line))
        if key in done:
            first, order = done[key]
            result[name] = Series(name, first.step, points.value[order], first.line)
        elif rises(points.step):
            result[name] = points
        else:
            order = _order(points.step)
            result[name] = points.take(order)
            done[key] = (result[name], order)
    return result


def usual_distance(step: Ints) -> int:
    """The median of the distances by which the steps rise, at least 1."""
    distance = np.diff(step)
    rising = distance[distance > 0]
    return int(np.partition(rising, len(rising) // 2)[len(rising) // 2]) if len(rising) else 1
