"""What several families share: a state that holds to the end, a level over a window, and a trend that is clear."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from trainproof import stats
from trainproof.frame import Frame, Series
from trainproof.rules.registry import CannotTell
from trainproof.stats import Bools, Floats, Ints


class Resume(NamedTuple):
    """Indices of a series at a resume: where the stretch before began, the first point after, and where that stretch ends."""

    begin: int
    at: int
    end: int

    @property
    def known(self) -> int:
        """The point at which the resume is known: the second one, since a line by itself may be out of place."""
        return min(self.at + 1, self.end - 1)


def resumes(frame: Frame, series: Series) -> list[Resume]:
    """The resumes of the run that have points of `series` on both sides."""
    starts = [segment.start for segment in frame.segments]
    edges = [*np.searchsorted(series.step, starts).tolist(), len(series)]
    triples = zip(edges, edges[1:], edges[2:], strict=False)
    return [Resume(begin, at, end) for begin, at, end in triples if begin < at < end]


class Lasting(NamedTuple):
    """A state that still holds: the index at which it began, and the one at which it had held long enough to be told."""

    since: int
    told: int


def lasting(state: Bools, records: int) -> Lasting | None:
    """The stretch of True that reaches the end, when it is at least `records` long."""
    run = stats.last_run(state)
    return Lasting(run[0], run[0] + records - 1) if run and run[1] - run[0] >= records else None


def holds_since(counts: Sequence[int], holds: Callable[[int], bool]) -> int | None:
    """The first of the record counts from which on `holds` is true at every count to the last; None when it is not at the last."""
    since = None
    for count in reversed(counts):
        if not holds(count):
            break
        since = count
    return since


def level(x: Floats, width: int) -> tuple[Ints, Floats]:
    """(index of the last record, median) of windows of `width` records: each up to record 2,048, then every 16th."""
    exact = stats.BASELINE_EXACT
    at, median = stats.trailing_median(x[:exact], width)
    if len(x) <= exact:
        return at, median
    later, rest = stats.trailing_median(x[exact - width + stats.BASELINE_STRIDE :], width, stats.BASELINE_STRIDE)
    return np.append(at, later + exact - width + stats.BASELINE_STRIDE), np.append(median, rest)


def finite(frame: Frame, name: str, records: int) -> Series:
    """The finite points of a metric. Raises CannotTell for fewer than `records`."""
    series = frame[name].finite
    if len(series) < records:
        raise CannotTell(f"{len(series)} finite records of {name}, needs {records}")
    return series


def rises_no_more(frame: Frame, series: Series, since: int, z: float) -> int | None:
    """The point of `series`, `since` or later, from which on the reward had no clear rise (Mann-Kendall Z of its block medians above `z`);
    None while it rises.

    Looked at on the common schedule, so that a guardian says it at the same record.
    """
    if "reward" not in frame or not len(frame["reward"].finite):
        return since
    reward = frame["reward"].finite
    first = int(reward.upto(series.step[since : since + 1])[0]) + 1
    counts = [first, *(int(n) for n in stats.renewals(len(reward), stats.SCHEDULE_START) if n > first)]
    count = holds_since(counts, lambda n: stats.trend_z(reward.value[:n]) <= z)
    if count is None:
        return None
    return since if count == first else int(series.upto(reward.step[count - 1 : count])[0])
