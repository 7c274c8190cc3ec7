"""TP305: a learning rate that ran out long before the run does."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trainproof import stats
from trainproof.frame import Frame, Series
from trainproof.rules.registry import FAIL, INFO, WARN, CannotTell, Sighting, rule, sighting
from trainproof.rules.schedules import NOT_ONE_DESCENT, logged_rate
from trainproof.thresholds import LearningRateThresholds
from trainproof.verdict import Severity


@rule(
    "TP305",
    "lr-exhausted-early",
    severity=FAIL,
    needs=("lr",),
    min_records=20,
    fix="Check how often scheduler.step() is called (once a process, once a micro-batch?) and the total it was given.",
)
def lr_exhausted_early(frame: Frame, t: LearningRateThresholds) -> Iterator[Sighting]:
    """The learning rate has run out with a good part of the run still to come.

    What it does
    Looks for the step at which the rate has come down to almost nothing of its peak, and compares it with the planned steps.

    Why it matters
    A scheduler stepped several times a step spends its decay in a fraction of the run; the rest hardly learns.

    Formula
    lr <= 1 % of the peak so far with 25 % of the planned steps left: FAIL; lr <= 0.1 % with 5 % left: WARN. It has to last 5 records and
    5 % of the planned steps (a rate of exactly 0: 5 records). Where the planned steps are unknown, the last step stands for them:
    INFO. When the planned steps are a whole multiple of that step, the message says so.

    False positives
    A cosine passes 1 % with 6 % left, hence the 0.1 %. Rates that fall in steps, exponentially or on plateaus approach zero on
    purpose: only a descent whose second part (10 % to 1 %) is no longer than its first (50 % to 10 %) counts.

    What to try
    Print the scheduler's last step beside the trainer's.
    """
    lr = logged_rate(frame)
    schedule = frame.facts.text("schedule") or ""
    if any(word in schedule for word in NOT_ONE_DESCENT):
        raise CannotTell(f"the declared schedule {schedule!r} comes down more than once, or in steps")
    peak = lr.memo(np.maximum.accumulate)
    for severity, level, least in (
        (FAIL, t.exhausted_level, t.exhausted_left),
        (WARN, t.exhausted_level_warn, t.exhausted_left_warn),
    ):
        for start, stop in stats.runs_of((lr.value <= level * peak) & (peak > 0)):
            total = frame.total_steps or int(lr.step[-1])
            flagged = _held(lr, start, stop, total, t)
            if flagged is not None and 1 - lr.step[start] / total >= least and _one_descent(lr, start, t):
                came_back = stop < len(lr) and float(lr.value[stop:].max()) >= t.exhausted_tenth * float(peak[start])
                said: Severity = severity if frame.total_steps and not came_back else INFO
                yield _told(lr, start, flagged, total, said, {"level": level, "left": least}, t)
                return


def _held(lr: Series, start: int, stop: int, total: int, t: LearningRateThresholds) -> int | None:
    """The record at which the state has lasted long enough, or None."""
    enough = start + t.exhausted_records - 1
    if enough >= stop:
        return None
    if not lr.value[start : enough + 1].any():
        return enough
    lasted = int(np.searchsorted(lr.step, int(lr.step[start] + t.exhausted_hold * total)))
    return max(enough, lasted) if lasted < stop else None


def _one_descent(lr: Series, start: int, t: LearningRateThresholds) -> bool:
    """Whether the rate came down as linear and cosine schedules do: gradually, and no slower towards the end."""
    begin = int(lr.derived(_last_high, t.exhausted_half)[start])
    tail, step = lr.value[begin : start + 1], lr.step
    peak = float(lr.memo(np.maximum.accumulate)[start])
    tenth = begin + int(np.argmax(tail <= t.exhausted_tenth * peak))
    low = begin + int(np.argmax(tail <= t.exhausted_level * peak))
    return low - begin >= t.exhausted_records and step[low] - step[tenth] <= step[tenth] - step[begin]


def _last_high(lr: Series, share: float) -> stats.Ints:
    """For each record the last one up to it at `share` of the peak so far or above."""
    high = lr.value >= share * lr.memo(np.maximum.accumulate)
    return np.maximum.accumulate(np.where(high, np.arange(len(lr)), 0))


def _told(
    lr: Series,
    start: int,
    flagged: int,
    total: int,
    severity: Severity,
    threshold: dict[str, float],
    t: LearningRateThresholds,
) -> Sighting:
    step = int(lr.step[start])
    ended = max(1, int(lr.step[start + int(np.argmin(lr.value[start : flagged + 1]))]))
    times = round(total / ended)
    whole = times >= 2 and abs(total / ended - times) <= t.exhausted_whole
    multiple = f" The planned steps are {times} x step {ended}, where it ended." if whole else ""
    return sighting(
        severity,
        f"the learning rate came down to {lr.value[start]:.4g} at step {step} of {total}, with {1 - step / total:.0%} of the run left.{multiple}",
        lr,
        first=int(np.argmax(lr.value[: start + 1])),
        last=len(lr) - 1,
        flagged=flagged,
        threshold=threshold,
    )
