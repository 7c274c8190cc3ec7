"""TP975, TP983, TP984: how the loss moves beside the baselines', and since when it is apart."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from trainproof import stats
from trainproof.comparing.comparison import Comparison
from trainproof.comparing.levels import Gap, level_gap, noise_of
from trainproof.comparing.matching import LARGEST, Pairs
from trainproof.rules.registry import INFO, SUPERVISED, WARN, CannotTell, Sighting, rule
from trainproof.rules.standings import Against, Seen, against_all, outcome, told
from trainproof.thresholds import ComparisonThresholds
from trainproof.verdict import Figure, number


@rule(
    "TP975",
    "slower-slope",
    severity=WARN,
    needs=("loss",),
    objectives=SUPERVISED,
    min_records=30,
    fix="Compare learning rates and effective batch sizes; look at the step where the ratio begins to rise.",
)
def slower_slope(seen: Comparison, t: ComparisonThresholds) -> Seen:
    """The loss falls more slowly than the baselines': the ratio to them rises over the shared range.

    What it does
    Fits a robust line to the logarithm of the matched ratio and asks how much it rises from the first to the last record.

    Why it matters
    A run that loses ground can be told before the gap itself is large, and a gap that grows will go on growing.

    Formula
    Theil-Sen change of log(run / baseline) over at most 120 block medians, its standard error from the residuals, widened by the
    correlation of neighbours. WARN when change - 3.5 SE (Student's t for few blocks) is above 2 %; several baselines as for TP971.

    False positives
    Runs that start apart and meet later; schedules of another length (their ends do not match: align the total steps).

    What to try
    Look at the matched-ratio panel: a rise from the start points to the rate or the batch, one from the middle to the data.
    """

    def look(i: int, pairs: Pairs) -> Against:
        scale, ratio = pairs.scale, pairs.ratio
        seen_trend = stats.trend(ratio, 0, len(ratio))
        blocks = stats.block_medians(ratio)
        line = seen_trend.change * np.linspace(-0.5, 0.5, len(blocks))
        r = stats.serial_correlation(blocks - line)
        wider = math.sqrt((1 + r) / (1 - r))
        found = Gap(seen_trend.change, seen_trend.se * wider, t.mad_efficiency * len(blocks) / wider**2)
        return Against(
            i,
            pairs,
            math.exp(min(seen_trend.change, LARGEST)) if scale is None else seen_trend.change,
            1.0,
            found,
            scale is None,
        )

    each = against_all(seen, seen.loss, t.slope_records, look)
    found = outcome(seen.loss, f"rise of the {seen.loss} ratio", each, t.loss_warn, t, math.inf)
    yield from told("TP975", seen, found, t)


class _Reached(NamedTuple):
    """When the two reached the target: shares of the shared range, infinite where it was not reached."""

    baseline: int
    pairs: Pairs
    target: float
    run: float
    base: float
    at: int  # the pair at which the baseline was there


@rule(
    "TP983",
    "later-to-loss",
    severity=WARN,
    needs=("loss",),
    objectives=SUPERVISED,
    min_records=30,
    fix="Compare learning rate, warm-up and batch size: the run needs more of the axis for the same loss.",
)
def later_to_loss(seen: Comparison, t: ComparisonThresholds) -> Seen:
    """The run needs much longer than the baselines to reach the loss that they reach, or does not reach it.

    What it does
    Takes the loss at which a baseline has made four fifths of its improvement, and asks how much later the run is there.

    Why it matters
    Steps are money: a run that needs a quarter more of them for the same loss costs a quarter more.

    Formula
    Levels are medians of at most 40 stretches of the matched records. target = start - 0.8 (start - lowest) of the baseline's levels. WARN
    when the run needs at least 1.25 times as long, and where the baseline was there, the run's loss was above the baseline's by
    more than 3.5 SE and 2 %. With several baselines it has to be later than each.

    False positives
    A baseline that hardly improves has no target (skipped); flat tails make times vague, hence the clause on the loss itself.

    What to try
    Look at the first fifth of both curves: warm-up and peak rate set the pace there.
    """
    usable = seen.usable(seen.loss, t.slope_records)
    reached = [hit for i, pairs in usable if (hit := _reached(pairs, i, t))]
    if not reached:
        raise CannotTell("no baseline improves enough to give a target")
    earliest = min(reached, key=lambda hit: hit.run / hit.base)
    ratio = earliest.run / earliest.base
    yield Figure("TP983", f"share of the range to {seen.loss} {earliest.target:.4g}", number(earliest.run), number(min(r.base for r in reached)),
                 number(max(r.base for r in reached)), number(ratio - 1), None, len(earliest.pairs))  # fmt: skip
    if ratio < t.target_later or not all(_behind(hit, t) for hit in reached):
        return
    pairs = earliest.pairs
    when = f"after {ratio:.2f} times as long" if math.isfinite(ratio) else "nowhere in the shared range"
    yield Sighting(
        WARN,
        f"the baseline reached {seen.loss} {earliest.target:.4g} at step {pairs.base_step[earliest.at]}; the run reached it {when}.",
        seen.cite(seen.loss, earliest.baseline, pairs, earliest.at),
        {"later": t.target_later, "share": t.target_share},
        int(pairs.step[earliest.at]),
        int(pairs.step[-1]),
        int(pairs.step[-1]),
    )


def _reached(pairs: Pairs, baseline: int, t: ComparisonThresholds) -> _Reached | None:
    count = min(t.divergence_blocks, len(pairs) // t.level_records)
    run, base = stats.block_medians(pairs.run, count), stats.block_medians(pairs.base, count)
    width = len(pairs) // len(base)
    ends = len(pairs) - 1 - width * np.arange(len(base) - 1, -1, -1)
    gained = float(base[0] - base.min())
    noise = stats.MEDIAN_SE * stats.difference_noise(pairs.base) / math.sqrt(width)
    if gained <= 2 * t.noise_se * noise or gained <= t.clearly * t.loss_warn * abs(float(base[0])):
        return None
    target = float(base[0]) - t.target_share * gained
    at = int(np.argmax(base <= target))
    low = np.flatnonzero(run <= target)
    start, span = float(pairs.x[0]), float(pairs.x[-1] - pairs.x[0]) or 1.0
    when = (float(pairs.x[ends[low[0]]]) - start) / span if len(low) else math.inf
    return _Reached(baseline, pairs, target, when, max((float(pairs.x[ends[at]]) - start) / span, 1e-9), int(ends[at]))


def _behind(hit: _Reached, t: ComparisonThresholds) -> bool:
    """Whether the run's loss was clearly above the baseline's where the baseline reached the target."""
    width = max(t.end_records, len(hit.pairs) // t.divergence_blocks)
    until = hit.pairs.take(slice(0, hit.at + 1))
    apart = level_gap(until.ratio, min(width, len(until)), t)
    return apart.value - stats.student_limit(t.noise_se, apart.df) * apart.se > t.loss_warn


@rule(
    "TP984",
    "first-divergence",
    severity=INFO,
    needs=("loss",),
    objectives=SUPERVISED,
    min_records=10,
    fix="Look at the data and the settings at the first step told.",
)
def first_divergence(seen: Comparison, t: ComparisonThresholds) -> Seen:
    """Since when the loss has been apart from the baselines'.

    What it does
    Finds the first of the stretches, up to the end of the shared range, in all of which the loss stood on the same side of every
    baseline by more than noise. Of runs that are equal record by record it also tells up to where.

    Why it matters
    The first step at which two runs part is where to look for the cause.

    Formula
    At most 40 stretches; in each, |median log(run / baseline)| - 3.5 SE > 1 %, SE from the noise of the second half of the matched ratios. At least the last
    two stretches.

    False positives
    It is told as INFO and never moves the verdict.

    What to try
    Compare the batches and the logs of both runs around that step.
    """
    usable = seen.usable(seen.loss, 10)
    if not usable:
        raise CannotTell(f"fewer than 10 matched records of {seen.loss}")
    apart = [_apart_since(pairs, t) for _, pairs in usable]
    if any(index is None for index in apart):
        return
    latest = max(range(len(apart)), key=lambda k: usable[k][1].x[apart[k] or 0])
    baseline, pairs = usable[latest]
    index = apart[latest] or 0
    equal = int(np.argmax(pairs.run != pairs.base))
    until = f" The records were equal up to step {pairs.step[equal - 1]}." if equal > 1 else ""
    side = "above" if stats.median(pairs.run[index:]) > stats.median(pairs.base[index:]) else "below"
    yield Sighting(
        INFO,
        f"since step {pairs.step[index]} {seen.loss} has stood {side} the baseline{'s' if len(usable) > 1 else ''} by more than noise.{until}",
        seen.cite(seen.loss, baseline, pairs, index),
        {"least": t.divergence_least, "standard_errors": t.noise_se},
        int(pairs.step[index]),
        int(pairs.step[-1]),
        int(pairs.step[-1]),
    )


def _apart_since(pairs: Pairs, t: ComparisonThresholds) -> int | None:
    """The first pair of the stretches at the end in which the ratio is on one side by more than noise."""
    ratio = pairs.ratio
    count = min(t.divergence_blocks, len(pairs) // t.level_records)
    levels = stats.block_medians(ratio, count)
    width = len(ratio) // len(levels)
    se, df = noise_of(ratio, width, t)
    noise = stats.student_limit(t.noise_se, df) * se
    outside = (np.abs(levels) - noise > t.divergence_least) & (np.sign(levels) == np.sign(levels[-1]))
    stretch = stats.last_run(outside)
    if stretch is None or stretch[1] - stretch[0] < 2:
        return None
    return len(ratio) - width * (len(levels) - stretch[0])
