"""TP102: gradient norms that are not finite, beyond what a loss scaler explains."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from trainproof import stats
from trainproof.frame import Frame, Series
from trainproof.rules.registry import FAIL, INFO, WARN, Sighting, rule, sighting
from trainproof.thresholds import NumericsThresholds
from trainproof.verdict import Severity


class Hit(NamedTuple):
    """A severity, the record at which it was reached, and why."""

    severity: Severity
    flagged: int
    why: str


@rule(
    "TP102",
    "nonfinite-grad-norm",
    severity=FAIL,
    needs=("grad_norm",),
    fix="Use bfloat16, keep trainable weights in float32, check the attention kernel and gradient communication.",
)
def nonfinite_grad_norm(frame: Frame, t: NumericsThresholds) -> Iterator[Sighting]:
    """The gradient norm is NaN or infinite more often than a loss scaler explains.

    What it does
    Counts non-finite gradient norms, in a row and in all, and asks of each whether a loss scaler skipped that step.

    Why it matters
    A step with such gradients either destroys the weights or is thrown away.

    Formula
    FAIL: 3 or more in a row; 5 % of at least 20 records; or any in bfloat16 (or at a loss scale <= 1) beside a loss that moves wrongly.
    WARN: 1 %. INFO: isolated ones, those of the first 20 records (up to 8 in a row while the schedule does not move), and skipped
    steps: the learning rate repeats on the next record, or the loss scale falls. 9 in a row FAIL even when they were skipped.

    False positives
    Mixed precision searches its scale at the start and probes it now and then; an isolated value under a dynamic scaler is normal.

    What to try
    bfloat16; float32 adapters; switch overlapped communication or the fused attention kernel off once.
    """
    grads = frame["grad_norm"]
    if grads.finite is grads:
        return
    bad = ~np.isfinite(grads.value)
    at = np.flatnonzero(bad)
    hits = [*_streaks(frame, grads, bad, t), *_shares(frame, grads, bad, t), *_harmful(frame, grads, bad, t)]
    info = Hit(INFO, int(at[0]), "consistent with steps that a loss scaler skipped")
    hit = min(hits, key=lambda h: (h.severity is not FAIL, h.flagged), default=info)
    yield sighting(
        hit.severity,
        f"the gradient norm is not finite in {len(at)} of {len(bad)} records, first at step {grads.step[at[0]]}: {hit.why}.",
        grads,
        first=int(at[0]),
        last=int(at[-1]),
        flagged=hit.flagged,
        cite=sorted({*at[:3].tolist(), hit.flagged}),
        threshold={"streak": t.grad_streak, "share": t.grad_share_warn if hit.severity is WARN else t.grad_share},
    )


def _streaks(frame: Frame, grads: Series, bad: stats.Bools, t: NumericsThresholds) -> Iterator[Hit]:
    """Non-finite records in a row: few while the weights were updated, more while a scaler skipped or searched."""
    long = stats.first_run(bad, t.grad_start_streak + 1)
    if long:
        yield Hit(FAIL, long[0] + t.grad_start_streak, f"{long[1] - long[0]} in a row")
    moved = _schedule_moved(frame, grads)
    for start, stop in stats.runs_of(bad & ~_skipped(frame, grads, bad, t)):
        searching = start < t.grad_start and not moved[start:stop].any()
        if stop - start >= t.grad_streak and not searching:
            yield Hit(FAIL, start + t.grad_streak - 1, f"{stop - start} in a row")
            return


def _shares(frame: Frame, grads: Series, bad: stats.Bools, t: NumericsThresholds) -> Iterator[Hit]:
    """Non-finite records by their share of those so far; told only while the share lasts."""
    counted = bad & ~_skipped(frame, grads, bad, t)
    counted[: t.grad_start] = False
    count, n = np.cumsum(counted), np.arange(1, len(bad) + 1)
    for severity, share, least in (
        (FAIL, t.grad_share, t.grad_share_count),
        (WARN, t.grad_share_warn, t.grad_share_count_warn),
    ):
        over = (count >= least) & (count >= share * n) & (n >= t.grad_share_records)
        if over.any() and count[-1] >= share * len(bad):
            yield Hit(severity, int(np.argmax(over)), f"{count[-1] / len(bad):.1%} of the records")
            return


def _harmful(frame: Frame, grads: Series, bad: stats.Bools, t: NumericsThresholds) -> Iterator[Hit]:
    """The first non-finite norm that no scaler skipped (bfloat16, or a scale of 1 and below) beside a loss that moves wrongly."""
    if "loss" not in frame:
        return
    unscaled = bad & _without_scaler(frame, grads, t)
    for i in np.flatnonzero(unscaled)[: t.grad_loss_history]:
        after = _wrong_loss(frame["loss"], int(grads.step[i]), t)
        if after is not None:
            flagged = max(int(i), int(np.searchsorted(grads.step, after, side="right")) - 1)
            yield Hit(FAIL, flagged, "no loss scaler was at work, and the loss moves with it")
            return


def _without_scaler(frame: Frame, grads: Series, t: NumericsThresholds) -> stats.Bools:
    if "loss_scale" in frame and len(frame["loss_scale"]):
        scale = frame["loss_scale"]
        at = scale.upto(grads.step)
        value = scale.value[np.maximum(at, 0)]
        return (at >= 0) & (value > 0) & (value <= t.grad_scale)
    precision = frame.facts.text("precision") or ""
    return np.full(len(grads), "bf16" in precision or "bfloat16" in precision)


def _wrong_loss(loss: Series, step: int, t: NumericsThresholds) -> int | None:
    """The step, this one's record or the next, at which the loss is not finite, 0, or 1.5 x the median before; else None."""
    at = int(np.searchsorted(loss.step, step))
    before = loss.value[max(0, at - t.grad_loss_history) : at]
    before = before[np.isfinite(before)]
    level = stats.median(before) if len(before) else np.inf
    for value, here in zip(loss.value[at : at + 2].tolist(), loss.step[at : at + 2].tolist(), strict=True):
        if not np.isfinite(value) or value == 0 or value - level >= (t.grad_loss_ratio - 1) * abs(level):
            return int(here)
    return None


def _rates(frame: Frame, grads: Series) -> stats.Floats | None:
    """The learning rate at each gradient norm; None when they are not logged together."""
    if "lr" not in frame:
        return None
    mine, theirs = grads.align(frame["lr"])
    return frame["lr"].value[theirs] if len(mine) == len(grads) else None


def _schedule_moved(frame: Frame, grads: Series) -> stats.Bools:
    """Whether the learning rate differs from that of the record before: the optimizer made its step."""
    rate = _rates(frame, grads)
    return np.zeros(len(grads), bool) if rate is None else np.concatenate(([False], rate[1:] != rate[:-1]))


def _skipped(frame: Frame, grads: Series, bad: stats.Bools, t: NumericsThresholds) -> stats.Bools:
    """Records that a loss scaler skipped: a moving schedule stood still on the next record, or the scale was cut at this or the next."""
    skipped = np.zeros(len(grads), dtype=bool)
    rate = _rates(frame, grads)
    if rate is not None:
        moves = np.cumsum(_schedule_moved(frame, grads))
        lately: stats.Ints = moves - np.concatenate((np.zeros(t.grad_moving, moves.dtype), moves))[: len(moves)]
        in_motion = (lately > 0) | (np.arange(len(moves)) < t.grad_moving)
        skipped[:-1] |= (rate[1:] == rate[:-1]) & in_motion[:-1] & (moves[-1] > 0)
    if "loss_scale" in frame:
        scale = frame["loss_scale"].finite
        cuts = scale.step[1:][scale.value[1:] < scale.value[:-1]]
        at = np.searchsorted(grads.step, cuts)
        for near in (at, at - 1):
            skipped[near[(near >= 0) & (near < len(grads))]] = True
    return skipped & bad
