"""Family TP90: time. TP905 to TP908, on memory, ends and ranks, are in `machines`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from trainproof import stats
from trainproof.frame import Frame, Series
from trainproof.rules import machines  # noqa: F401  registers TP905 to TP908
from trainproof.rules.registry import FAIL, INFO, WARN, CannotTell, Sighting, evidence, rule, sighting
from trainproof.rules.staircase import epoch_edges
from trainproof.rules.states import finite, holds_since, lasting, level
from trainproof.rules.timing import step_times
from trainproof.stats import Floats, Ints
from trainproof.thresholds import ThroughputThresholds
from trainproof.verdict import Severity


class _Stalls(NamedTuple):
    """Very long steps: their indices, their share of the time, the median step time, how far apart they are, and whether regularly."""

    at: Ints
    share: float
    median: float
    lag: int
    regular: bool


@rule(
    "TP901",
    "throughput-drop",
    severity=FAIL,
    fix="Look at what changed on the machine at that step: another job, a throttled or swapped-out device, a slow disk, longer batches.",
)
def throughput_drop(frame: Frame, t: ThroughputThresholds) -> Iterator[Sighting]:
    """Steps take twice as long as they did, and it lasts.

    What it does
    Compares the median step time of 20 records with that of records 20 to 120.

    Why it matters
    The rest of the run costs twice as much; a machine that slows down often fails next.

    Formula
    Median of 20 >= 2 x the reference for 40 records to the end: WARN; >= 20 x: FAIL (WARN for reinforcement learning, where answers grow).

    False positives
    A slow stretch that ended is not told. Longer sequences on purpose: not told while the throughput in tokens stands.

    What to try
    Watch device clocks, memory and disk of the machine at that time.
    """
    times = _enough(frame, t.drop_min_records)
    begin, end = t.drop_reference
    reference = stats.median(times.value[begin:end])
    at, median = level(times.value, t.drop_width)
    for severity, limit in ((FAIL, t.drop_fail), (WARN, t.drop_warn)):
        slow = (median >= limit * reference) & (at >= end + t.drop_width)
        state = lasting(slow, 1)
        since = at[state.since] if state else len(times)
        told = at[np.searchsorted(at, since + t.drop_records - 1)] if since + t.drop_records <= at[-1] + 1 else None
        if told is not None:
            said: Severity = WARN if frame.objective == "rl" else severity
            yield sighting(
                said,
                f"a step takes {median[-1] / reference:.2g} x as long as at the start (medians {reference:.4g} and {median[-1]:.4g}), since step "
                f"{times.step[since]}.",
                times,
                first=int(since),
                last=len(times) - 1,
                flagged=int(told),
                threshold={"times": limit, "records": t.drop_records},
            )
            return


def _enough(frame: Frame, records: int) -> Series:
    """The step times. Raises CannotTell for too few."""
    times = step_times(frame)
    if len(times) < records:
        raise CannotTell(f"{len(times)} step times, needs {records}")
    return times


@rule(
    "TP902",
    "step-time-creep",
    severity=FAIL,
    fix="Look for a list that grows every step (losses kept with their graph, hooks, metrics), a growing context, or a leak.",
)
def step_time_creep(frame: Frame, t: ThroughputThresholds) -> Iterator[Sighting]:
    """Steps become slower and slower.

    What it does
    Compares the last tenth of the step times with the first, and looks for a trend; by epochs where several are known.

    Why it matters
    A graph or a list that grows with each step ends in memory or in days.

    Formula
    At the common judging points from 60 records on (10 epochs), the first 20 left out: medians of the last and first tenth >= 1.3 x and
    Mann-Kendall Z > 4 (2.5 under 30 epochs), to the end: WARN; >= 3 x: FAIL (WARN for reinforcement learning, where answers grow, and
    where half of the rise lies between two neighbours of ten stretches).

    False positives
    Epochs sorted by length are compared epoch by epoch. A context that grows as planned stays under 1.14 x in public logs. A jump is
    TP901's and is told here only when both tenths show it.

    What to try
    Profile one step at the start and one now.
    """
    times = _enough(frame, t.creep_epochs)
    if not _creeps_at_all(times.value, t):
        return
    series = _by_epoch(frame, times, t)
    skip = t.creep_skip if series is times else 0
    least = t.creep_min_records if series is times else t.creep_epochs
    if len(series) < least:
        raise CannotTell(f"{len(series)} step times, needs {least}")
    x = series.value
    counts = [int(n) for n in stats.schedule(len(x)) if n >= least] if series is times else range(least, len(x) + 1)
    for severity, limit in ((FAIL, t.creep_fail), (WARN, t.creep_warn)):
        if not _creeps_by(x, skip, limit, t, len(x)):
            continue
        since = holds_since(counts, partial(_creeps_by, x, skip, limit, t))
        tenth = max(1, (len(x) - skip) // 10)
        first, last = stats.median(x[skip : skip + tenth]), stats.median(x[-tenth:])
        jumps = _jumps(x[skip:], t)
        said: Severity = WARN if frame.objective == "rl" or jumps else severity
        yield sighting(
            said,
            f"a step went from {first:.4g} to {last:.4g} ({last / first:.2g} x; medians of the first and last tenth of {len(x)} "
            f"{'records' if series is times else 'epochs'}){'' if jumps else ', rising all along'}.",
            series,
            first=skip,
            last=len(series) - 1,
            flagged=(since or len(x)) - 1,
            threshold={"times": limit, "z": t.creep_z},
        )
        return


def _creeps_at_all(x: Floats, t: ThroughputThresholds) -> bool:
    """A cheap look: whether some tenth of the step times, the first left out, stands well above some other."""
    tenths = stats.block_medians(stats.thinned(x), 10)
    return len(tenths) < 10 or float(tenths.max()) >= t.creep_look * float(tenths.min())


def _by_epoch(frame: Frame, times: Series, t: ThroughputThresholds) -> Series:
    """The median step time of each whole epoch, where there are several with several records; else the step times as they are."""
    try:
        edges = epoch_edges(frame, times)
    except CannotTell:
        return times
    whole = [(int(a), int(b)) for a, b in zip(edges[:-2], edges[1:-1], strict=True) if b - a >= t.creep_epoch_records]
    if len(whole) < t.creep_epochs:
        return times
    at = np.array([b for _, b in whole], np.int64)  # an epoch is known to be over with the first record of the next
    medians = np.array([stats.median(times.value[a:b]) for a, b in whole])
    return Series(times.name, times.step[at], medians, times.line[at])


def _jumps(x: Floats, t: ThroughputThresholds) -> bool:
    """Whether the times rose at one place: half of the rise or more lies between two neighbours of ten stretches."""
    height = np.log(stats.block_medians(x, 10))
    return bool(np.diff(height).max() >= t.creep_jump * (height[-1] - height[0]))


def _creeps_by(values: Floats, skip: int, limit: float, t: ThroughputThresholds, count: int) -> bool:
    x = values[skip:count]
    tenth = max(1, len(x) // 10)
    if len(x) < 3 or stats.median(x[-tenth:]) < limit * stats.median(x[:tenth]):
        return False
    return stats.trend_z(x) > (t.creep_z if len(x) >= t.creep_few else t.creep_z_few)


@rule(
    "TP903",
    "stalls",
    severity=WARN,
    fix="Save and evaluate less often or in the background; look at shared storage and the data loader at the cited steps.",
)
def stalls(frame: Frame, t: ThroughputThresholds) -> Iterator[Sighting]:
    """A good part of the time goes into a few very long steps.

    What it does
    Adds up the time of the steps that took three times the median or more, and looks how far apart they are.

    Why it matters
    The devices stand idle meanwhile.

    Formula
    At the common judging points their share of the time is >= 10 %, to the end: WARN; INFO when they come in regular distances (the message
    names a declared save or evaluation interval) or at most 20 steps apart (the optimizer's or accumulation's own rhythm).

    False positives
    Evaluations and checkpoints take time by design: regular stalls are INFO. The first 20 records (start-up, compilation) are left out.

    What to try
    Log what runs at those steps.
    """
    times = _enough(frame, t.stall_min_records)
    seen = _stalls(times, t, len(times))
    if seen is None:
        return
    counts = [int(n) for n in stats.schedule(len(times)) if n >= t.stall_min_records]
    since = holds_since(counts, lambda n: (then := _stalls(times, t, n)) is not None and then.regular <= seen.regular)
    yield sighting(
        INFO if seen.regular else WARN,
        f"{seen.share:.0%} of the time went into {len(seen.at)} steps of more than {t.stall_times:g} x the median ({seen.median:.4g})"
        f"{f', {seen.lag} steps apart{_interval(frame, seen.lag, t)}' if seen.regular else ', at irregular distances'}.",
        times,
        first=int(seen.at[0]),
        last=int(seen.at[-1]),
        flagged=(since or len(times)) - 1,
        cite=seen.at[:5].tolist(),
        threshold={"share": t.stall_share, "times": t.stall_times},
    )


def _stalls(times: Series, t: ThroughputThresholds, count: int) -> _Stalls | None:
    """The long steps among the first `count`, where they take a good part of the time."""
    x = times.value[t.stall_skip : count]
    median = stats.median(stats.thinned(x))
    long = x > t.stall_times * median
    share = float(x[long].sum() / x.sum())
    if int(long.sum()) < t.stall_records or share < t.stall_share:
        return None
    at = np.flatnonzero(long) + t.stall_skip
    distances = np.diff(times.step[at])
    lag = int(stats.median(distances))
    regular = float(np.mean(np.abs(distances - lag) <= t.stall_regular * lag)) >= t.stall_regular_share
    return _Stalls(at, share, median, lag, regular or lag <= t.stall_lag)


def _interval(frame: Frame, lag: int, t: ThroughputThresholds) -> str:
    """Which declared interval the lag is."""
    for name, what in (("save_steps", "saving"), ("eval_steps", "evaluation")):
        declared = frame.facts.number(name)
        if declared and abs(lag - declared) <= t.stall_regular * declared:
            return f", the interval of {what}"
    return ""


@rule(
    "TP904",
    "data-bound",
    severity=WARN,
    needs=("data_time", "step_time"),
    min_records=20,
    fix="More loader workers, prefetching, a faster disk, or preprocessing done once and stored.",
)
def data_bound(frame: Frame, t: ThroughputThresholds) -> Iterator[Sighting]:
    """The devices wait for data.

    What it does
    Adds up the time spent waiting for the data loader, and compares it with the whole time.

    Why it matters
    A third of the time is a third of the cost.

    Formula
    At the common judging points waiting time / whole time >= 0.3 over the records so far, the first left out, to the end: INFO; WARN when
    waiting also grew to 3 x its first quarter, or the share is above `data_warn` (never by default). A step time that does not contain the
    waiting is added to it.

    False positives
    A healthy public run spends 92 % of its time waiting and learns all the same: slow, not wrong, hence INFO.

    What to try
    Run the loader alone and time it.
    """
    waiting, times = finite(frame, "data_time", t.data_min_records), frame["step_time"].finite
    mine, theirs = waiting.align(times)
    wait, whole = waiting.value[mine][1:], times.value[theirs][1:]
    if len(wait) < t.data_min_records - 1 or wait.min() < 0 or whole.min() < 0:
        raise CannotTell("too few records with both a step time and a data time")
    whole = whole + wait if (wait > whole).any() else whole
    share = np.cumsum(wait) / np.maximum(np.cumsum(whole), 1e-300)
    if share[-1] < t.data_share:
        return
    quarter = len(wait) // 4
    first, last = stats.median(wait[:quarter]), stats.median(wait[-quarter:])
    grew = _grew(wait, t, len(wait))
    warns = grew or share[-1] >= t.data_warn

    def holds(count: int) -> bool:
        n = count - 1  # the first record is left out
        return share[n - 1] >= t.data_share and (not warns or share[n - 1] >= t.data_warn or _grew(wait, t, n))

    counts = stats.renewals(len(wait) + 1, t.data_min_records).tolist()
    since = holds_since(sorted({*counts, len(wait) + 1}), holds) or len(wait) + 1
    told = waiting.take(mine).take(slice(1, None))
    yield sighting(
        WARN if warns else INFO,
        f"{share[-1]:.0%} of the time is spent waiting for data{f'; the wait grew from {first:.4g} to {last:.4g}' if grew else ''}.",
        told,
        first=0,
        last=len(told) - 1,
        flagged=since - 2,
        threshold={"share": t.data_share},
        more=evidence(times, [int(theirs[-1])]),
    )


def _grew(wait: Floats, t: ThroughputThresholds, count: int) -> bool:
    """Whether the last quarter of the first `count` waits is several times the first quarter."""
    quarter = count // 4
    return stats.median(wait[count - quarter : count]) >= t.data_grown * stats.median(wait[:quarter])
