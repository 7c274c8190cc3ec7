"""TP603 and TP605: what the data is made of: shares of its sources, and tokens a step."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from trainproof import stats
from trainproof.frame import Frame, Series
from trainproof.rules.registry import INFO, SUPERVISED, WARN, CannotTell, Sighting, rule, sighting
from trainproof.rules.states import finite, holds_since
from trainproof.thresholds import DataOrderThresholds
from trainproof.verdict import Severity

#: how trainers name the share of a source in the data
SHARES = ("mixture/", "data_mix/", "source_share/", "domain_share/", "domain_weight/")


@rule(
    "TP603",
    "mixture-shift",
    severity=WARN,
    min_records=60,
    fix="Check which source ran out or began to repeat; declare an intended curriculum, or resume with the sampler's state.",
)
def mixture_shift(frame: Frame, t: DataOrderThresholds) -> Iterator[Sighting]:
    """The share of a data source has moved.

    What it does
    Compares the share of each source in the last fifth of the records with the first fifth.

    Why it matters
    A source that runs out, or whose sampler restarted, changes what is learned while the loss looks the same.

    Formula
    At the common judging points: medians of the last and first fifth differ by 0.1 and by 30 %, with |Z| > 4, to the end: WARN.

    False positives
    A declared curriculum moves shares on purpose; nothing in a log tells it from a fault, so it is a WARN at most.

    What to try
    Log how often each source was exhausted.
    """
    names = [name for name in frame if name.startswith(SHARES)]
    if not names:
        raise CannotTell("no shares of data sources in the log")
    for name in names:
        share = finite(frame, name, t.mixture_min_records)
        counts = [int(n) for n in stats.schedule(len(share)) if n >= t.mixture_min_records]
        since = holds_since(counts, partial(_shifted, share.value, t))
        if since:
            fifth = len(share) // 5
            yield sighting(
                WARN,
                f"{name} went from {stats.median(share.value[:fifth]):.3g} to {stats.median(share.value[-fifth:]):.3g} (medians of the first and last "
                "fifth).",
                share,
                first=0,
                last=len(share) - 1,
                flagged=since - 1,
                threshold={"share": t.mixture_share, "relative": t.mixture_relative},
            )


def _shifted(values: stats.Floats, t: DataOrderThresholds, count: int) -> bool:
    x = values[:count]
    fifth = len(x) // 5
    first, last = stats.median(x[:fifth]), stats.median(x[-fifth:])
    apart = abs(last - first)
    if apart < t.mixture_share or apart < t.mixture_relative * abs(first):
        return False
    return abs(stats.trend_z(x)) > t.mixture_z


@rule(
    "TP605",
    "tokens-per-step-drift",
    severity=WARN,
    needs=("tokens",),
    objectives=SUPERVISED,
    min_records=60,
    fix="Check the order of lengths in the data, packing, and whether short batches are dropped or padded.",
)
def tokens_per_step_drift(frame: Frame, t: DataOrderThresholds) -> Iterator[Sighting]:
    """The number of tokens a step drifts.

    What it does
    Takes the differences of the token counter and compares the last quarter with the first.

    Why it matters
    Data sorted by length, or documents that run out, change the effective batch: the loss and the rate mean something else at the end.

    Formula
    At the common judging points: medians of the last and first quarter apart by 1.5 x with |Z| > 4, to the end: WARN; INFO when the
    counter takes only a few rates (a planned batch ramp goes in steps).

    False positives
    A batch ramp (few different rates), completions of reinforcement learning that grow (not asked).

    What to try
    Shuffle lengths; log the padding.
    """
    tokens = finite(frame, "tokens", t.tokens_min_records)
    rate = _rate(tokens)
    counts = [int(n) for n in stats.schedule(len(tokens)) if n >= t.tokens_min_records]
    since = holds_since(counts, lambda n: _drifts(rate.value[: n - 1], t))
    if since is None:
        return
    quarter = len(rate) // 4
    planned = len(stats.distinct(np.round(rate.value, 3))[0]) <= t.tokens_levels
    severity: Severity = INFO if planned else WARN
    yield sighting(
        severity,
        f"tokens a step went from {stats.median(rate.value[:quarter]):.4g} to {stats.median(rate.value[-quarter:]):.4g} (medians of the first and "
        f"last quarter){', in steps' if planned else ''}.",
        rate,
        first=0,
        last=len(rate) - 1,
        flagged=since - 2,
        cite=[],
        threshold={"times": t.tokens_times, "z": t.tokens_z},
    )


def _rate(tokens: Series) -> Series:
    """Tokens a step between records. Raises CannotTell when the counter is not one: it falls."""
    gained = np.diff(tokens.value)
    if (gained < 0).any():
        raise CannotTell("the token counter falls: it is a batch's, or was reset")
    return Series("tokens", tokens.step[1:], gained / np.maximum(np.diff(tokens.step), 1), tokens.line[1:])


def _drifts(x: stats.Floats, t: DataOrderThresholds) -> bool:
    quarter = len(x) // 4
    first, last = stats.median(x[:quarter]), stats.median(x[-quarter:])
    if min(first, last) <= 0 or max(first, last) < t.tokens_times * min(first, last):
        return False
    return abs(stats.trend_z(x)) > t.tokens_z
