"""TP506, TP507, TP509: the training loss beside evaluations and epochs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trainproof import stats
from trainproof.frame import Frame, Series
from trainproof.rules.eval_series import eval_losses, still_improving
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
from trainproof.thresholds import EvaluationThresholds


def epoch_edges(frame: Frame, loss: Series) -> list[int]:
    """Indices of the loss records at which each epoch begins, the first included. Raises CannotTell when epochs are not known."""
    if "epoch" in frame:
        epoch = frame["epoch"].finite
        at = np.clip(np.searchsorted(epoch.step, loss.step, side="right") - 1, 0, None)
        number = np.floor(epoch.value[at] - 1e-9) if len(epoch) else np.zeros(len(loss))
    elif steps := frame.facts.number("steps_per_epoch"):
        number = np.floor((loss.step - 1) / steps)
    else:
        raise CannotTell("no epochs in the log (--fact steps_per_epoch=N)")
    return [0, *(np.flatnonzero(np.diff(number) > 0) + 1).tolist()]


@rule(
    "TP506",
    "staircase-at-epochs",
    severity=WARN,
    needs=("loss",),
    objectives=SUPERVISED,
    min_records=20,
    whole_run=True,
    fix="Fewer epochs or a lower learning rate; add an evaluation set and stop where it is best.",
)
def staircase_at_epochs(frame: Frame, t: EvaluationThresholds) -> Iterator[Sighting]:
    """The training loss falls in a step at each epoch boundary: the model recognises what it has seen.

    What it does
    Compares the last records of an epoch with the first ones of the next.

    Why it matters
    Within an epoch every sample is new; a loss that drops as soon as they repeat is memorisation.

    Formula
    m = min(25, max(5, a fifth of the epoch's records)) records on either side: drop >= 10 %, >= 6 standard errors, and >= 1.5 times the
    decline inside the epoch before. WARN; INFO while an evaluation still improves.

    False positives
    Running means that restart at each epoch (recognised by steps that shrink as 1/n); epochs of fewer than 2 m records (skipped).

    What to try
    Look at the evaluation loss across the boundary.
    """
    loss = frame["loss"].finite
    edges = epoch_edges(frame, loss)
    bounds = [*edges, len(loss)]
    for before, boundary, after in zip(bounds, bounds[1:], bounds[2:], strict=False):
        m = min(t.staircase_most, max(t.staircase_least, (boundary - before) // 5))
        if boundary - before < 2 * m or after - boundary < m:
            continue
        epoch = loss.value[before:boundary]
        low, high = float(np.median(loss.value[boundary : boundary + m])), float(np.median(epoch[-m:]))
        drop, decline = high - low, float(np.median(epoch[:m])) - high
        noise = stats.difference_noise(epoch)
        se = stats.MEDIAN_SE * noise * float(np.sqrt(2 / m))
        if (
            drop < t.staircase_drop * abs(high)
            or drop < t.staircase_z * se
            or drop < t.staircase_decline * decline
            or stats.is_running_mean(epoch)
        ):
            continue
        improving = _eval_improves(frame, int(loss.step[boundary]), t)
        yield sighting(
            INFO if improving else WARN,
            f"the loss fell from {high:.4g} to {low:.4g} ({drop / abs(high):.0%}) at the epoch boundary of step {loss.step[boundary]} (medians of {m} records); "
            f"inside the epoch before it fell by {decline:.4g}. This is consistent with memorisation.",
            loss,
            first=boundary - m,
            last=boundary + m - 1,
            flagged=boundary + m - 1,
            cite=[boundary - 1, boundary, boundary + m - 1],
            threshold={"drop": t.staircase_drop, "z": t.staircase_z},
        )
        return


def _eval_improves(frame: Frame, step: int, t: EvaluationThresholds) -> bool:
    """Whether the evaluation loss found its best after `step`, or a task metric still improves."""
    try:
        evals = eval_losses(frame)[0].finite
    except CannotTell:
        return False
    before, after = evals.value[evals.step <= step], evals.value[evals.step > step]
    if len(before) and len(after) and after.min() < before.min():
        return True
    return still_improving(frame, step, t) is not None


def _trained_between(loss: Series, evals: Series) -> stats.Bools:
    """Evaluations with a training loss since the one before: an older loss says nothing of the scale now."""
    upto = np.searchsorted(loss.step, evals.step, side="right")
    return np.diff(upto, prepend=0) > 0


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
    Evaluation and training loss both under 0.02 nats before the first epoch ends; or equal to 4 digits in 3 evaluations. WARN.

    False positives
    An evaluation loss below the training loss is normal (dropout, augmentation) and is not flagged.

    What to try
    Hash the samples of both splits and compare.
    """
    loss = frame["loss"].finite
    for evals in (series.finite for series in eval_losses(frame)):
        beside = np.array([_level_at(loss, int(step)) for step in evals.step])
        equal = (
            np.isfinite(beside)
            & (np.abs(evals.value - beside) <= t.equal_digits * np.abs(evals.value))
            & (evals.value != 0)
        )
        low = np.isfinite(beside) & (beside < t.good_loss) & (evals.value < t.good_loss) & _first_epoch(frame, evals)
        hits = np.flatnonzero(equal)
        flagged = (
            int(hits[t.equal_evals - 1]) if len(hits) >= t.equal_evals else int(np.argmax(low)) if low.any() else None
        )
        if flagged is None:
            continue
        what = (
            "equal to the training loss to 4 digits"
            if len(hits) >= t.equal_evals
            else "near zero, as is the training loss, in the first epoch"
        )
        yield sighting(
            WARN,
            f"{evals.name} is {what} (step {evals.step[flagged]}: {evals.value[flagged]:.4g}). This is consistent with a split that leaks.",
            evals,
            first=0,
            last=flagged,
            flagged=flagged,
            threshold={"loss": t.good_loss, "equal": t.equal_digits},
        )


def _level_at(loss: Series, step: int) -> float:
    """The median of the last 3 training losses at or before `step`; NaN before the first."""
    upto = int(np.searchsorted(loss.step, step, side="right"))
    return float(np.median(loss.value[max(0, upto - 3) : upto])) if upto else float("nan")


def _first_epoch(frame: Frame, evals: Series) -> stats.Bools:
    """Evaluations before the first epoch ended; none where epochs are not known."""
    if "epoch" not in frame:
        return np.zeros(len(evals), dtype=bool)
    epoch = frame["epoch"].finite
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
    Divides the training loss beside each evaluation by the evaluation loss.

    Why it matters
    A training loss summed over micro-batches or ranks is a gradient too large by the same factor.

    Formula
    Ratio >= 5 in 2 consecutive evaluations of the last half: WARN; when its spread is under 15 % and it is within 15 % of the declared
    accumulation or world size: FAIL.

    False positives
    Augmentation and label smoothing make the training loss up to 4.1 times the evaluation loss in healthy runs; sums over several heads
    are on another scale by design (WARN).

    What to try
    Evaluate a training batch with the evaluation code.
    """
    loss = frame["loss"].finite
    for evals in (series.finite for series in eval_losses(frame)):
        if len(evals) < t.scale_min_evals or not (evals.value > 0).all():
            continue
        ratio = np.array([_level_at(loss, int(step)) for step in evals.step]) / evals.value
        ratio[~_trained_between(loss, evals)] = np.nan
        late = ratio[len(ratio) // 2 :]
        run = stats.first_run(np.nan_to_num(late) >= t.scale_ratio, t.scale_evals)
        if run is None:
            continue
        flagged = len(ratio) // 2 + run[0] + t.scale_evals - 1
        steady = late[np.isfinite(late)]  # not empty: the run above is among them
        middle = float(np.median(steady))
        spread = float(np.std(steady)) / middle
        factor = next(
            (
                name
                for name in ("accumulation", "world_size")
                if (n := frame.facts.number(name)) and abs(middle / n - 1) <= t.scale_near
            ),
            None,
        )
        fail = factor is not None and spread < t.scale_spread
        yield sighting(
            FAIL if fail else WARN,
            f"the training loss is {middle:.3g} x {evals.name} over the last half{f', the declared {factor}' if fail else ''}.",
            evals,
            first=len(ratio) // 2,
            last=len(evals) - 1,
            flagged=flagged,
            more=evidence(loss, [max(0, int(np.searchsorted(loss.step, evals.step[flagged], side="right")) - 1)]),
            threshold={"ratio": t.scale_ratio},
        )
