"""TP905 to TP908: memory that grows or runs out, runs that stop early, and ranks that lag behind."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from trainproof import stats
from trainproof.frame import Frame, Series
from trainproof.rules.registry import FAIL, INFO, WARN, CannotTell, Sighting, evidence, rule, sighting
from trainproof.rules.states import finite, holds_since, lasting
from trainproof.thresholds import ThroughputThresholds
from trainproof.verdict import Severity

RANK = re.compile(
    r"(?:step_time|iter_time|time)[/_.](?:rank|gpu|worker)?_?(\d+)|(?:rank|gpu|worker)_?(\d+)[/_.](?:step_time|iter_time|time)"
)


@rule(
    "TP905",
    "memory-growth",
    severity=FAIL,
    needs=("memory",),
    min_records=20,
    fix="Look for tensors kept across steps (losses with their graph, cached activations, lists of outputs); detach what is logged.",
)
def memory_growth(frame: Frame, t: ThroughputThresholds) -> Iterator[Sighting]:
    """Memory grows with every step.

    What it does
    Looks for a trend of the logged memory in both halves of the run.

    Why it matters
    What grows ends in an out-of-memory error, usually at night.

    Formula
    At the common judging points from 20 records on: Mann-Kendall Z > 4 over the whole, Z > 2.5 in both halves, 10 % more at the end than at
    the start and 3 % more at the end than in the middle, to the end: WARN. When the line through the last half reaches the declared
    memory_limit before the planned steps: FAIL.

    False positives
    An allocator's peak rises until the longest sample has been seen: its second half stands still.

    What to try
    Take two memory snapshots a thousand steps apart and compare.
    """
    memory = finite(frame, "memory", t.memory_min_records)
    x = memory.value
    counts = sorted({*stats.renewals(len(x), t.memory_min_records).tolist(), len(x)})
    if not _grows(x, t):
        return
    since = holds_since(counts, lambda n: _grows(x[:n], t)) or len(x)
    full = _full_at(frame, memory, len(x))
    fails = full is not None and full <= (frame.total_steps or 0)
    if fails:
        since = holds_since(counts, lambda n: _grows(x[:n], t) and _in_time(frame, memory, n)) or since
    severity: Severity = FAIL if fails else WARN
    tenth = max(1, len(x) // 10)
    limit = f"; it reaches the limit of {frame.facts.number('memory_limit'):g} by step {full:.0f}" if fails else ""
    yield sighting(
        severity,
        f"memory went from {stats.median(x[:tenth]):.4g} to {stats.median(x[-tenth:]):.4g}, growing in both halves of the run{limit}.",
        memory,
        first=0,
        last=len(memory) - 1,
        flagged=since - 1,
        threshold={"growth": t.memory_growth, "z": t.memory_z},
    )


def _grows(x: stats.Floats, t: ThroughputThresholds) -> bool:
    n = len(x)
    tenth = max(1, n // 10)
    first, middle, last = (stats.median(x[a : a + tenth]) for a in (0, n // 2, n - tenth))
    if first <= 0 or last < (1 + t.memory_growth) * first or last < (1 + t.memory_half) * middle:
        return False
    halves = (x[: n // 2], x[n // 2 :])
    return stats.trend_z(x) > t.memory_z and all(stats.trend_z(half) > t.memory_z_half for half in halves)


def _full_at(frame: Frame, memory: Series, count: int) -> float | None:
    """The step at which the line through the last half of the first `count` records reaches the declared limit."""
    limit = frame.facts.number("memory_limit")
    if limit is None:
        return None
    half = slice(count // 2, count)
    step, value = (
        stats.thinned(memory.step[half].astype(np.float64), stats.TREND_BLOCKS),
        stats.thinned(memory.value[half], stats.TREND_BLOCKS),
    )
    slope = stats.theil_sen(step, value)
    return None if slope <= 0 else float(step[-1] + (limit - stats.median(value[-5:])) / slope)


def _in_time(frame: Frame, memory: Series, count: int) -> bool:
    full = _full_at(frame, memory, count)
    return full is not None and full <= (frame.total_steps or 0)


@rule(
    "TP906",
    "memory-near-limit",
    severity=WARN,
    needs=("memory",),
    facts=("memory_limit",),
    fix="Lower the batch or the longest length a little; fragmentation may take what is left.",
)
def memory_near_limit(frame: Frame, t: ThroughputThresholds) -> Iterator[Sighting]:
    """Memory stands at its limit.

    What it does
    Compares the highest logged memory with the declared limit.

    Why it matters
    The next longer sample, or fragmentation, ends the run.

    Formula
    memory >= 97 % of memory_limit in two records: WARN.

    False positives
    Allocators that reserve everything at the start log the reservation: log what is allocated instead.

    What to try
    Bound the length of samples.
    """
    memory, limit = finite(frame, "memory", 2), frame.facts.number("memory_limit")
    if limit is None:
        raise CannotTell("the declared memory limit is no positive number")
    near = np.flatnonzero(memory.value >= t.memory_near * limit)
    if len(near) >= 2:
        yield sighting(
            WARN,
            f"memory stands at {memory.value[near[1]] / limit:.1%} of its limit {limit:g} at step {memory.step[near[1]]}.",
            memory,
            first=int(near[0]),
            last=int(near[-1]),
            flagged=int(near[1]),
            threshold={"share": t.memory_near},
        )


@rule(
    "TP907",
    "truncated",
    severity=INFO,
    facts=("total_steps",),
    min_records=5,
    whole_run=True,
    fix="Check whether the job was stopped, preempted or is still running.",
)
def truncated(frame: Frame, t: ThroughputThresholds) -> Iterator[Sighting]:
    """The log ends before the planned steps.

    What it does
    Compares the last step with the planned steps.

    Why it matters
    A run that was killed leaves a log that looks like a finished one.

    Formula
    The last step is under 95 % of the planned steps and the log has no end marker: INFO.

    False positives
    A log that is still growing, and a copy inside a checkpoint, end early too; hence INFO.

    What to try
    Look at the job's own output.
    """
    total, main = frame.total_steps, frame.main
    if not total or main is None:
        raise CannotTell("the planned steps are not a positive number")
    if not frame.ended and int(main.step[-1]) < t.truncated_share * total:
        yield sighting(
            INFO,
            f"the log ends at step {main.step[-1]} of {total} planned.",
            main,
            first=len(main) - 1,
            last=len(main) - 1,
            threshold={"share": t.truncated_share},
        )


@rule(
    "TP908",
    "straggler-rank",
    severity=WARN,
    fix="Swap the node, look at its clocks, links and disk, and at whether its share of the data has longer samples.",
)
def straggler_rank(frame: Frame, t: ThroughputThresholds) -> Iterator[Sighting]:
    """One rank is slower than the others.

    What it does
    Compares the step time of each rank with the median over the ranks, record by record.

    Why it matters
    All ranks wait for the slowest one.

    Formula
    A rank's step time over the median of all ranks has a median of 20 >= 1.2, to the end: WARN.

    False positives
    Ranks that are slow in turn (uneven batches) do not keep a median of 20.

    What to try
    Swap two ranks: does the slowness go with the node or with the data?
    """
    ranks = [name for name in frame if RANK.fullmatch(name.lower())]
    if len(ranks) < t.rank_least:
        raise CannotTell("no step times of several ranks in the log")
    first = frame[ranks[0]]
    if any(not np.array_equal(frame[name].step, first.step) for name in ranks):
        raise CannotTell("the ranks' step times are not logged at the same steps")
    if len(first) < t.rank_records:
        raise CannotTell(f"{len(first)} records, needs {t.rank_records}")
    table = np.stack([frame[name].value for name in ranks])
    middle = np.median(table, axis=0)
    for name, row in zip(ranks, table, strict=True):
        ratio = np.nan_to_num(
            np.divide(row, middle, out=np.ones_like(row), where=middle > 0), nan=1.0, posinf=1.0, neginf=1.0
        )
        at, level = stats.trailing_median(ratio, t.rank_records)
        state = lasting(level >= t.rank_times, 1)
        if state:
            yield sighting(
                WARN,
                f"{name} takes {level[-1]:.2f} x the median of {len(ranks)} ranks since step {first.step[at[state.since] - t.rank_records + 1]}.",
                frame[name],
                first=int(at[state.since]) - t.rank_records + 1,
                last=len(first) - 1,
                flagged=int(at[state.told]),
                threshold={"times": t.rank_times, "records": t.rank_records},
                more=tuple(e for other in ranks if other != name for e in evidence(frame[other], [len(first) - 1]))[:3],
            )
