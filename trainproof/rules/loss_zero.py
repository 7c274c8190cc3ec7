"""TP208: a loss of exactly zero."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trainproof import stats
from trainproof.frame import Frame, Series
from trainproof.names import higher_is_better, is_perplexity
from trainproof.rules.eval_series import is_loss
from trainproof.rules.registry import FAIL, INFO, SUPERVISED, WARN, Sighting, evidence, rule, sighting
from trainproof.thresholds import LossThresholds
from trainproof.verdict import Evidence

NOT_PREFERENCE = SUPERVISED - {"preference"}


@rule(
    "TP208",
    "loss-exactly-zero",
    severity=FAIL,
    needs=("loss",),
    objectives=NOT_PREFERENCE,
    stops=True,
    fix="Check that not every label is masked (-100), that truncation keeps the answer, and that the attention mask is not mutated.",
)
def loss_exactly_zero(frame: Frame, t: LossThresholds) -> Iterator[Sighting]:
    """The training loss is exactly zero.

    What it does
    Looks for a loss of exactly 0 twice in a row, or once beside a gradient norm that is 0 or not finite.

    Why it matters
    A cross-entropy over real targets is never exactly 0: every label is masked, or a non-finite loss was hidden by the logger.

    Formula
    2 consecutive records with loss == 0, or 1 with a gradient norm of 0 or non-finite. FAIL when the median of the 5 records before
    was above 0.05, the gradient norm is 0 or non-finite, or no loss of the run was ever anything but 0 in 10 records or more; otherwise
    WARN (a memorised set printed with 4 decimals).

    False positives
    Reward objectives and saturated preference losses are exactly 0 in health and are not asked. A loss that has been 0 from the first
    record on is a placeholder, told as INFO, where another loss or a gradient norm is not 0, or a task metric moves.

    What to try
    Count the labels that are not masked in one batch.
    """
    loss = frame["loss"]
    zero = loss.value == 0
    if not zero.any():
        return
    dead_grad = _dead_gradient(frame, loss)
    streak = stats.first_run(zero, t.zero_records)
    beside = np.flatnonzero(zero & dead_grad)
    hits = [start + t.zero_records - 1 for start, _ in [streak] if streak] if streak else []
    hits += [int(beside[0])] if len(beside) else []
    if not hits:
        return
    flagged = min(hits)
    begin = flagged - (t.zero_records - 1 if streak and flagged == streak[0] + t.zero_records - 1 else 0)
    before = loss.value[max(0, begin - 5) : begin]
    before = before[np.isfinite(before)]
    severity = WARN
    if dead_grad[begin : flagged + 1].any() or (len(before) and stats.median(before) > t.zero_before):
        severity = FAIL
    elif zero.all():
        severity = INFO
        if len(loss) >= t.zero_throughout and _all_losses_zero(frame):
            severity, flagged = FAIL, t.zero_throughout - 1
    gradient = " beside a gradient norm of 0 or not finite" if dead_grad[begin : flagged + 1].any() else ""
    yield sighting(
        severity,
        f"the loss is exactly 0 at step {loss.step[flagged]}{gradient}, in {int(zero.sum())} of {len(loss)} records. This is consistent with "
        "all labels masked, or with a non-finite loss that the logger replaced.",
        loss,
        first=begin,
        last=int(np.flatnonzero(zero)[-1]),
        flagged=flagged,
        cite=range(max(0, begin - 1), flagged + 1),
        more=_gradient_beside(frame, loss, flagged),
        threshold={"records": t.zero_records, "before": t.zero_before},
    )


def _all_losses_zero(frame: Frame) -> bool:
    """Whether no loss is anything but 0 or NaN (a perplexity: 1), and neither a gradient norm nor a task metric shows that the model
    learns."""
    for name, series in frame.items():
        value = series.finite.value
        if is_perplexity(name):
            learns = bool((value != 1).any())
        elif name == "grad_norm" or (is_loss(name) and name != "loss_scale"):
            learns = bool(value.any())
        else:
            learns = higher_is_better(name) is not None and bool((value != value[:1]).any())
        if learns:
            return False
    return True


def _dead_gradient(frame: Frame, loss: Series) -> stats.Bools:
    """Loss records whose gradient norm is 0 or not finite; a gradient norm that is 0 throughout is a placeholder."""
    dead = np.zeros(len(loss), dtype=bool)
    if "grad_norm" in frame and frame["grad_norm"].value.any():
        grads = frame["grad_norm"]
        mine, theirs = loss.align(grads)
        dead[mine] = ~np.isfinite(grads.value[theirs]) | (grads.value[theirs] == 0)
    return dead


def _gradient_beside(frame: Frame, loss: Series, index: int) -> tuple[Evidence, ...]:
    if "grad_norm" not in frame:
        return ()
    grads = frame["grad_norm"]
    return evidence(grads, np.flatnonzero(grads.step == loss.step[index])[-1:])
