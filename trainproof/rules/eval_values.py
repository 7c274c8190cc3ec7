"""TP503, TP504: evaluations that are not finite, or worse than before training."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trainproof import stats
from trainproof.frame import Frame, Series
from trainproof.names import higher_is_better
from trainproof.rules.eval_series import (
    SPLITS,
    improving,
    is_loss,
    level_so_far,
    losses_or_none,
    noise_bar,
    noise_so_far,
    since,
    task_metrics,
)
from trainproof.rules.registry import EVERY, FAIL, INFO, SUPERVISED, WARN, CannotTell, Sighting, rule, sighting
from trainproof.stats import Bools, Floats
from trainproof.thresholds import EvaluationThresholds


@rule(
    "TP503",
    "nonfinite-eval",
    severity=FAIL,
    objectives=EVERY,
    whole_run=True,
    fix="Evaluate the last finite checkpoint; check evaluation batches without any target, and half-precision overflow.",
)
def nonfinite_eval(frame: Frame, t: EvaluationThresholds) -> Iterator[Sighting]:
    """An evaluation loss is NaN or infinite.

    What it does
    Looks for non-finite values in the eval and test losses, and for task metrics that have turned non-finite and stay so.

    Why it matters
    It is often the first place where broken weights show, because loggers hide NaN in the training loss.

    Formula
    Any non-finite loss: FAIL; WARN when a later evaluation of it is finite. A task metric of known direction that was finite 3 times
    and is not in its last 2 evaluations: WARN.

    False positives
    Metrics that are NaN in health (explained variance, precision of absent classes) have no known direction or come back. A perplexity
    overflows where the loss is finite; it is not looked at. A part of the loss that was never finite beside a finite eval loss: INFO.

    What to try
    Evaluate one batch by hand; look at the weights of that checkpoint for NaN.
    """
    names = [name for name in frame if name.startswith(SPLITS) and len(frame[name])]
    if not names:
        raise CannotTell("no eval metrics in the log")
    for name in names:
        bad = ~np.isfinite(frame[name].value)
        if not bad.any():
            continue
        if "loss" in name.lower():
            yield _nonfinite_loss(frame, frame[name], bad)
        elif not is_loss(name) and higher_is_better(name) is not None:
            yield from _nonfinite_metric(frame[name], bad, t)


def _nonfinite_loss(frame: Frame, evals: Series, bad: Bools) -> Sighting:
    first = int(np.argmax(bad))
    severity, flagged = WARN, first
    if bad[-1]:
        severity, flagged = FAIL, since(bad) or 0
    if bad.all() and evals.name not in ("eval/loss", "test/loss") and _has_finite_loss(frame):
        severity = INFO
    return sighting(
        severity,
        f"{evals.name} is not finite in {int(bad.sum())} of {len(evals)} evaluations, first at step {evals.step[first]}"
        f"{'' if bad[-1] else '; a later one is finite'}.",
        evals,
        first=first,
        last=int(np.flatnonzero(bad)[-1]),
        flagged=flagged,
        cite=sorted({max(0, first - 1), first, flagged}),
        threshold={"evaluations": 1},
    )


def _has_finite_loss(frame: Frame) -> bool:
    return any(name in frame and len(frame[name].finite) > 0 for name in ("eval/loss", "test/loss"))


def _nonfinite_metric(evals: Series, bad: Bools, t: EvaluationThresholds) -> Iterator[Sighting]:
    run = stats.last_run(bad)
    if (
        run is None
        or run[1] - run[0] < t.nonfinite_metric_evals
        or int((~bad[: run[0]]).sum()) < t.nonfinite_metric_finite
    ):
        return
    flagged = run[0] + t.nonfinite_metric_evals - 1
    yield sighting(
        WARN,
        f"{evals.name} was finite and is not in its last {run[1] - run[0]} evaluations, since step {evals.step[run[0]]}.",
        evals,
        first=run[0],
        last=run[1] - 1,
        flagged=flagged,
        cite=sorted({run[0] - 1, run[0], flagged}),
        threshold={"evaluations": t.nonfinite_metric_evals},
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
    Compares the eval loss and the task metrics with their evaluation before training: one at or before the first record of the
    training loss, with at least 5 such records before the next evaluation.

    Why it matters
    A fine-tune that never gets back to its base has cost money and a model.

    Formula
    The median of the last 3 evaluations is worse than the base by 2 % of it and by 6 (1 + 6 / n) units of noise: WARN; and none since
    the base was better than 2 % worse, 3 or more of them: FAIL. The noise is that of all evaluations, the base included: where they are few, a
    verdict takes 4 or 5 of them. A loss that is worse while a task metric still improves: INFO; a metric
    that is worse while the eval loss is better than its base: WARN.

    False positives
    Evaluations within 2 % of the base are no worse than it. A base scored under another prompt or text normalisation is no base.

    What to try
    Evaluate the untouched base model once more, with the training code.
    """
    losses = [(s.finite, -1) for s in losses_or_none(frame)]
    metrics = [(m.series, m.sign) for m in task_metrics(frame)]
    based = [(s, sign) for s, sign in losses + metrics if has_base(frame, s)]
    if not based:
        raise CannotTell("no evaluation before training")
    loss_fell = any(s.value[-1] < s.value[0] for s, _ in losses if has_base(frame, s))
    for evals, sign in based:
        if seen := _below_base(frame, evals, sign, loss_fell, t):
            yield seen


def has_base(frame: Frame, evals: Series) -> bool:
    """Whether the first evaluation came before training: an epoch counted from 0 also gives a step 0, after a whole epoch."""
    if len(evals) < 2 or "loss" not in frame or not len(loss := frame["loss"]):
        return len(evals) > 1 and int(evals.step[0]) == 0 and "loss" not in frame
    between = np.searchsorted(loss.step, evals.step[1], side="right")
    return bool(evals.step[0] <= loss.step[0] and between >= 5)


def _below_base(frame: Frame, evals: Series, sign: int, loss_fell: bool, t: EvaluationThresholds) -> Sighting | None:
    worse, never = _worse_than_base(-sign * evals.value, t)
    if not worse[-1]:
        return None
    excused, metric = improving(frame, np.full(len(evals), evals.step[0]), evals.step, t, but=evals.name)
    severity = FAIL if never[-1] else WARN
    if is_loss(evals.name) and excused[-1]:
        severity = INFO
    elif not is_loss(evals.name) and loss_fell:
        severity = WARN
    start = since(worse & never if severity is FAIL else worse) or 0
    later = sign * evals.value[1:]
    return sighting(
        severity,
        f"{evals.name} was {evals.value[0]:.4g} before training (step {evals.step[0]}); the best of {len(later)} evaluations since is "
        f"{sign * later.max():.4g}, the last {evals.value[-1]:.4g}{f'; {metric} still improves' if severity is INFO else ''}.",
        evals,
        first=0,
        last=len(evals) - 1,
        flagged=start,
        cite=sorted({0, 1 + int(np.argmax(later)), start, len(evals) - 1}),
        threshold={"margin": t.baseline_margin},
    )


def _worse_than_base(y: Floats, t: EvaluationThresholds) -> tuple[Bools, Bools]:
    """Where the level of y, higher is worse, is above y[0], and where no later point had come near y[0], each of shape (n,)."""
    margin = t.baseline_margin * abs(float(y[0]))
    with np.errstate(over="ignore", invalid="ignore"):
        rise = level_so_far(y, 3) - y[0]
        worse = (rise >= margin) & (rise >= noise_bar(len(y), t) * noise_so_far(y))
        worse[: t.baseline_evals] = False
        above = y - y[0] > margin
    above[0] = True
    return worse, np.logical_and.accumulate(above)
