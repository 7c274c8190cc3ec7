"""TP928: prefetch queues that run dry, and uneven ones."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

import numpy as np

from trainproof import stats
from trainproof.frame import Frame
from trainproof.rules.registry import INFO, WARN, CannotTell, Sighting, evidence, rule, sighting
from trainproof.rules.states import finite, holds_since
from trainproof.thresholds import PipelineThresholds

QUEUE = re.compile(
    r"(?:.*[/_.])?(?:prefetch_?)?queue(?:_(?:size|len|length|depth))?(?:[/_.](?:rank_?|consumer_?|gpu_?)?\d+)?", re.I
)


@rule(
    "TP928",
    "queue-decline",
    severity=WARN,
    min_records=60,
    whole_run=True,
    fix="Add producers, or find what slows them (decoding, storage, a lock); a queue that is empty stalls its consumer.",
)
def queue_decline(frame: Frame, t: PipelineThresholds) -> Iterator[Sighting]:
    """A prefetch queue runs dry, or the queues of the consumers differ.

    What it does
    Follows the logged lengths of queues: the trend of each, and their ratio at the end.

    Why it matters
    A falling queue says that batches are used faster than they are made: at 0 the devices wait. A consumer that is slow has a longer
    queue, not a shorter one; a short queue points to its producer.

    Formula
    At the common judging points: last tenth's median <= 75 % of the first, Mann-Kendall Z < -4, to the end: WARN, with the step at which the
    line through the last half reaches 0. Longest over shortest of several queues >= 2 (medians of the last 20): INFO.

    False positives
    A queue that fills at the start and then stands, or that is drained at each save and comes back, has no trend.

    What to try
    Time one producer alone.
    """
    names = [name for name in frame if QUEUE.fullmatch(name) and len(frame[name].finite) >= t.queue_min_records]
    if not names:
        raise CannotTell("no queue lengths in the log")
    for name in names:
        queue = finite(frame, name, t.queue_min_records)
        counts = [int(n) for n in stats.schedule(len(queue)) if n >= t.queue_min_records]
        since = holds_since(counts, partial(_falls, queue.value, t))
        if since:
            tenth = len(queue) // 10
            yield sighting(
                WARN,
                f"{name} fell from {stats.median(queue.value[:tenth]):.4g} to {stats.median(queue.value[-tenth:]):.4g} between steps {queue.step[0]} and "
                f"{queue.step[-1]}{_dry(queue.step, queue.value)}.",
                queue,
                first=0,
                last=len(queue) - 1,
                flagged=since - 1,
                threshold={"share": t.queue_share, "z": t.queue_z},
            )
    ends = {name: stats.median(frame[name].finite.value[-t.queue_ends :]) for name in names}
    longest, shortest = max(ends, key=ends.__getitem__), min(ends, key=ends.__getitem__)
    if len(ends) > 1 and ends[longest] >= t.queue_uneven * max(ends[shortest], 1.0):
        series = frame[longest].finite
        yield sighting(
            INFO,
            f"{longest} stands at {ends[longest]:.4g} and {shortest} at {ends[shortest]:.4g}: a slow consumer's queue is longer, not shorter; a short "
            "one has a slow producer.",
            series,
            first=len(series) - 1,
            last=len(series) - 1,
            threshold={"uneven": t.queue_uneven},
            more=evidence(frame[shortest].finite, [len(frame[shortest].finite) - 1]),
        )


def _falls(values: stats.Floats, t: PipelineThresholds, count: int) -> bool:
    x = values[:count]
    tenth = len(x) // 10
    first, last = stats.median(x[:tenth]), stats.median(x[-tenth:])
    return 0 <= last <= t.queue_share * first and stats.trend_z(x) < -t.queue_z


def _dry(step: stats.Ints, x: stats.Floats) -> str:
    """Where the line through the last half reaches 0, as a clause; empty when it does not."""
    half = len(x) // 2
    t, y = (
        stats.thinned(step[half:].astype(np.float64), stats.TREND_BLOCKS),
        stats.thinned(x[half:], stats.TREND_BLOCKS),
    )
    slope = stats.theil_sen(t, y)
    return f"; at this rate it is empty at step {t[-1] - stats.median(y[-5:]) / slope:.0f}" if slope < 0 else ""
