"""Family TP3: the learning rate against what was declared, and against sense. TP305 is in `exhausted`, TP301 in `lr_zero`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trainproof import stats
from trainproof.frame import Frame, Series
from trainproof.rules import batch_scaling, exhausted, lr_zero  # noqa: F401  registers TP306, TP305 and TP301
from trainproof.rules.registry import FAIL, INFO, WARN, CannotTell, Sighting, rule, sighting
from trainproof.rules.schedules import CONSTANT, expected_rate, logged_rate, warmup_steps
from trainproof.thresholds import LearningRateThresholds
from trainproof.verdict import Severity


@rule(
    "TP302",
    "warmup-missing",
    severity=WARN,
    needs=("lr",),
    min_records=3,
    whole_run=True,
    fix="Check that the scheduler is stepped from the first step, and the units of the warm-up.",
)
def warmup_missing(frame: Frame, t: LearningRateThresholds) -> Iterator[Sighting]:
    """A warm-up was declared, but the first logged rate is already at its peak.

    What it does
    Once the declared warm-up is over, compares the first logged learning rate with the highest so far.

    Why it matters
    Adaptive optimizers take their largest and least informed steps first; a warm-up keeps them small.

    Formula
    First logged lr >= 0.9 of the peak, logged in the first half of a declared warm-up: WARN. No warm-up declared for a model that is
    declared to start from scratch: INFO.

    False positives
    A logging interval longer than the warm-up, or a log that begins later, shows the peak first: skipped.

    What to try
    Log the rate of the first ten steps.
    """
    lr = logged_rate(frame)
    if len(lr) < 3:
        return
    declared = warmup_steps(frame)
    if declared is None and frame.facts.text("pretrained") not in ("false", "0"):
        raise CannotTell("no warm-up declared (--fact warmup_steps=N)")
    if declared is not None and int(lr.step[0]) > t.warmup_seen * declared:
        raise CannotTell(f"the first logged step, {lr.step[0]}, shows too little of a warm-up of {declared:g} steps")
    judged = max(2, int(np.searchsorted(lr.step, declared or 0)))
    if judged >= len(lr):
        raise CannotTell("the declared warm-up is not over")
    peak = float(lr.value[: judged + 1].max())
    if peak > 0 and float(lr.value[0]) >= t.warmup_first * peak:
        told = f", though {declared:g} steps of warm-up are declared" if declared else "; no warm-up is declared"
        yield sighting(
            INFO if declared is None else WARN,
            f"the first logged learning rate, {lr.value[0]:.4g} at step {lr.step[0]}, is {lr.value[0] / peak:.0%} of the peak{told}.",
            lr,
            first=0,
            last=judged,
            threshold={"peak": t.warmup_first},
        )


@rule(
    "TP303",
    "warmup-never-ends",
    severity=FAIL,
    needs=("lr",),
    facts=("total_steps", "learning_rate"),
    min_records=10,
    whole_run=True,
    fix="Check the scheduler's units (epochs against steps) and that its total is that of this run.",
)
def warmup_never_ends(frame: Frame, t: LearningRateThresholds) -> Iterator[Sighting]:
    """The learning rate is still rising long after a warm-up should be over.

    What it does
    Looks for a rate that has never fallen and is still below its declared peak well into the run.

    Why it matters
    A warm-up counted in the wrong unit leaves the whole run at a fraction of its rate.

    Formula
    lr has risen, has not fallen once, and is < 0.9 of the declared peak after max(20 % of the planned steps, 3 x the declared
    warm-up): WARN; after 50 %: FAIL. Where no warm-up is declared, only after 50 %, and WARN.

    False positives
    One-cycle schedules rise for 30 % of a run without declaring a warm-up, hence the 50 %. A rate that stands still is TP304's.

    What to try
    Plot the scheduler alone over the planned steps.
    """
    lr = logged_rate(frame)
    total, peak = frame.total_steps, frame.facts.number("learning_rate")
    if not total or not peak:
        raise CannotTell("the planned steps or the declared learning rate are not a positive number")
    declared = warmup_steps(frame)
    half = t.rising_share_fail * total
    start = half if declared is None else max(t.rising_share * total, t.rising_warmups * declared)
    fallen = np.concatenate(([False], np.maximum.accumulate(lr.value[1:] < lr.value[:-1])))
    rising = ~fallen & (lr.value > lr.value[0]) & (lr.value < t.rising_peak * peak)
    warned = rising & (lr.step >= start)
    if not warned.any():
        return
    failed = warned & (lr.step >= half) if declared is not None else np.zeros(len(lr), bool)
    severity: Severity = FAIL if failed.any() else WARN
    flagged = int(np.argmax(failed if failed.any() else warned))
    yield sighting(
        severity,
        f"the learning rate has only risen, to {lr.value[flagged]:.4g} at step {lr.step[flagged]} of {total}, and not reached its declared "
        f"peak of {peak:.4g}.",
        lr,
        first=0,
        last=int(np.flatnonzero(warned)[-1]),
        flagged=flagged,
        threshold={
            "share": t.rising_share_fail if severity is FAIL or declared is None else t.rising_share,
            "peak": t.rising_peak,
        },
    )


@rule(
    "TP304",
    "lr-constant-vs-declared",
    severity=WARN,
    needs=("lr",),
    min_records=20,
    fix="Check that scheduler.step() is called, and that the scheduler belongs to this optimizer.",
)
def lr_constant_vs_declared(frame: Frame, t: LearningRateThresholds) -> Iterator[Sighting]:
    """A decaying schedule was declared, but the learning rate does not move.

    What it does
    After the warm-up, looks whether the logged rate moves at all over a fifth of the run in which the declared schedule would.

    Why it matters
    A scheduler that is never stepped, or that another configuration overrides, leaves the run at its peak rate to the end.

    Formula
    At the common judging points: relative range of lr < 0.1 % over the last 20 % of the planned steps, near its highest, where the
    declared schedule (linear, polynomial, cosine, inverse square root) moves by more than 5 %: WARN. Nothing declared, and
    constant throughout: INFO.

    False positives
    Rates printed with 3 digits stand still for a while (hence the 5 %); other schedules have constant parts and are skipped.

    What to try
    Print the scheduler's state at two steps.
    """
    lr = logged_rate(frame)
    schedule = frame.facts.text("schedule")
    if schedule is None:
        if lr.constant and len(lr) >= 20 and lr.value[0] > 0:
            message = f"the learning rate is {lr.value[0]:.6g} throughout; no schedule is declared."
            yield sighting(INFO, message, lr, first=0, last=len(lr) - 1, threshold={"range": t.constant_range})
        return
    if schedule in CONSTANT:
        return
    total = frame.total_steps
    if not total:
        raise CannotTell("the planned steps are not known (--fact total_steps=N)")
    for end in stats.schedule(len(lr)) - 1:
        since = int(lr.step[end] - t.constant_share * total)  # a float would have searchsorted convert every step
        start = int(np.searchsorted(lr.step, since, side="right")) - 1
        if start < 0 or not _stands_still(lr, start, int(end), t):
            continue
        before, after = expected_rate(schedule, lr.step[[start, end]], total, warmup_steps(frame) or 0.0).tolist()
        if before > 0 and abs(after / before - 1) > t.constant_moves:
            yield sighting(
                WARN,
                f"the learning rate stands at {lr.value[end]:.6g} from step {lr.step[start]} to {lr.step[end]}, where the declared schedule "
                f"({schedule}) moves by {abs(after / before - 1):.0%}.",
                lr,
                first=start,
                last=int(end),
                threshold={"range": t.constant_range, "share": t.constant_share, "moves": t.constant_moves},
            )
            return


def _stands_still(lr: Series, start: int, end: int, t: LearningRateThresholds) -> bool:
    """Whether the rate has one value over the records start..end, and near the highest so far: no floor of a schedule."""
    here = float(lr.value[end])
    limit = t.constant_range * abs(here)
    if here <= 0 or abs(float(lr.value[start]) - here) > limit:
        return False
    window = lr.value[start : end + 1]
    still = float(window.max()) - float(window.min()) <= limit
    return still and here >= t.constant_peak * float(lr.value[: end + 1].max())
