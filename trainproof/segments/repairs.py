"""What is told of what was put right."""

from __future__ import annotations

import numpy as np

from trainproof.frame import Floats, Ints, Repair, Series
from trainproof.segments.order import Bools, later_wins

#: share of steps that were logged again with another value from which on it is told
REPEATS_SHARE = 0.10
#: median absolute deviation to standard deviation of a normal distribution
MAD_TO_SIGMA = 1.4826


def told(kind: str, main: Series, at: Ints, detail: str) -> Repair:
    """The repair of the points `at` of the main series, in the order of the log."""
    steps = main.step[at]
    return Repair(kind, int(steps.min()), int(steps.max()), int(main.line[at[0]]), len(at), len(main), detail)


def duplicates_told(main: Series, repeated: Bools) -> list[Repair]:
    at = np.flatnonzero(repeated)
    return [told("duplicates", main, at, "the same step with the same value")] if len(at) else []


def other_values(main: Series) -> list[Repair]:
    """Steps that were logged several times with different values, when they are many (the series has no exact repeats)."""
    order = np.argsort(main.step, kind="stable")
    again = np.sort(order[1:][np.diff(main.step[order]) == 0])
    if len(again) <= REPEATS_SHARE * len(main):
        return []
    return [told("repeats", main, again, "the same step with another value; the last one was kept")]


def disorder(main: Series) -> Repair:
    at = np.flatnonzero(main.step[1:] < main.step[:-1]) + 1
    detail = "the lines are out of order; they were sorted by step"
    whole = told("disorder", main, np.arange(len(main)), detail)
    return whole._replace(line=int(main.line[at[0]]), count=len(at))


def overlap_of(before: Series, after: Series, of: int) -> Repair:
    """What the resume logged again: how many records, and by how much they differ in units of the noise before."""
    resumed, last = int(after.step[0]), int(before.step.max())
    old = later_wins(before.take(before.step >= resumed))
    new = later_wins(after.take((after.step >= resumed) & (after.step <= last)))
    mine, theirs = old.align(new)
    a, b = old.value[mine], new.value[theirs]
    with np.errstate(invalid="ignore", over="ignore"):
        differ = np.abs(a - b)
    changed = int(((a != b) & ~(np.isnan(a) & np.isnan(b))).sum())
    detail = f"resumed at step {resumed} after step {last}; {changed} of {len(mine)} repeated records differ"
    noise = _noise(before.value)
    if changed and noise > 0:
        detail += f", by at most {float(np.max(differ[np.isfinite(differ)], initial=0.0)) / noise:.3g} x the noise"
    return Repair("overlap", resumed, last, int(after.line[0]), len(old), of, detail)


def _noise(value: Floats) -> float:
    """Standard deviation of the noise, robustly, from the differences of neighbours (von Neumann 1941); 0 when unknown."""
    with np.errstate(invalid="ignore", over="ignore"):
        step = np.abs(np.diff(value))
    step = step[np.isfinite(step)]
    middle = float(np.partition(step, len(step) // 2)[len(step) // 2]) if len(step) else 0.0
    return MAD_TO_SIGMA * middle / 2**0.5
