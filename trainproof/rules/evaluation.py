"""Family TP5: evaluations on held-out data. Comparisons of evaluations with the training loss are in `train_eval`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trainproof import stats
from trainproof.frame import Frame, Series
from trainproof.names import higher_is_better
from trainproof.rules import train_eval  # noqa: F401  registers TP506, TP507 and TP509
from trainproof.rules.eval_series import (
    Metric,
    best_so_far,
    eval_losses,
    eval_names,
    noise_bar,
    noise_so_far,
    since,
    still_improving,
    task_metrics,
)
from trainproof.rules.registry import FAIL, INFO, SUPERVISED, WARN, CannotTell, Sighting, rule, sighting
from trainproof.thresholds import EvaluationThresholds


def _worse(gain: stats.Floats, t: EvaluationThresholds) -> tuple[stats.Ints, stats.Floats, stats.Bools]:
    """For each evaluation of `gain` (higher is better): the best before, how far the recent level is below it, and whether by more than noise.

    The recent level is the median of the last 3; the bar adds to its standard errors what the best of n noisy values is above its level.
    """
    n = len(gain)
    best = best_so_far(gain)
    recent = np.array([np.median(gain[max(0, i - 2) : i + 1]) for i in range(n)])
    below = gain[best] - recent
    lucky = np.sqrt(2 * np.log(np.arange(1, n + 1)))
    bar = noise_so_far(gain) * (noise_bar(n, t) * stats.MEDIAN_SE / np.sqrt(3) + lucky)
    last_two = (np.arange(n) - best >= t.rise_evals) & (gain <= gain[best] - t.rise_noise * noise_so_far(gain))
    last_two[1:] &= gain[:-1] < gain[best[1:]]
    return best, below, last_two & (below >= bar)


@rule(
    "TP501",
    "eval-rise",
    severity=FAIL,
    needs=("eval/*",),
    objectives=SUPERVISED,
    whole_run=True,
    fix="Stop at the best evaluation and keep its checkpoint; fewer epochs, more data, or stronger regularisation.",
)
def eval_rise(frame: Frame, t: EvaluationThresholds) -> Iterator[Sighting]:
    """The evaluation loss has risen from its best, and stays there.

    What it does
    Compares the last evaluations with the best one, with the noise that the evaluations show.

    Why it matters
    From the best evaluation on, the run learns its training set and not the task; everything after it is paid for twice.

    Formula
    At least 4 evaluations; the last two above the best by 3 % and two units of noise; the median of the last 3 above it by more than its
    standard error and the luck of the best of n. Median of the last 3 / best >= 1.05: WARN; >= 1.5: FAIL. INFO while a task metric still
    improves. Where the best is not positive, the rise must be 5 units of noise and a quarter of what had been gained (WARN).

    False positives
    One bad evaluation that comes back; a loss that rises while accuracy or word error rate still improves (INFO); noisy evaluations.

    What to try
    Early stopping on the metric that you care about.
    """
    for evals in (series.finite for series in eval_losses(frame)):
        if len(evals) < t.rise_min_evals:
            continue
        best, below, noisy_worse = _worse(-evals.value, t)
        lowest = evals.value[best]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            ratio = np.where(lowest > 0, 1 + below / lowest, np.nan)
            margin = np.where(lowest > 0, ratio >= t.rise_warn, below >= _absolute_bar(evals.value, lowest, t))
        start = since(noisy_worse & margin)
        if start is None:
            continue
        best_at = int(best[-1])
        improving = still_improving(frame, int(evals.step[best_at]), t)
        severity = INFO if improving else FAIL if ratio[-1] >= t.rise_fail else WARN
        told = f" {improving.series.name} still improves." if improving else ""
        yield sighting(
            severity,
            f"{evals.name} rose from its best {evals.value[best_at]:.4g} at step {evals.step[best_at]} to {evals.value[-1]:.4g} at step "
            f"{evals.step[-1]}.{told}",
            evals,
            first=best_at,
            last=len(evals) - 1,
            flagged=start,
            cite=sorted({best_at, start, len(evals) - 2, len(evals) - 1}),
            threshold={"ratio": t.rise_fail if severity is FAIL else t.rise_warn},
        )


def _absolute_bar(value: stats.Floats, lowest: stats.Floats, t: EvaluationThresholds) -> stats.Floats:
    """The rise asked for where the best loss is not positive and no ratio exists."""
    gained = np.maximum(value[0] - lowest, 0.0)
    bar: stats.Floats = np.maximum(t.rise_units * noise_so_far(-value), t.rise_gained * gained)
    return bar


@rule(
    "TP502",
    "metric-regression",
    severity=FAIL,
    needs=("eval/*",),
    whole_run=True,
    fix="Go back to the checkpoint of the best evaluation; look at what changed after it.",
)
def metric_regression(frame: Frame, t: EvaluationThresholds) -> Iterator[Sighting]:
    """A task metric has lost a good part of what it had.

    What it does
    Compares the last evaluations of each metric whose direction is known with its best.

    Why it matters
    The task metric is what the run is for; a loss that is only 1.6 times worse can hide its collapse.

    Formula
    At least 3 evaluations, the last two worse than the best by 10 % relative: WARN; 50 %: FAIL, and by more than the noise; the best must
    have been better than the first evaluation by more than that noise.

    False positives
    Noisy metrics on small sets; a metric that never improved (TP504 and TP505).

    What to try
    Keep the best checkpoint by this metric.
    """
    metrics = task_metrics(frame)
    if not metrics:
        raise CannotTell("no evaluation metric with a known direction")
    for metric in metrics:
        if len(metric.series) >= t.regression_min_evals and (seen := _regression(metric, t)):
            yield seen


def _regression(metric: Metric, t: EvaluationThresholds) -> Sighting | None:
    gain, evals = metric.gain, metric.series
    best, below, noisy_worse = _worse(gain, t)
    height = np.abs(gain[best])
    with np.errstate(divide="ignore", invalid="ignore"):
        lost = np.where(height > 0, below / height, np.inf)
    learned = gain[best] - gain[0] > t.regression_learned * np.where(
        np.isfinite(noise := noise_so_far(gain)), noise, 0.0
    )
    start = since(noisy_worse & learned & (lost >= t.regression_warn))
    if start is None:
        return None
    best_at = int(best[-1])
    severity = FAIL if lost[-1] >= t.regression_fail else WARN
    return sighting(
        severity,
        f"{evals.name} went from its best {evals.value[best_at]:.4g} at step {evals.step[best_at]} to {evals.value[-1]:.4g} at step {evals.step[-1]}.",
        evals,
        first=best_at,
        last=len(evals) - 1,
        flagged=start,
        cite=sorted({best_at, start, len(evals) - 2, len(evals) - 1}),
        threshold={"lost": t.regression_fail if severity is FAIL else t.regression_warn},
    )


@rule(
    "TP503",
    "nonfinite-eval",
    severity=FAIL,
    needs=("eval/*",),
    objectives=SUPERVISED,
    whole_run=True,
    fix="Evaluate the last finite checkpoint; check evaluation batches without any target, and half-precision overflow.",
)
def nonfinite_eval(frame: Frame, t: EvaluationThresholds) -> Iterator[Sighting]:
    """An evaluation loss is NaN or infinite.

    What it does
    Looks for non-finite values in the evaluation losses.

    Why it matters
    It is often the first place where broken weights show, because loggers hide NaN in the training loss.

    Formula
    Any non-finite evaluation loss: FAIL; WARN when a later evaluation is finite.

    False positives
    Other metrics are NaN in health (explained variance, precision of absent classes) and are not looked at.

    What to try
    Evaluate one batch by hand.
    """
    for evals in eval_losses(frame):
        bad = ~np.isfinite(evals.value)
        if not bad.any():
            continue
        first = int(np.argmax(bad))
        yield sighting(
            WARN if not bad[-1] else FAIL,
            f"{evals.name} is not finite in {int(bad.sum())} of {len(evals)} evaluations, first at step {evals.step[first]}.",
            evals,
            first=first,
            last=int(np.flatnonzero(bad)[-1]),
            flagged=first,
            threshold={"evaluations": t.nonfinite_evals},
        )


@rule(
    "TP504",
    "eval-worse-than-baseline",
    severity=FAIL,
    needs=("eval/*",),
    objectives=SUPERVISED,
    whole_run=True,
    fix="Lower the learning rate; check that the evaluation uses the same template and masking as the training.",
)
def eval_worse_than_baseline(frame: Frame, t: EvaluationThresholds) -> Iterator[Sighting]:
    """Training has made the model worse than it was before the first step.

    What it does
    Compares the evaluations with the one at step 0, when there is one.

    Why it matters
    A fine-tune that never gets back to its base is a loss of money and of a model.

    Formula
    Evaluation at step 0 known. No later one better, 3 or more of them, and their median worse by 2 % and the noise: FAIL. The last two
    worse by 2 % and the noise: WARN.

    False positives
    Evaluations within 2 % of the base are no worse than it; regularised runs that dip at first and recover.

    What to try
    Evaluate the untouched base model once more, with the training code.
    """
    for evals in (series.finite for series in eval_losses(frame)):
        if len(evals) < 2 or evals.step[0] != 0:
            raise CannotTell("no evaluation at step 0")
        base, later = float(evals.value[0]), evals.value[1:]
        noise = float(noise_so_far(later)[-1]) if len(later) >= t.baseline_noise_evals else 0.0
        bar = base + max(t.baseline_margin * abs(base), 2 * noise)
        never = later > bar
        flagged = None
        if len(later) >= t.baseline_evals and never.all():
            severity, flagged = FAIL, t.baseline_evals
        elif len(later) >= 2 and never[-2:].all():
            severity, flagged = WARN, 1 + (since(never) or 0) + 1
        if flagged is None:
            continue
        yield sighting(
            severity,
            f"{evals.name} was {base:.4g} before the first step; the best of {len(later)} evaluations since is {later.min():.4g}, the last {later[-1]:.4g}.",
            evals,
            first=0,
            last=len(evals) - 1,
            flagged=min(flagged, len(evals) - 1),
            cite=sorted({0, 1 + int(np.argmin(later)), len(evals) - 1}),
            threshold={"margin": t.baseline_margin},
        )


@rule(
    "TP505",
    "eval-frozen",
    severity=FAIL,
    needs=("eval/*",),
    whole_run=True,
    fix="Check that the evaluation uses the model that is being trained, that its weights change, and that results are not cached.",
)
def eval_frozen(frame: Frame, t: EvaluationThresholds) -> Iterator[Sighting]:
    """An evaluation gives exactly the same value again and again.

    What it does
    Looks for the same evaluation loss or task metric, to every digit, at different steps.

    Why it matters
    Two different models never score the same to six digits: the weights do not change, the model collapsed to one answer, or the result
    is cached.

    Formula
    The last 3 evaluations equal, with 6 significant digits or more: WARN; the last 5: FAIL. A metric that had been better and is pinned at
    exactly 0 for 5 evaluations: FAIL.

    False positives
    Values that have been 0 or negative constants since the first evaluation are placeholders (some trainers never compute them); a
    perfect 1.0; a cached result beside other splits that move (WARN); coarse metrics of tiny sets (fewer than 6 digits).

    What to try
    Evaluate two checkpoints by hand.
    """
    known = {m.series.name for m in task_metrics(frame)} | {s.name for s in eval_losses_or_none(frame)}
    if not known:
        raise CannotTell("no evaluation loss and no metric with a known direction")
    for name in eval_names(frame):
        if name in known and (seen := _frozen(frame, frame[name].finite, t)):
            yield seen
            return


def eval_losses_or_none(frame: Frame) -> list[Series]:
    try:
        return eval_losses(frame)
    except CannotTell:
        return []


def _frozen(frame: Frame, evals: Series, t: EvaluationThresholds) -> Sighting | None:
    if len(evals) < t.frozen_warn:
        return None
    value = float(evals.value[-1])
    start, stop = stats.last_run(evals.value == value) or (len(evals), len(evals))
    length = stop - start
    pinned = value == 0 and start > 0 and length >= t.frozen_fail
    if not pinned and (length < t.frozen_warn or significant_digits(value) < t.frozen_digits or value in (0.0, -1.0)):
        return None
    cached = _others_move(frame, int(evals.step[start]))
    severity = FAIL if length >= t.frozen_fail and not cached else WARN
    return sighting(
        severity,
        f"{evals.name} is exactly {value!r} in the last {length} evaluations, since step {evals.step[start]}"
        f"{', while other evaluations of the same steps move: consistent with a cached result' if cached else ''}.",
        evals,
        first=start,
        last=stop - 1,
        flagged=start + (t.frozen_fail if severity is FAIL else t.frozen_warn) - 1,
        threshold={"evaluations": t.frozen_fail if severity is FAIL else t.frozen_warn, "digits": t.frozen_digits},
    )


def _others_move(frame: Frame, since_step: int) -> bool:
    """Whether a metric of another split has moved since a step: then the model changes, and only this evaluation does not."""
    for name, series in frame.items():
        if name.startswith(("test/", "train/")) and higher_is_better(name) is not None:
            late = series.value[series.step >= since_step]
            if len(late) > 1 and (late != late[0]).any():
                return True
    return False


def significant_digits(value: float) -> int:
    """Significant digits of the shortest decimal that reads back as `value`."""
    return len(repr(abs(value)).split("e")[0].replace(".", "").strip("0"))
