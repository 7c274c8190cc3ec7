"""TP507, TP509: the evaluation loss beside the training loss."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trainproof import stats
from trainproof.frame import Frame, Series
from trainproof.rules.eval_series import eval_losses, since
from trainproof.rules.registry import (
    CROSS_ENTROPY,
    FAIL,
    INFO,
    SUPERVISED,
    WARN,
    CannotTell,
    Sighting,
    evidence,
    rule,
    sighting,
)
from trainproof.stats import Bools, Floats
from trainproof.thresholds import EvaluationThresholds
from trainproof.verdict import Severity


@rule(
    "TP507",
    "eval-too-good",
    severity=WARN,
    needs=("loss", "eval/*"),
    objectives=CROSS_ENTROPY,
    whole_run=True,
    fix="Look for samples that are in both splits, labels inside the inputs, and a wrong attention mask.",
)
def eval_too_good(frame: Frame, t: EvaluationThresholds) -> Iterator[Sighting]:
    """The evaluation is better than held-out data allow.

    What it does
    Looks for a training and an evaluation loss near zero in the first epoch, and for evaluations equal to the training loss.

    Why it matters
    Held-out data that are predicted that well were not held out.

    Formula
    Evaluation loss and training loss (median of 3) both under 0.02 nats before the first epoch ends, in a run that began at 0.5 or above;
    or 3 evaluations in a row equal to the training loss beside them to 4 digits while they move by more than 1 %. WARN.

    False positives
    An evaluation loss below the training loss is normal (dropout, augmentation) and is not flagged. Both losses at the same constant (the
    loss of a guess) are no leak.

    What to try
    Hash the samples of both splits and compare.
    """
    loss = frame["loss"].finite
    for evals in (series.finite for series in eval_losses(frame)):
        if not len(evals) or not len(loss):
            continue
        last, level = beside(loss, evals)
        low = (level < t.good_loss) & (evals.value < t.good_loss) & _first_epoch(frame, evals)
        if low.any() and stats.median(loss.value[:3]) >= t.good_first:
            yield _too_good(evals, int(np.argmax(low)), "near zero, as is the training loss, in the first epoch", t)
        elif (run := stats.first_run(_equal(evals.value, last, t), 1)) is not None:
            yield _too_good(evals, run[0], "equal to the training loss to 4 digits", t)


def _equal(value: Floats, other: Floats, t: EvaluationThresholds) -> Bools:
    """Where the last `equal_evals` of two columns have been the same to 4 digits, and have moved meanwhile."""
    width = t.equal_evals
    out = np.zeros(len(value), dtype=bool)
    if len(value) < width:
        return out
    rows = np.lib.stride_tricks.sliding_window_view(value, width)
    same = np.abs(value - other) <= t.equal_digits * np.abs(value)
    moved = rows.max(axis=1) - rows.min(axis=1) > t.equal_moved * np.abs(rows).max(axis=1)
    out[width - 1 :] = np.lib.stride_tricks.sliding_window_view(same, width).all(axis=1) & moved
    return out


def _too_good(evals: Series, flagged: int, what: str, t: EvaluationThresholds) -> Sighting:
    return sighting(
        WARN,
        f"{evals.name} is {what} (step {evals.step[flagged]}: {evals.value[flagged]:.4g}). This is consistent with a split that leaks.",
        evals,
        first=0,
        last=flagged,
        flagged=flagged,
        threshold={"loss": t.good_loss, "equal": t.equal_digits},
    )


def beside(loss: Series, evals: Series) -> tuple[Floats, Floats]:
    """The training loss at or before each evaluation, and the median of its last 3 (fewer at the start); NaN before the first."""
    at = loss.upto(evals.step)
    last = loss.value[np.maximum(at, 0)]
    level = _middle(*(loss.value[np.maximum(at - back, 0)] for back in range(3)))
    return np.where(at >= 0, last, np.nan), np.where(at >= 0, level, np.nan)


def _middle(a: Floats, b: Floats, c: Floats) -> Floats:
    """The middle one of three, elementwise; NaN where one is."""
    return np.maximum(np.minimum(a, b), np.minimum(np.maximum(a, b), c))


def _first_epoch(frame: Frame, evals: Series) -> Bools:
    """Evaluations before the first epoch ended; none where epochs are not known."""
    if "epoch" not in frame or not len(epoch := frame["epoch"].finite):
        return np.zeros(len(evals), dtype=bool)
    done = np.flatnonzero(epoch.value >= 1.0)
    end = int(epoch.step[done[0]]) if len(done) else np.iinfo(np.int64).max
    return np.asarray(evals.step < end, dtype=bool)


@rule(
    "TP509",
    "train-eval-scale-mismatch",
    severity=FAIL,
    needs=("loss", "eval/*"),
    objectives=SUPERVISED,
    whole_run=True,
    fix="Check the reduction of the training loss against accumulation and world size; the learning rate may be scaled with it.",
)
def train_eval_scale_mismatch(frame: Frame, t: EvaluationThresholds) -> Iterator[Sighting]:
    """The training loss is several times the evaluation loss: they are not on one scale.

    What it does
    Divides the training loss beside each evaluation (median of 3 records) by the evaluation loss.

    Why it matters
    A training loss summed over micro-batches or ranks is a gradient too large by the same factor.

    Formula
    Ratio >= 5 in 2 consecutive evaluations of the last half (of the planned steps, else of the evaluations so far) and ever since: WARN.
    When the last 3 ratios spread by less than 15 % (standard deviation over median) and their median is within 15 % of the declared
    accumulation, world size or their product: FAIL. A training loss smaller than the evaluation loss by the declared accumulation: INFO.

    False positives
    Augmentation and label smoothing make the training loss up to 4.1 times the evaluation loss in healthy runs; sums over several heads
    and auxiliary terms are on another scale by design (WARN).

    What to try
    Evaluate a training batch with the evaluation code.
    """
    loss, judged = frame["loss"].finite, False
    for evals in (series.finite for series in eval_losses(frame)):
        if len(loss) and len(evals) >= t.scale_min_evals:
            judged = True
            if seen := _mismatch(frame, loss, evals, t):
                yield seen
    if not judged:
        raise CannotTell(f"needs {t.scale_min_evals} evaluations beside training losses")


def _mismatch(frame: Frame, loss: Series, evals: Series, t: EvaluationThresholds) -> Sighting | None:
    ratio = _ratio(loss, evals)
    warn = _two_late(ratio >= t.scale_ratio, frame, evals)
    if (start := since(warn)) is not None:
        name, proven = _declared(ratio, frame, t)
        fail = since(warn & proven)
        seen = start if fail is None else fail
        factor = "" if fail is None else f", the declared {name}"
        message = f"the training loss is {stats.median(ratio[-3:]):.3g} x {evals.name} in the last evaluations{factor}."
        return _told(FAIL if fail is not None else WARN, message, loss, evals, start, seen, t)
    name, proven = _declared(1 / ratio, frame, t)
    small = since(_two_late(1 / ratio >= t.scale_ratio, frame, evals) & proven)
    if small is None or name != "accumulation":
        return None
    message = f"{evals.name} is {stats.median(1 / ratio[-3:]):.3g} x the training loss, the declared accumulation: the log divides by it."
    return _told(INFO, message, loss, evals, small, small, t)


def _ratio(loss: Series, evals: Series) -> Floats:
    """Training loss over evaluation loss; NaN where either is not positive, or no training loss came since the last evaluation."""
    _, level = beside(loss, evals)
    fresh = np.diff(np.searchsorted(loss.step, evals.step, side="right"), prepend=0) > 0
    good = fresh & (level > 0) & (evals.value > 0)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        return np.where(good, level / np.where(good, evals.value, 1.0), np.nan)


def _two_late(mask: Bools, frame: Frame, evals: Series) -> Bools:
    """Where `mask` held at an evaluation and the one before, both in the last half."""
    n = len(mask)
    if frame.total_steps:
        late = evals.step > frame.total_steps / 2
    else:
        late = np.ones(n, dtype=bool)  # the one before is in the last half of k + 1 evaluations from the third on
        late[:1] = False
    both = mask & late
    both[1:] &= both[:-1]
    both[:1] = False
    return both


def _declared(ratio: Floats, frame: Frame, t: EvaluationThresholds) -> tuple[str, Bools]:
    """The declared factor that the ratio comes near, and where the last 3 ratios are steady and near it."""
    accumulation, world = (frame.facts.number(name) or 1.0 for name in ("accumulation", "world_size"))
    near = np.zeros(len(ratio), dtype=bool)
    if len(ratio) < 3:
        return "", near
    rows = np.lib.stride_tricks.sliding_window_view(ratio, 3)
    with np.errstate(over="ignore", invalid="ignore"):
        middle = _middle(ratio[:-2], ratio[1:-1], ratio[2:])
        steady = np.std(rows, axis=1) < t.scale_spread * middle
        for name, n in (
            ("accumulation", accumulation),
            ("world size", world),
            ("accumulation x world size", accumulation * world),
        ):
            if n >= t.scale_ratio * (1 - t.scale_near):
                near[2:] = steady & (np.abs(middle / n - 1) <= t.scale_near)
                if near[-1]:
                    return name, near
    return "", near


def _told(
    severity: Severity, message: str, loss: Series, evals: Series, first: int, flagged: int, t: EvaluationThresholds
) -> Sighting:
    at = int(np.searchsorted(loss.step, evals.step[flagged], side="right")) - 1
    return sighting(
        severity,
        message,
        evals,
        first=max(0, first - 1),
        last=len(evals) - 1,
        flagged=flagged,
        more=evidence(loss, range(max(0, at - 2), at + 1)),
        threshold={"ratio": t.scale_ratio},
    )
