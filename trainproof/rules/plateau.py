"""TP204: has the loss stopped moving while much of the run is still to come?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trainproof import stats
from trainproof.frame import Frame, Series
from trainproof.rules.registry import SUPERVISED, WARN, CannotTell, Sighting, rule, sighting
from trainproof.thresholds import LossThresholds


@rule(
    "TP204",
    "plateau",
    severity=WARN,
    needs=("loss",),
    objectives=SUPERVISED,
    min_records=100,
    fix="Raise the learning rate or change the schedule; check that the data still has something to teach; or stop here and save the rest.",
)
def plateau(frame: Frame, t: LossThresholds) -> Iterator[Sighting]:
    """The loss has stopped moving while a good part of the run is still to come.

    What it does
    At each judging point, fits a robust slope to the last 30 % and the last half of the records, and asks whether even the slope plus
    two standard errors is under 1 % of the level.

    Why it matters
    The rest of the run buys nothing, or something keeps the model from learning further.

    Formula
    |Theil-Sen change| + 2 SE < 1 % of the level over the last max(50, 30 %) or half of the records (past 32,768 records over the medians
    of 16), with at least 20 % of the planned steps left and the learning rate at 20 % of its peak or more; the finding stands only if
    the loss never left that level again.

    False positives
    The end of a schedule (the guards on steps left and learning rate); noise (when the standard error is too large the rule is
    skipped as "too noisy to tell"); coarsely printed losses (10 records are averaged first).

    What to try
    Look at evaluation metrics before believing a flat training loss.
    """
    loss = frame["loss"].finite
    if len(loss) < t.plateau_min_records:
        raise CannotTell(f"{len(loss)} finite records, needs {t.plateau_min_records}")
    views = _Views(loss.value, t)
    windows = [(lo, count) for count in _counts_with_much_left(frame, loss, t) for lo in _begins(count, t)]
    answers: dict[tuple[int, int], bool | None] = {}
    for lo, count in windows:
        if views.may_be_flat(lo, count):
            answers[lo, count] = views.flat(lo, count)
            if answers[lo, count]:
                yield _plateau_told(loss, views, count, lo, t)
                return
    if windows and all((answers[w] if w in answers else views.flat(*w)) is None for w in windows):
        raise CannotTell("too noisy to tell")


def _begins(count: int, t: LossThresholds) -> list[int]:
    """Where the windows begin that end at record `count`."""
    return [count - max(t.plateau_records, int(share * count)) for share in t.plateau_shares]


def is_flat_now(frame: Frame, t: LossThresholds) -> bool:
    """Whether the rule's state holds at the last record, taken for a judging point."""
    if "loss" not in frame or len(loss := frame["loss"].finite) < t.plateau_min_records:
        return False
    count = len(loss)
    if count not in _counts_with_much_left(frame, loss, t)[-1:]:
        return False
    views = _Views(loss.value, t)
    return any(views.flat(lo, count) for lo in _begins(count, t))


class _Views:
    """A loss as the plateau is looked for in it: in full, and condensed for windows of long logs."""

    def __init__(self, x: stats.Floats, t: LossThresholds) -> None:
        self.t = t
        self.full = _smooth_if_quantised(x, t)
        self.short = stats.condensed(self.full, t.plateau_condensed) if len(x) > t.plateau_long else self.full

    def between(self, lo: int, count: int) -> stats.Floats:
        """The loss from record `lo` up to record `count` (exclusive)."""
        if count <= self.t.plateau_long:
            return self.full[lo:count]
        width = self.t.plateau_condensed
        return self.short[-(-lo // width) : count // width]

    def change(self, lo: int, count: int) -> stats.Change:
        """How it changed there."""
        return stats.change_over(self.between(lo, count))

    def may_be_flat(self, lo: int, count: int) -> bool:
        """A cheap look that spares the long way."""
        return stats.may_stand_still(self.between(lo, count), self.t.plateau_change)

    def flat(self, lo: int, count: int) -> bool | None:
        """Whether the loss did not move over these records, and not after them; None when its noise hides the answer."""
        seen = self.change(lo, count)
        limit = self.t.plateau_change * abs(seen.level)
        if abs(seen.change) + 2 * seen.se < limit:
            return not self._left_later(count, seen)
        return None if abs(seen.change) - 2 * seen.se < limit else False

    def _left_later(self, count: int, seen: stats.Change) -> bool:
        """Whether the loss fell again by more than the plateau allows after record `count`."""
        rest = self.full[count:]
        if len(rest) < self.t.plateau_records:
            return False
        allowed = self.t.plateau_change * abs(seen.level) + 2 * seen.se
        return stats.median(rest[-self.t.plateau_records :]) < seen.level - allowed


def _plateau_told(loss: Series, views: _Views, count: int, lo: int, t: LossThresholds) -> Sighting:
    seen = views.change(lo, count)
    return sighting(
        WARN,
        f"the loss changed by {seen.change / abs(seen.level):+.2%} of its level {seen.level:.4g} over the {count - lo} records up to step "
        f"{loss.step[count - 1]}, and has not fallen since.",
        loss,
        first=lo,
        last=len(loss) - 1,
        flagged=count - 1,
        threshold={"change": t.plateau_change, "records": float(count - lo)},
    )


def _counts_with_much_left(frame: Frame, loss: Series, t: LossThresholds) -> list[int]:
    """The judging points at which the run still had steps to come and a learning rate to use them. Raises CannotTell when nothing says."""
    total = frame.total_steps
    lr = frame["lr"].finite if "lr" in frame else None
    if total is None and (lr is None or lr.constant):
        raise CannotTell(
            "neither the planned steps (--fact total_steps=N) nor a decaying learning rate say how much is left"
        )
    counts = stats.schedule(len(loss))
    counts = counts[counts >= t.plateau_min_records]
    steps = loss.step[counts - 1]
    if total is not None:
        counts, steps = counts[steps <= (1 - t.plateau_left) * total], steps[steps <= (1 - t.plateau_left) * total]
    if lr is None or not len(lr):
        return [int(count) for count in counts]
    at = lr.upto(steps)
    high = (at < 0) | (lr.value[at] >= t.plateau_lr * np.maximum.accumulate(lr.value)[at])
    return [int(count) for count in counts[high]]


def _smooth_if_quantised(x: stats.Floats, t: LossThresholds) -> stats.Floats:
    """x, or its trailing mean over 10 records where it moves in steps as large as its noise (bfloat16 losses: of 2^-7)."""
    head = x[: stats.THINNED]
    values = stats.distinct(head)[0]
    coarse = 1 < len(values) <= len(head) / 4
    if not coarse or stats.difference_noise(head) > t.plateau_quanta * float(np.diff(values).min()):
        return x
    width = t.plateau_quantised
    total = np.concatenate(([0.0], np.cumsum(x)))
    smooth = x.copy()
    smooth[width - 1 :] = (total[width:] - total[:-width]) / width
    return smooth
