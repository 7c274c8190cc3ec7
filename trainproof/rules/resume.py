"""Family TP7: does a resumed run go on where it stopped? TP703 and TP708, on data and on restarts, are in `restarts`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from trainproof import stats
from trainproof.frame import Frame, Series
from trainproof.rules import restarts  # noqa: F401  registers TP703 and TP708
from trainproof.rules.registry import FAIL, INFO, SUPERVISED, WARN, CannotTell, Sighting, rule, sighting
from trainproof.rules.schedules import NOT_ONE_DESCENT, logged_rate
from trainproof.rules.states import Resume, resumes
from trainproof.thresholds import ResumeThresholds
from trainproof.verdict import Severity


class Jump(NamedTuple):
    """The loss across a resume: level before, level after, their distance in standard errors, and the index of the last record used."""

    before: float
    after: float
    z: float
    at: int

    @property
    def share(self) -> float:
        return (self.after - self.before) / abs(self.before) if self.before else math.copysign(math.inf, self.after)


@rule(
    "TP701",
    "resume-loss-jump",
    severity=FAIL,
    needs=("loss",),
    objectives=SUPERVISED,
    min_records=40,
    whole_run=True,
    fix="Check that optimizer, scheduler, scaler and sampler states were restored with the weights, and that the data is the same.",
)
def resume_loss_jump(frame: Frame, t: ResumeThresholds) -> Iterator[Sighting]:
    """After a resume the loss stands higher than before.

    What it does
    Compares the median of 20 records after a resume (its first one left out) with that of the 40 before.

    Why it matters
    Weights come back alone when the optimizer's moments, the scaler or the right checkpoint are lost; the run pays for them again.

    Formula
    4 standard errors (1.2533 S sqrt(1 / 20 + 1 / 40)) and 5 % above: WARN. 20 % above, or still 5 % above after 200 records: FAIL, unless
    the loss came back within 200 records.

    False positives
    The first record after a resume may be an average over fewer steps: left out. New data on purpose looks the same; say so in the run's
    notes. None of 142 public resumes passes.

    What to try
    Resume twice from the same checkpoint for a few steps and compare.
    """
    loss = frame["loss"].finite
    judged = False
    for resume in resumes(frame, loss):
        jump = _jump(loss, resume, t)
        judged = judged or jump is not None
        if jump is None or jump.z < t.jump_z or jump.share < t.jump_share:
            continue
        back = _back(loss, resume, jump, t)
        high = jump.share >= t.jump_share_fail
        late = back is None and resume.end - resume.at > t.jump_records
        severity: Severity = FAIL if back is None and (high or late) else WARN
        flagged = resume.at + t.jump_records if severity is FAIL and not high else jump.at
        yield sighting(
            severity,
            f"the loss went from {jump.before:.4g} to {jump.after:.4g} ({jump.share:+.0%}, {jump.z:.1f} standard errors) where the run resumed at "
            f"step {loss.step[resume.at]}{f', and came back by step {loss.step[back]}' if back else ''}.",
            loss,
            first=resume.at - 1,
            last=back or resume.end - 1,
            flagged=flagged,
            cite=[resume.at - 1, resume.at, jump.at],
            threshold={"z": t.jump_z, "share": t.jump_share_fail if severity is FAIL and high else t.jump_share},
        )
    if not judged:
        raise CannotTell("no resume in the log with enough records on either side")


def _jump(loss: Series, resume: Resume, t: ResumeThresholds) -> Jump | None:
    """The loss across the resume; None with too few records on either side."""
    before = loss.value[max(resume.begin, resume.at - t.jump_before) : resume.at]
    after = loss.value[resume.at + 1 : min(resume.end, resume.at + 1 + t.jump_after)]
    if len(before) < t.jump_after or len(after) < t.jump_after:
        return None
    level = stats.median(before)
    mad = stats.MAD_TO_SIGMA * stats.median(np.abs(before - level))
    scale = max(mad, stats.difference_noise(before), 0.02 * abs(level))
    se = stats.MEDIAN_SE * scale * math.sqrt(1 / len(before) + 1 / len(after))
    high = stats.median(after)
    return Jump(level, high, (high - level) / se if se > 0 else 0.0, resume.at + len(after))


def _back(loss: Series, resume: Resume, jump: Jump, t: ResumeThresholds) -> int | None:
    """The record within 200 of the resume at which the median of 20 stands no longer 5 % above; None when there is none."""
    stop = min(resume.end, resume.at + t.jump_records)
    at, level = stats.trailing_median(loss.value[resume.at + 1 : stop], t.jump_after)
    hits = np.flatnonzero(level - jump.before < t.jump_share * abs(jump.before))
    return resume.at + 1 + int(at[hits[0]]) if len(hits) else None


@rule(
    "TP702",
    "resume-lr-discontinuity",
    severity=FAIL,
    needs=("lr",),
    min_records=4,
    whole_run=True,
    stops=True,
    fix="Restore the scheduler's state with the optimizer's; do not build a new scheduler with last_epoch alone.",
)
def resume_lr_discontinuity(frame: Frame, t: ResumeThresholds) -> Iterator[Sighting]:
    """The learning rate does not go on where it was: after a resume, or in the middle of a run.

    What it does
    Continues the rate before a resume in a straight line to the first step after it, and compares. Elsewhere it looks for a rate that
    is half as high again after it had come down.

    Why it matters
    A second warm-up, or a rate from the beginning of the schedule on weights from its end, undoes days of training.

    Formula
    At a resume: outside 0.8 to 1.25 times both the rate before and its continuation, by 2 % of the peak: WARN; FAIL when it is under a
    tenth of the rate before, when it rises again over 3 records, or when it is above 1.25 times the peak. Elsewhere: a rate that rises
    to 1.5 times the record before from under 90 % of its peak, by 10 % of the peak: WARN; INFO when a schedule with restarts is declared
    or it happens more than once.

    False positives
    A rate lowered on purpose, or raised by a longer plan, looks like a lost scheduler: WARN, not FAIL. Restarts and cycles.

    What to try
    Print the scheduler's last step before saving and after loading.
    """
    lr = logged_rate(frame)
    peak = lr.memo(np.maximum.accumulate)
    boundaries = [resume for resume in resumes(frame, lr) if resume.at - resume.begin >= 2]
    for resume in boundaries:
        yield from _rate_jump(lr, peak, resume, t)
    yield from _rebound(frame, lr, peak, [resume.at for resume in boundaries], t)


def _rate_jump(lr: Series, peak: stats.Floats, resume: Resume, t: ResumeThresholds) -> Iterator[Sighting]:
    i, (earlier, before), after = resume.at, lr.value[resume.at - 2 : resume.at].tolist(), float(lr.value[resume.at])
    distance = max(int(lr.step[i - 1] - lr.step[i - 2]), 1)
    continued = max(before + (before - earlier) * int(lr.step[i] - lr.step[i - 1]) / distance, 0.0)
    low, high = min(before, continued), max(before, continued)
    top = float(peak[i - 1])
    if t.rate_low * low <= after <= t.rate_high * high or min(abs(after - low), abs(after - high)) < t.rate_least * top:
        return
    rising = lr.value[i : min(resume.end, i + t.rate_rises + 1)]
    ramps = after < low and len(rising) > t.rate_rises and bool((np.diff(rising) > 0).all())
    at_once = after < t.rate_tenth * before or after > t.rate_high * top
    severity: Severity = FAIL if at_once or ramps else WARN
    told = " and rises again from there" if ramps else ""
    yield sighting(
        severity,
        f"the learning rate went from {before:.4g} to {after:.4g} where the run resumed at step {lr.step[i]}{told}; it would have gone on at "
        f"{continued:.4g}.",
        lr,
        first=i - 1,
        last=i + (t.rate_rises if ramps else 0),
        flagged=resume.known if at_once or not ramps else i + t.rate_rises,
        cite=[i - 2, i - 1, i],
        threshold={"low": t.rate_low, "high": t.rate_high},
    )


def _rebound(
    frame: Frame, lr: Series, peak: stats.Floats, resumed: list[int], t: ResumeThresholds
) -> Iterator[Sighting]:
    """A rate that jumps up after it had come down, where nothing resumed."""
    x, top = lr.value, peak[:-1]
    jumped = (
        (x[1:] >= t.rebound_times * x[:-1])
        & (x[:-1] < t.rebound_below * top)
        & (x[1:] - x[:-1] >= t.rebound_least * top)
    )
    came_down = (
        np.maximum.accumulate(np.concatenate(([False], x[1:-1] < x[:-2]))) if len(x) > 2 else np.zeros(len(top), bool)
    )
    at = [int(i) + 1 for i in np.flatnonzero(jumped & came_down) if int(i) + 1 not in resumed]
    if not at:
        return
    schedule = frame.facts.text("schedule") or ""
    planned = len(at) > 1 or any(word in schedule for word in NOT_ONE_DESCENT)
    yield sighting(
        INFO if planned else WARN,
        f"the learning rate went up from {x[at[0] - 1]:.4g} to {x[at[0]]:.4g} at step {lr.step[at[0]]}, after it had come down"
        f"{f', {len(at)} times in all' if len(at) > 1 else ''}.",
        lr,
        first=at[0] - 1,
        last=at[-1],
        flagged=at[0],
        cite=[at[0] - 1, at[0]],
        threshold={"times": t.rebound_times},
    )
