"""Family TP5, evaluations on held-out data: the trend of eval losses and task metrics.

Their values are judged in `eval_values` and `frozen`, the eval loss beside training loss in `train_eval`, epoch boundaries in `staircase`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trainproof import stats
from trainproof.frame import Frame, Series
from trainproof.rules import eval_values, frozen, metric_sense, staircase, train_eval  # noqa: F401  registers TP503 to TP511
from trainproof.rules.eval_series import (
    Metric,
    best_so_far,
    eval_losses,
    improving,
    level_so_far,
    levels,
    noise_so_far,
    since,
    task_metrics,
)
from trainproof.rules.registry import FAIL, INFO, SUPERVISED, WARN, CannotTell, Sighting, rule, sighting
from trainproof.stats import Bools, Floats
from trainproof.thresholds import EvaluationThresholds


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
    """The evaluation loss has risen from its best level, and stays there.

    What it does
    Smooths the eval loss over 3, 5, 9, 17, 33 and 65 evaluations, and compares each level, and that of the last 3 evaluations, with the
    best level that the same smoothing had reached, in units of the noise that the evaluations show.

    Why it matters
    From its best evaluation on, the run learns its training set and not the task; everything after it is paid for twice.

    Formula
    At least 4 evaluations. s = 1.4826 median |e_i - (e_(i-1) + e_(i+1)) / 2| / sqrt 1.5, of the logarithm of the loss. log(level / best)
    >= 6 (1 + 6 / n) x 1.2533 s / sqrt(w); with 60 evaluations or fewer also 4 such errors and a Mann-Kendall Z >= 2.2 since the best one.
    level / best >= 1.05 and 1 % of the improvement given back: WARN; 1.5 and 25 %: FAIL. INFO while a task metric still improves.
    Where the loss is not positive, differences replace ratios: WARN when a quarter of the improvement is given back and the rise is 5 s and
    5 % of the best; or, after 10 evaluations, when s is 3 times what training has gained and the level is 5 times that above the training
    loss.

    False positives
    One bad evaluation never fires. A loss that rises while accuracy or word error rate still improves is told as INFO. Noisy evaluations
    need a larger rise.

    What to try
    Early stopping on the metric that you care about.
    """
    series = [s.finite for s in eval_losses(frame)]
    judged = [s for s in series if len(s) >= t.rise_min_evals]
    if not judged:
        raise CannotTell(f"{max(map(len, series))} evaluations, needs {t.rise_min_evals}")
    for evals in judged:
        if seen := _rise(frame, evals, t):
            yield seen


def _rise(frame: Frame, evals: Series, t: EvaluationThresholds) -> Sighting | None:
    warn, fail = _risen(frame, evals, t)
    if not warn[-1]:
        return None
    best = best_so_far(-evals.value)
    excused, metric = improving(frame, evals.step[best], evals.step, t)
    severity = INFO if excused[-1] else FAIL if fail[-1] else WARN
    held = {INFO: warn, WARN: warn & ~excused, FAIL: fail & ~excused}[severity]
    start, low, last = since(held) or 0, int(best[-1]), len(evals) - 1
    told = f"; {metric} still improves" if severity is INFO else ""
    return sighting(
        severity,
        f"{evals.name} rose from its best, {evals.value[low]:.4g} at step {evals.step[low]}, to {evals.value[-1]:.4g} at step "
        f"{evals.step[-1]}{told}. {_meaning(frame, int(evals.step[low]), t)}",
        evals,
        first=low,
        last=last,
        flagged=start,
        cite=sorted({low, start, last - 1, last}),
        threshold={"ratio": t.rise_fail if severity is FAIL else t.rise_warn},
    )


def _meaning(frame: Frame, best: int, t: EvaluationThresholds) -> str:
    """What the rise since the step of the best evaluation is consistent with: over-fitting, unless the training loss rose as well."""
    if "loss" in frame:
        loss = frame["loss"].finite
        until = int(np.searchsorted(loss.step, best, side="right"))
        if until:
            before, after = stats.median(loss.value[max(0, until - 5) : until]), stats.median(loss.value[-5:])
            if before > 0 and after > t.rise_warn * before:
                return (
                    f"The training loss rose as well, from {before:.4g} to {after:.4g}: the model itself became worse."
                )
    return "This is consistent with over-fitting."


def _risen(frame: Frame, evals: Series, t: EvaluationThresholds) -> tuple[Bools, Bools]:
    """Where the eval loss has risen far enough to WARN and to FAIL, each of shape (n,)."""
    value = evals.value
    positive = int(np.argmax(value <= 0)) if (value <= 0).any() else len(value)
    warn, fail = np.zeros(len(value), dtype=bool), np.zeros(len(value), dtype=bool)
    if positive:
        warn[:positive], fail[:positive] = _risen_by_ratio(value[:positive], t)
    if positive < len(value):
        warn[positive:] = _risen_by_difference(frame, evals, t)[positive:]
    return warn, fail


def _risen_by_ratio(value: Floats, t: EvaluationThresholds) -> tuple[Bools, Bools]:
    warn, fail = np.zeros(len(value), dtype=bool), np.zeros(len(value), dtype=bool)
    if not _left_best(value, t.rise_warn):  # spare the long way
        return warn, fail
    start, highest = _start(value), float(value[:3].max())  # a first evaluation that stands alone never makes a FAIL
    for level in levels(np.log(value), t, climbing=True):
        now, best = np.exp(level.level), np.exp(level.best)
        given_back = now - best - np.maximum(start - best, 0.0) * t.rise_share_warn
        warn |= level.clear & (now >= t.rise_warn * best) & (given_back >= 0)
        given_back = now - best - np.maximum(highest - best, 0.0) * t.rise_share_fail
        fail |= level.clear & (now >= t.rise_fail * best) & (given_back >= 0)
    return warn, fail


def _left_best(value: Floats, ratio: float) -> bool:
    """Whether any level of 3 stands `ratio` above the best one. If not, no wider one does: where most of w values are low, so are two of
    some three neighbours."""
    level = level_so_far(value, 3)[2:]
    return len(level) > 0 and bool((level >= ratio * np.minimum.accumulate(level)).any())


def _start(value: Floats) -> Floats:
    """The median of the first 3 values, as far as they have come, shape (n,)."""
    out = np.full(len(value), stats.median(value[:3]))
    out[:2] = [stats.median(value[: k + 1]) for k in range(min(2, len(value)))]
    return out


def _risen_by_difference(frame: Frame, evals: Series, t: EvaluationThresholds) -> Bools:
    value = evals.value
    warn = np.zeros(len(value), dtype=bool)
    noise = noise_so_far(value)
    with np.errstate(over="ignore", invalid="ignore"):
        for level in levels(value, t):
            rise = level.level - level.best
            gained = np.maximum(_start(value) - level.best, 0.0)
            far = (
                (rise >= t.rise_gained * gained)
                & (rise >= t.rise_units * noise)
                & (rise >= (t.rise_warn - 1) * np.abs(level.best))
            )
            warn |= level.clear & far
    return warn | _erratic(frame, evals, noise, t)


def _erratic(frame: Frame, evals: Series, noise: Floats, t: EvaluationThresholds) -> Bools:
    """Where the eval loss is noise beside all that training has gained, and stands far above the training loss, shape (n,)."""
    out = np.zeros(len(evals), dtype=bool)
    if "loss" not in frame or len(loss := frame["loss"].finite) < 10:
        return out
    level = loss.memo(stats.median5)
    at = loss.upto(evals.step)
    trained = np.where(at >= 9, level[4] - level[np.maximum(at, 4)], 0.0)
    with np.errstate(over="ignore", invalid="ignore"):
        apart = level_so_far(evals.value, 3) - level[np.maximum(at, 4)]
        out = (trained > 0) & (noise >= t.erratic_noise * trained) & (apart >= t.erratic_apart * trained)
    out[: t.erratic_evals - 1] = False
    return out


@rule(
    "TP502",
    "metric-regression",
    severity=FAIL,
    needs=("eval/*",),
    objectives=SUPERVISED | {"adversarial"},
    whole_run=True,
    fix="Go back to the checkpoint of the best evaluation; look at what changed after it.",
)
def metric_regression(frame: Frame, t: EvaluationThresholds) -> Iterator[Sighting]:
    """A task metric has lost a good part of what it had.

    What it does
    Compares the level of each metric whose direction is known with its best level, smoothed and in units of noise as TP501 does.

    Why it matters
    The task metric is what the run is for; a loss that is only 1.6 times worse can hide its collapse.

    Formula
    At least 4 evaluations. The level is worse than the best one by more than noise (TP501), by 0.02 on a scale of 1 (2 on a scale of
    100), and by 10 % of the best and 5 % of what had been gained since the start: WARN; by 50 % of both: FAIL. WARN, too, where the 4 or
    more evaluations after the first one are all worse than it by as much, and by twice what lies between the best and the worst of them.
    INFO while another task metric still improves (precision falls where recall rises).

    False positives
    Noisy metrics of small sets need a larger fall. A metric that never was above its start by more than the fall is TP504's business.

    What to try
    Keep the best checkpoint by this metric.
    """
    metrics = task_metrics(frame)
    if not metrics:
        raise CannotTell("no evaluation metric with a known direction")
    judged = [metric for metric in metrics if len(metric.series) >= t.rise_min_evals]
    if not judged:
        raise CannotTell(f"{max(len(m.series) for m in metrics)} evaluations, needs {t.rise_min_evals}")
    for metric in judged:
        if seen := _regression(frame, metric, t):
            yield seen


def _regression(frame: Frame, metric: Metric, t: EvaluationThresholds) -> Sighting | None:
    warn, fail = _fallen(metric.gain, t)
    if not eval_values.has_base(frame, metric.series):
        warn |= _first_alone(metric.gain, t)
    if not warn[-1]:
        return None
    evals, best = metric.series, best_so_far(metric.gain)
    excused, other = improving(frame, evals.step[best], evals.step, t, but=evals.name)
    severity = INFO if excused[-1] else FAIL if fail[-1] else WARN
    held = {INFO: warn, WARN: warn & ~excused, FAIL: fail & ~excused}[severity]
    start, high, last = since(held) or 0, int(best[-1]), len(evals) - 1
    told = f"; {other} still improves" if severity is INFO else ""
    return sighting(
        severity,
        f"{evals.name} went from its best, {evals.value[high]:.4g} at step {evals.step[high]}, to {evals.value[-1]:.4g} at step "
        f"{evals.step[-1]}{told}.",
        evals,
        first=high,
        last=last,
        flagged=start,
        cite=sorted({high, start, last - 1, last}),
        threshold={"lost": t.regression_fail if severity is FAIL else t.regression_warn},
    )


def _fallen(gain: Floats, t: EvaluationThresholds) -> tuple[Bools, Bools]:
    """Where a metric, higher is better, has fallen far enough to WARN and to FAIL, each of shape (n,)."""
    warn, fail = np.zeros(len(gain), dtype=bool), np.zeros(len(gain), dtype=bool)
    start = _start(gain)
    with np.errstate(over="ignore", invalid="ignore"):
        for level in levels(-gain, t):
            best, fall = -level.best, level.level - level.best
            gained = np.maximum(best - start, 0.0)
            clear = level.clear & (fall >= _least(best, t))
            warn |= clear & (fall >= t.regression_warn * np.abs(best)) & (fall >= t.regression_share_warn * gained)
            fail |= clear & (fall >= t.regression_fail * np.abs(best)) & (fall >= t.regression_fail * gained)
    return warn, fail


def _first_alone(gain: Floats, t: EvaluationThresholds) -> Bools:
    """Where every evaluation so far is far worse than the first one, higher is better, which no level of 3 shows; shape (n,)."""
    out = np.zeros(len(gain), dtype=bool)
    first, later = float(gain[0]), gain[1:]
    best, worst = np.maximum.accumulate(later), np.minimum.accumulate(later)
    with np.errstate(over="ignore", invalid="ignore"):
        fall = first - best
        far = (fall >= _least(gain[:1], t)) & (fall >= t.regression_warn * abs(first))
        out[1:] = far & (fall >= t.alone_ranges * (best - worst))
    out[: t.alone_evals] = False
    return out


def _least(best: Floats, t: EvaluationThresholds) -> Floats:
    """The least fall of a metric that counts, of metrics given as shares and as percentages, shape as `best`."""
    return t.regression_least * np.where(np.abs(best) > 1, 100.0, 1.0)
