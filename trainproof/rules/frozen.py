"""TP505: evaluations that give the same value again and again."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trainproof import stats
from trainproof.frame import Frame, Series
from trainproof.names import higher_is_better
from trainproof.rules.eval_series import losses_or_none, task_metrics
from trainproof.rules.registry import FAIL, INFO, WARN, CannotTell, Sighting, rule, sighting
from trainproof.stats import Floats
from trainproof.thresholds import EvaluationThresholds
from trainproof.verdict import Severity


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
    Looks for an eval loss or a task metric that is the same to every digit in the latest evaluations.

    Why it matters
    Two different models never score the same to six digits: the weights do not change, the model collapsed to one answer, or the result
    is cached.

    Formula
    Loss, 6 significant digits or more (or exactly 0 after other values): 3 equal evaluations WARN, 5 FAIL. INFO when it is the best value
    of a loss that had fallen (training had ended), WARN when metrics of other splits move (a cached result).
    Task metric, while the eval loss moves or is not logged: 5 equal evaluations WARN, if it is at its worst value (0; an error rate of
    1 or 100; the declared 1 / classes) or has 6 digits and is no fraction of 200 or fewer samples. FAIL when the loss is level too (its
    fall over these evaluations is under 2 %) and the value is the worst, or has been the same 10 times. A loss that falls: WARN after 10.

    False positives
    A constant of few digits since the first evaluation is a placeholder (0, -1) and is passed over, and so is a part of the loss that
    never changed; a perfect score is saturated; a coarse metric of a small set repeats by chance.

    What to try
    Evaluate two checkpoints by hand and compare their predictions.
    """
    losses, metrics = losses_or_none(frame), task_metrics(frame)
    if not losses and not metrics:
        raise CannotTell("no evaluation loss and no metric with a known direction")
    for evals in losses:
        if seen := _frozen_loss(frame, evals.finite, t):
            yield seen
            return
    frozen = [(m.series, run) for m in metrics if (run := _equal_at_end(m.series.value)) >= t.frozen_metric_warn]
    if len(frozen) == len(metrics):  # a metric that is stuck beside one that moves says nothing of the model
        for metric in metrics:
            if seen := _frozen_metric(frame, metric.series, metric.sign, t):
                yield seen
                return


def _equal_at_end(value: Floats) -> int:
    """How many of the last values are the same."""
    run = stats.last_run(value == value[-1]) if len(value) else None
    return run[1] - run[0] if run else 0


def _frozen_loss(frame: Frame, evals: Series, t: EvaluationThresholds) -> Sighting | None:
    run = _equal_at_end(evals.value)
    if run < t.frozen_warn:
        return None
    value, start = float(evals.value[-1]), len(evals) - run
    if significant_digits(value) < t.frozen_digits and not (value == 0 and start > 0):
        return None
    if start == 0 and not evals.name.endswith("/loss"):
        return None
    severity, why = (FAIL if run >= t.frozen_fail else WARN), ""
    if start > 0 and value != 0 and value <= evals.value.min() and value < (1 - t.frozen_fell) * evals.value[0]:
        severity, why = INFO, ", its best: consistent with a schedule that had ended"
    elif severity is FAIL and _others_move(frame, int(evals.step[start])):
        severity, why = WARN, ", while metrics of other splits move: consistent with a cached result"
    return _frozen(evals, run, severity, t.frozen_fail if severity is FAIL else t.frozen_warn, why, t)


def _frozen(evals: Series, run: int, severity: Severity, needed: int, why: str, t: EvaluationThresholds) -> Sighting:
    start = len(evals) - run
    return sighting(
        severity,
        f"{evals.name} is exactly {float(evals.value[-1])!r} in the last {run} evaluations, since step {evals.step[start]}{why}.",
        evals,
        first=start,
        last=len(evals) - 1,
        flagged=start + needed - 1,
        threshold={"evaluations": needed, "digits": t.frozen_digits},
    )


def _others_move(frame: Frame, since_step: int) -> bool:
    """Whether a metric of another split has moved since a step: then the model changes, and only this evaluation does not."""
    for name, series in frame.items():
        if name.startswith(("test/", "train/")) and higher_is_better(name) is not None:
            late = series.value[series.step >= since_step]
            if len(late) > 1 and (late != late[0]).any():
                return True
    return False


def _frozen_metric(frame: Frame, evals: Series, sign: int, t: EvaluationThresholds) -> Sighting | None:
    run, value = _equal_at_end(evals.value), float(evals.value[-1])
    worst = _is_worst(frame, evals, sign)
    telling = significant_digits(value) >= t.frozen_digits and not is_small_fraction(value, t.frozen_samples)
    if not worst and (not telling or value in (1.0, 100.0)):
        return None
    falls = _loss_fall(frame, int(evals.step[len(evals) - run]))
    if falls is None and worst and run == len(evals):  # no loss tells a placeholder from a dead model
        return None
    if falls is not None and falls >= t.frozen_loss_fell:
        why = f", while the eval loss fell by {falls:.0%}: consistent with a fault of the metric, not of the model"
        return _frozen(evals, run, WARN, t.frozen_metric_long, why, t) if run >= t.frozen_metric_long else None
    needed = t.frozen_metric_warn if worst else t.frozen_metric_long
    if falls is not None and run >= needed:
        return _frozen(evals, run, FAIL, needed, ": consistent with one answer to every input", t)
    return _frozen(evals, run, WARN, t.frozen_metric_warn, "", t)


def _is_worst(frame: Frame, evals: Series, sign: int) -> bool:
    """Whether a metric stands at the worst value of its scale, or at the declared chance."""
    value = float(evals.value[-1])
    if sign < 0:
        return value in (1.0, 100.0)
    classes = frame.facts.number("num_classes") or 0.0
    return value == 0 or (classes > 1 and "acc" in evals.name and abs(value * classes - 1) < 1e-6)


def _loss_fall(frame: Frame, since_step: int) -> float | None:
    """The share by which the eval loss fell from `since_step` on; None when it was not logged twice since, or stood still itself."""
    for evals in (s.finite for s in losses_or_none(frame)):
        late = evals.value[evals.step >= since_step]
        if len(late) > 1 and late[0] != 0 and (late != late[0]).any():
            return float((late[0] - stats.median(late[-3:])) / abs(late[0]))
    return None


def significant_digits(value: float) -> int:
    """Significant digits of the shortest decimal that reads back as `value`."""
    return len(repr(abs(value)).split("e")[0].replace(".", "").strip("0"))


def is_small_fraction(value: float, samples: int) -> bool:
    """Whether `value`, as a share or a percentage, is a whole number over at most `samples`, to 6 digits."""
    over = np.arange(1, samples + 1)
    share = abs(value) / (100.0 if abs(value) > 1 else 1.0)
    counts = share * over
    return bool((np.abs(counts - np.round(counts)) < 5e-7 * over).any())
