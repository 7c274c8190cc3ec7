"""Family TP97 and TP98: a run beside baselines. Levels of the loss are here; its course is in `comparison_course`, evaluations in
`comparison_evals`, settings and costs in `comparison_costs`; what they share is in `standings`."""

from __future__ import annotations

import math

import numpy as np

from trainproof import stats
from trainproof.comparing.comparison import Comparison
from trainproof.comparing.levels import Gap, level_gap, noise_of, print_steps
from trainproof.comparing.matching import Pairs
from trainproof.rules import (  # noqa: F401  registers the other rules of the family
    comparison_costs,
    comparison_course,
    comparison_evals,
)
from trainproof.rules.registry import FAIL, SUPERVISED, CannotTell, Sighting, rule
from trainproof.rules.standings import Against, Seen, against_all, ends, outcome, told
from trainproof.thresholds import ComparisonThresholds


def _level(pairs: Pairs, baseline: int, window: int, t: ComparisonThresholds) -> Against:
    """The run against a baseline over the last `window` pairs."""
    part = pairs.last(window)
    found = level_gap(pairs.ratio, len(part), t, quantum=print_steps(part))
    return Against(baseline, part, stats.median(part.run), stats.median(part.base), found, pairs.scale is None)


def _stretch(n: int, t: ComparisonThresholds) -> int:
    """The records of a short level: a twentieth of the run, at least a few."""
    return max(t.level_records, int(t.level_share * n))


@rule(
    "TP971",
    "worse-than-baseline",
    severity=FAIL,
    needs=("loss",),
    objectives=SUPERVISED,
    min_records=20,
    fix="Look at what changed (the report lists it); compare the data first: labels, masks and order do not show in one curve.",
)
def worse_than_baseline(seen: Comparison, t: ComparisonThresholds) -> Seen:
    """Over the last fifth of the shared range the loss is higher than the baselines'.

    What it does
    Takes the ratio of the run's loss to each baseline's at every matched record of the last fifth, and asks whether its median is above
    1 by more than the noise of that ratio and by more than a limit: 2 % for one baseline, whose seed spread is unknown; for several,
    what their own spread says of one more seed.

    Why it matters
    A run with corrupted labels falls and looks healthy by itself; beside a run that is trusted it stands far above.

    Formula
    m = median of log(run / baseline) over the last max(20, 20 %) matched records; SE = 1.2533 x 1.4826 MAD / sqrt(n), widened by the
    correlation of neighbours. With k baselines: the mean of the m, SE x sqrt((k + 1) / 2k), and the limit t x s x sqrt(1 + 1 / k), s being
    the spread of the baselines beyond their noise, moderated towards the spread that a limit of 2 % stands for. WARN when m - 3.5 SE
    (Student's t for few records) is above the limit, FAIL above 2.5 times the limit (5 % for one baseline).

    False positives
    Another masking, reduction or tokenizer makes another loss; another batch size needs another axis (--align). Seeds that differ by more
    than 2 % need several baselines: one cannot know it.

    What to try
    Look at the changed settings, then at the data. Compare with two or more seeds to learn what a seed does to this loss.
    """
    records = t.end_records
    each = against_all(seen, seen.loss, records, lambda i, p: _level(p, i, max(records, int(t.end_share * len(p))), t))
    yield from told("TP971", seen, outcome(seen.loss, f"matched {seen.loss}", each, t.loss_warn, t), t)


@rule(
    "TP972",
    "floor-above-baseline",
    severity=FAIL,
    needs=("loss",),
    objectives=SUPERVISED,
    min_records=5,
    fix="Look at the data and the labels: a floor that is too high is what corrupted targets leave.",
)
def floor_above_baseline(seen: Comparison, t: ComparisonThresholds) -> Seen:
    """The lowest level that the loss reached is higher than the baselines'.

    What it does
    Compares the lowest median of a twentieth of the matched records in the run with the lowest in each baseline.

    Why it matters
    What a model can reach is set by its data: a run that learns fast and stops high has lost something that the baseline had.

    Formula
    floor = lowest median of consecutive stretches of max(5, 5 %) matched records; noise of the second half of the matched ratios; limits as for TP971.

    False positives
    As TP971. A run that is noisier than its baseline reaches lower by chance, never higher.

    What to try
    Train on a sample whose labels you have read; compare tokenized batches of both runs.
    """

    def look(i: int, pairs: Pairs) -> Against:
        scale, ratio, width = pairs.scale, pairs.ratio, _stretch(len(pairs), t)
        run, base = (float(stats.block_medians(x, len(x) // width).min()) for x in (pairs.run, pairs.base))
        value = math.log(run) - math.log(base) if scale is None else (run - base) / scale
        se, df = noise_of(ratio, width, t)
        quantum = print_steps(pairs)
        return Against(i, pairs, run, base, Gap(value, math.hypot(se, quantum / t.noise_se), df), scale is None)

    each = against_all(seen, seen.loss, t.level_records, look)
    yield from told("TP972", seen, outcome(seen.loss, f"lowest {seen.loss}", each, t.loss_warn, t), t)


@rule(
    "TP973",
    "integer-loss-ratio",
    severity=FAIL,
    needs=("loss",),
    objectives=SUPERVISED,
    min_records=5,
    fix="Look at how the loss is reduced: a sum over accumulation steps, devices or tokens where the baseline has a mean, or the reverse.",
)
def integer_loss_ratio(seen: Comparison, t: ComparisonThresholds) -> Seen:
    """The loss is the baselines' times a whole number, or divided by one, at every matched record.

    What it does
    Asks whether the ratio of the losses hardly moves and lies at 2, 3, 4 ... or at 1/2, 1/3, 1/4 ...

    Why it matters
    Training does not make such a ratio; a sum in the place of a mean does, and it scales the gradients and the effective rate too.

    Formula
    1.4826 MAD of log(run / baseline) < 5 % over at least 5 matched records, and the median within 3 % (and 0.25) of N or 1 / N,
    2 <= N <= 64. The ratio of the gradient norms is told beside it.

    False positives
    None known: another task of exactly twice the loss would have to follow the same curve.

    What to try
    Compare the gradient norms: the same factor there means that the loss is really scaled, not only printed so.
    """
    found = [hit for i, pairs in seen.usable(seen.loss, t.integer_records) if (hit := _integer(pairs, i, t))]
    compared = seen.usable(seen.loss, t.integer_records)
    if not compared:
        raise CannotTell(f"fewer than {t.integer_records} matched records of {seen.loss}")
    if len(found) < len(compared):
        return
    against, times, factor = found[0]
    pairs = against.pairs
    norm = [stats.median(p.run / p.base) for _, p in seen.usable("grad_norm", t.integer_records) if (p.base > 0).all()]
    beside = f" The gradient norm is {norm[0]:.3g} times the baseline's." if norm else ""
    yield Sighting(
        FAIL,
        f"{seen.loss} is {factor:.4g} times the baseline's at every matched record ({times} within {t.integer_near:.0%}).{beside} "
        "This is consistent with a sum where the other has a mean.",
        ends(seen, outcome(seen.loss, "ratio", [against], t.loss_warn, t)),
        {"spread": t.integer_spread, "near": t.integer_near},
        int(pairs.step[0]),
        int(pairs.step[-1]),
        int(pairs.step[t.integer_records - 1]),
    )


def _integer(pairs: Pairs, baseline: int, t: ComparisonThresholds) -> tuple[Against, str, float] | None:
    """The ratio as a whole number or one over it, if it is one."""
    if pairs.scale is not None:
        return None
    level = stats.median(pairs.ratio)
    factor = math.exp(abs(level))
    whole = round(factor)
    if not 2 <= whole <= t.integer_most or abs(factor - whole) > min(t.integer_near * whole, t.integer_off):
        return None
    if stats.MAD_TO_SIGMA * stats.median(np.abs(pairs.ratio - level)) >= t.integer_spread:
        return None
    middle = math.exp(level)
    against = Against(baseline, pairs, middle, 1.0, Gap(level, 0.0, len(pairs)))
    return against, f"{whole}" if middle > 1 else f"1/{whole}", middle


@rule(
    "TP976",
    "improvement-lost",
    severity=FAIL,
    needs=("loss",),
    objectives=SUPERVISED,
    min_records=10,
    fix="Check that the run trains what the baseline trained: trainable parameters, learning rate, data.",
)
def improvement_lost(seen: Comparison, t: ComparisonThresholds) -> Seen:
    """From its start to its end the loss fell by much less than the baselines'.

    What it does
    Compares how far the loss fell, from the median of its first twentieth to that of its last, in the run and in each baseline.

    Why it matters
    Runs that start apart (another template, other new tokens) are compared fairly by what they learned.

    Formula
    gap = change of log(run / baseline) from the first to the last max(5, 5 %) matched records. The limit is a quarter of the baselines'
    own improvement (and 2 %), FAIL at half of it (and 5 %); noise and several baselines as for TP971.

    False positives
    A run that resumed from a better checkpoint has less left to learn.

    What to try
    Look at the changed settings; check the learning rate and the gradient norm beside the baseline's.
    """
    gains: list[float] = []

    def look(i: int, pairs: Pairs) -> Against:
        scale, ratio, width = pairs.scale, pairs.ratio, _stretch(len(pairs), t)
        se, df = noise_of(ratio, width, t, share=1.0)
        change = [(stats.median(x[:width]), stats.median(x[-width:])) for x in (pairs.run, pairs.base)]
        before, after = change[1]
        gains.append(max(0.0, math.log(before) - math.log(after) if scale is None else (before - after) / scale))
        found = Gap(float(stats.median(ratio[-width:]) - stats.median(ratio[:width])), math.sqrt(2) * se, df)
        return Against(i, pairs, change[0][1] - change[0][0], change[1][1] - change[1][0], found, scale is None)

    each = against_all(seen, seen.loss, 2 * t.level_records, look)
    gained = math.fsum(gains) / len(gains)
    warn = max(t.loss_warn, t.improvement_lost * gained)
    fail = max(t.clearly * t.loss_warn, 2 * t.improvement_lost * gained)
    yield from told("TP976", seen, outcome(seen.loss, f"change of {seen.loss}", each, warn, t, fail), t)


@rule(
    "TP977",
    "end-above-baseline",
    severity=FAIL,
    needs=("loss",),
    objectives=SUPERVISED,
    min_records=5,
    fix="Look at the last part of the run: the report's ratio panel shows where it left the baseline.",
)
def end_above_baseline(seen: Comparison, t: ComparisonThresholds) -> Seen:
    """At the end of the shared range the loss is higher than the baselines'.

    What it does
    As TP971, over the last twentieth: it sees what went wrong too late for the median of a fifth.

    Why it matters
    The end is what is kept.

    Formula
    As TP971 over the last max(5, 5 %) matched records.

    False positives
    As TP971; with few records the noise is large, and the rule is skipped when it could hide more than half of the loss.

    What to try
    Compare the checkpoints before and after the step at which the ratio rises.
    """
    width = t.level_records
    each = against_all(seen, seen.loss, width, lambda i, p: _level(p, i, _stretch(len(p), t), t), equal_ones=True)
    yield from told("TP977", seen, outcome(seen.loss, f"end {seen.loss}", each, t.loss_warn, t), t)
