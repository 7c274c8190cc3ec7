"""TP402, TP406: gradient norms that say that a step did not happen; and which norms are no evidence at all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from trainproof import stats
from trainproof.frame import Frame, Series
from trainproof.rules.registry import FAIL, INFO, WARN, CannotTell, Sighting, evidence, rule, sighting
from trainproof.thresholds import GradientThresholds
from trainproof.verdict import Severity


def logged_norms(frame: Frame) -> Series:
    """The finite gradient norms. Raises CannotTell for a placeholder: a column that never moves is no evidence."""
    grads = frame["grad_norm"].finite
    if not len(grads):
        raise CannotTell("no finite gradient norm in the log")
    if grads.constant and len(grads) > 1:
        raise CannotTell(f"the gradient norm is {grads.value[0]:g} throughout, a placeholder")
    return grads


class Stretch(NamedTuple):
    """Norms of exactly 0 in a row: records start..stop (exclusive), the record at which enough is seen, and how much that says."""

    start: int
    stop: int
    flagged: int
    severity: Severity


@rule(
    "TP402",
    "grad-zero-no-update",
    severity=FAIL,
    needs=("grad_norm",),
    min_records=5,
    stops=True,
    fix="Check requires_grad, enable_input_require_grads() with gradient checkpointing, and that the optimizer holds the trained weights.",
)
def grad_zero_no_update(frame: Frame, t: GradientThresholds) -> Iterator[Sighting]:
    """The gradient norm is exactly zero and nothing moves.

    What it does
    Looks for gradient norms of exactly 0 in a row, at a learning rate above 0, while the loss shows no downward trend.

    Why it matters
    No gradient reaches the trained weights: the run costs and does not learn.

    Formula
    grad_norm == 0 in 5 consecutive records with lr > 0 and a loss without a fall (Mann-Kendall Z > -2): FAIL. Where it is 0 from the
    first record the column may be a placeholder: FAIL when the evaluation loss is one and the same in 3 evaluations, WARN when over
    20 % of the planned steps (at least 100 records) the loss falls by less than 5 %, 2 standard errors included.
    Reinforcement learning: KL exactly 0 as well, or, without KL, half of at least 20 records at 0.

    False positives
    A norm of 0 in every record while the loss falls is a placeholder (TP005). A sixth of the records at 0 is normal for rewards in
    small groups. At a learning rate of 0 it is TP301's.

    What to try
    Print the norm of each parameter's gradient after one backward pass.
    """
    grads = frame["grad_norm"].finite
    zero = grads.value == 0
    if not zero.any():
        return
    runs = [r for r in stats.runs_of(zero) if r[1] - r[0] >= t.zero_records]
    learns: str | None = None
    for start, stop in runs:
        if not _rate_is_on(frame, grads, start, stop):
            learns = "the learning rate is 0 where the gradient norm is"
            continue
        seen = _stretch(frame, grads, zero, start, stop, t)
        if seen is not None:
            yield _no_update(grads, zero, seen, t)
            return
        learns = "the gradient norm is 0, but other metrics do not say that nothing moves"
    if learns and zero.all():
        raise CannotTell(learns)


def _stretch(
    frame: Frame, grads: Series, zero: stats.Bools, start: int, stop: int, t: GradientThresholds
) -> Stretch | None:
    """The stretch of zeros, if something else says that nothing moves in it."""
    enough = start + t.zero_records - 1
    if frame.objective == "rl":
        flagged = _rl_flagged(frame, grads, zero, enough, stop, t)
        return None if flagged is None else Stretch(start, stop, flagged, FAIL)
    if "loss" not in frame:
        return None
    loss = frame["loss"].finite
    if start > 0:
        return Stretch(start, stop, enough, FAIL) if _loss_rests(loss, grads, start, stop, t) else None
    frozen = _frozen_evaluation(frame, grads, stop, t)
    if frozen is not None:
        return Stretch(start, stop, frozen, FAIL)
    flat = _flat_start(frame, loss, grads, stop, t)
    return None if flat is None else Stretch(start, stop, flat, WARN)


def _frozen_evaluation(frame: Frame, grads: Series, stop: int, t: GradientThresholds) -> int | None:
    """The record by which the evaluation loss has been one and the same in 3 evaluations, or None."""
    if "eval/loss" not in frame or stop < t.zero_records:
        return None
    evals = frame["eval/loss"].finite
    n = int(np.searchsorted(evals.step, grads.step[stop - 1], side="right"))
    if n < t.zero_evals or not (evals.value[: t.zero_evals] == evals.value[0]).all():
        return None
    at = int(np.searchsorted(grads.step, evals.step[t.zero_evals - 1]))
    return max(at, t.zero_records - 1)


def _flat_start(frame: Frame, loss: Series, grads: Series, stop: int, t: GradientThresholds) -> int | None:
    """The record by which the loss is seen not to move from the start on, or None."""
    planned = t.zero_start_share * (frame.total_steps or 0)
    for count in stats.schedule(stop):
        if count >= t.zero_start_records and grads.step[count - 1] >= planned:
            flat = _loss_is_flat(loss, grads, int(count), t)
            if flat is not None:
                return int(count) - 1 if flat else None
    return None


def _rl_flagged(
    frame: Frame, grads: Series, zero: stats.Bools, enough: int, stop: int, t: GradientThresholds
) -> int | None:
    if "kl" in frame:
        kl = frame["kl"]
        start = enough - t.zero_records + 1
        lo, hi = np.searchsorted(kl.step, [grads.step[start], grads.step[stop - 1] + 1])
        return enough if hi - lo >= t.zero_records and not kl.value[lo:hi].any() else None
    n = np.arange(1, len(zero) + 1)
    often = (np.cumsum(zero) >= t.zero_rl_share * n) & (n >= t.zero_rl_records)
    often[:enough] = False
    lasting = bool(often[-1]) if len(often) else False
    return int(np.argmax(often)) if lasting else None


def _span(loss: Series, grads: Series, start: int, stop: int) -> tuple[int, int]:
    lo, hi = np.searchsorted(loss.step, [grads.step[start], grads.step[stop - 1] + 1])
    return int(lo), int(hi)


def _loss_rests(loss: Series, grads: Series, start: int, stop: int, t: GradientThresholds) -> bool:
    lo, hi = _span(loss, grads, start, stop)
    return hi - lo >= t.zero_records and stats.trend(loss.value, lo, hi).z > t.zero_loss_z


def _loss_is_flat(loss: Series, grads: Series, count: int, t: GradientThresholds) -> bool | None:
    """Whether the loss did not move over the first `count` norms; None when its noise hides the answer."""
    lo, hi = _span(loss, grads, 0, count)
    if hi - lo < t.zero_start_records:
        return None
    seen, level = stats.trend(loss.value, lo, hi), abs(stats.median(loss.value[lo:hi]))
    if seen.z <= t.zero_loss_z:
        return False
    return True if -seen.change + 2 * seen.se < t.zero_start_drop * level else None


def _rate_is_on(frame: Frame, grads: Series, start: int, stop: int) -> bool:
    if "lr" not in frame:
        return True
    lr = frame["lr"].finite
    lo, hi = np.searchsorted(lr.step, [grads.step[start], grads.step[stop - 1] + 1])
    return hi <= lo or bool((lr.value[lo:hi] > 0).any())


def _no_update(grads: Series, zero: stats.Bools, seen: Stretch, t: GradientThresholds) -> Sighting:
    return sighting(
        seen.severity,
        f"the gradient norm is exactly 0 in {int(zero.sum())} of {len(zero)} records, {seen.stop - seen.start} in a row from step "
        f"{grads.step[seen.start]}, and nothing moves.",
        grads,
        first=seen.start,
        last=max(seen.stop - 1, seen.flagged),
        flagged=seen.flagged,
        threshold={"records": t.zero_records},
    )


@rule(
    "TP406",
    "grad-norm-stale",
    severity=WARN,
    needs=("grad_norm", "loss"),
    min_records=3,
    fix="Check whether the optimizer skips these steps (loss scaler, overflow, accumulation).",
)
def grad_norm_stale(frame: Frame, t: GradientThresholds) -> Iterator[Sighting]:
    """The same gradient norm, to every digit, in consecutive records with different losses.

    What it does
    Looks for gradient norms of 6 digits or more that repeat exactly while the loss moves.

    Why it matters
    Two batches never have the same gradient norm: the steps in between were skipped, or the value is stale.

    Formula
    A norm of at least 6 significant digits, identical in 3 consecutive records whose losses differ: WARN, consistent with skipped
    steps. Where 80 % of the runs of equal norms are of the same length, 2 or more, the value is filled forward: INFO.

    False positives
    Norms printed with few digits, and norms clipped to a round limit, repeat by chance and are not looked at.

    What to try
    Compare with the loss scale and the number of skipped steps.
    """
    grads, loss = logged_norms(frame), frame["loss"].finite
    same = np.concatenate(([False], grads.value[1:] == grads.value[:-1]))
    if not same.any():
        return
    runs = [(a - 1, b) for a, b in stats.runs_of(same) if b - a + 1 >= t.stale_records]
    found = next(((a, b) for a, b in runs if _is_stale(grads, loss, a, t)), None)
    if found is None:
        return
    first, stop = found
    regular = _filled_forward(same, t)
    flagged = first + t.stale_records - 1
    near = np.flatnonzero(np.isin(loss.step, grads.step[first : first + t.stale_records]))
    yield sighting(
        INFO if regular else WARN,
        f"the gradient norm {float(grads.value[first]):.8g} repeats in {stop - first} consecutive records with different losses: consistent "
        f"with {'a value that is filled forward' if regular else 'skipped steps'}.",
        grads,
        first=first,
        last=stop - 1,
        flagged=flagged,
        cite=range(first, flagged + 1),
        more=evidence(loss, near),
        threshold={"records": t.stale_records, "digits": t.stale_digits},
    )


def _is_stale(grads: Series, loss: Series, first: int, t: GradientThresholds) -> bool:
    lo, hi = _span(loss, grads, first, first + t.stale_records)
    beside = loss.value[lo:hi]
    differ = len(beside) >= t.stale_records and not bool((beside == beside[0]).all())
    return differ and _digits(float(grads.value[first]), t.stale_digits) >= t.stale_digits


def _digits(value: float, most: int) -> int:
    """Significant digits of `value` rounded to `most` of them."""
    mantissa = f"{abs(value):.{most - 1}e}".partition("e")[0]
    return len(mantissa.replace(".", "").strip("0"))


def _filled_forward(same: stats.Bools, t: GradientThresholds) -> bool:
    """Whether norms change at a regular distance of 2 records or more."""
    starts = np.flatnonzero(~same)
    lengths = np.diff(np.append(starts, len(same)))
    inner = lengths[:-1] if len(lengths) > 2 else lengths
    values, counts = stats.distinct(inner)
    usual = int(values[np.argmax(counts)])
    return usual >= 2 and counts.max() >= t.stale_regular * len(inner)
