"""Family TP3: the learning rate against what was declared, and against sense."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trainproof import stats
from trainproof.frame import Frame, Series
from trainproof.rules.registry import FAIL, INFO, WARN, CannotTell, Sighting, rule, sighting
from trainproof.thresholds import LearningRateThresholds

#: schedules that are meant to be constant, or that nothing is known of
_CONSTANT = ("constant", "none", "reduce_lr_on_plateau", "plateau")
#: schedules that restart their rate on purpose
_RESTARTING = ("restart", "cyclic", "onecycle", "sgdr")


def logged_rate(frame: Frame) -> Series:
    """The finite learning rates. Raises CannotTell when there is none."""
    lr = frame["lr"].finite
    if not len(lr):
        raise CannotTell("no finite learning rate in the log")
    return lr


def warmup_steps(frame: Frame) -> float | None:
    """Declared warm-up in steps, from its length or its share of the planned steps; None when nothing was declared."""
    steps = frame.facts.number("warmup_steps")
    ratio = frame.facts.number("warmup_ratio")
    if steps is None and ratio is not None and frame.total_steps is not None:
        steps = ratio * frame.total_steps
    return steps


@rule(
    "TP301",
    "lr-zero",
    severity=FAIL,
    needs=("lr",),
    min_records=5,
    whole_run=True,
    stops=True,
    fix="Check the scheduler's units and its number of steps, the base rate, and steps that a loss scaler skipped.",
)
def lr_zero(frame: Frame, t: LearningRateThresholds) -> Iterator[Sighting]:
    """The learning rate is exactly zero while the run goes on.

    What it does
    Looks for stretches of records whose learning rate is exactly 0, apart from the first record and the very end.

    Why it matters
    With a rate of 0 no weight changes: the run costs what it costs and learns nothing.

    Formula
    lr == 0 in 5 consecutive records: WARN; in 20 % of the records: FAIL. The first record and the last 2 % of the planned steps do
    not count; nor does a deliberate warm-up at 0 that a rate above 0 follows within a tenth of the records (INFO).

    False positives
    Warm-up starts at 0; schedules end at 0; a rate of 1e-7 printed with 6 digits is 0 (a fall that reached the printing limit does
    not count).

    What to try
    Print the scheduler's rate for each step before training.
    """
    lr = logged_rate(frame)
    zero = lr.value == 0
    zero[0] &= bool(zero.all())
    end = frame.total_steps or int(lr.step[-1])
    zero &= (lr.step < end - t.zero_end_share * (end - int(lr.step[0]))) | bool(zero.all())
    run = stats.first_run(zero, t.zero_records)
    if run is None or _faded(lr, run):
        return
    share = float(zero.mean())
    leading = run[0] <= 1 and run[1] <= max(t.zero_records, t.zero_leading_share * len(lr))
    severity = INFO if leading else FAIL if share >= t.zero_fail_share else WARN
    flagged = run[0] + t.zero_records - 1
    if severity is FAIL:
        running = np.cumsum(zero) / np.arange(1, len(zero) + 1)
        flagged += int(np.argmax(running[flagged:] >= t.zero_fail_share))
    yield sighting(
        severity,
        f"the learning rate is exactly 0 in {int(zero.sum())} of {len(lr)} records, from step {lr.step[run[0]]} on.",
        lr,
        first=run[0],
        last=int(np.flatnonzero(zero)[-1]),
        flagged=flagged,
        cite=sorted({run[0], run[0] + t.zero_records - 1, flagged}),
        threshold={"records": t.zero_records, "share": t.zero_fail_share},
    )


def _faded(lr: Series, run: tuple[int, int]) -> bool:
    """Whether the rate came down to 0 through ever smaller values: a schedule's end, or the printing limit."""
    if run[0] < 3:
        return False
    before = lr.value[run[0] - 3 : run[0]]
    return bool((np.diff(before) <= 0).all()) and float(before[-1]) <= 0.02 * float(lr.value[: run[0]].max())


@rule(
    "TP302",
    "warmup-missing",
    severity=WARN,
    needs=("lr",),
    min_records=3,
    fix="Check that the scheduler is stepped from the first step, and the units of the warm-up.",
)
def warmup_missing(frame: Frame, t: LearningRateThresholds) -> Iterator[Sighting]:
    """A warm-up was declared, but the first logged rate is already at its peak.

    What it does
    Compares the first logged learning rate with the highest one.

    Why it matters
    Adaptive optimizers take their largest and least informed steps first; a warm-up keeps them small.

    Formula
    Declared warm-up and first logged lr >= 0.9 peak, logged inside the declared warm-up: WARN. Undeclared, a model from scratch: INFO.

    False positives
    A logging interval longer than the warm-up shows the peak first, hence the condition on the first logged step.

    What to try
    Log the rate of the first ten steps.
    """
    lr = logged_rate(frame)
    peak = float(lr.value.max())
    declared = warmup_steps(frame)
    scratch = frame.facts.get("pretrained") is False
    if peak <= 0 or float(lr.value[0]) < t.warmup_peak * peak:
        return
    if declared is None:
        if not scratch:
            raise CannotTell("no warm-up declared (--fact warmup_steps=N)")
        severity = INFO
    elif int(lr.step[0]) < t.warmup_inside * declared:
        severity = WARN
    else:
        raise CannotTell("the first logged step lies beyond the declared warm-up")
    yield sighting(
        severity,
        f"the first logged learning rate, {lr.value[0]:.4g} at step {lr.step[0]}, is {lr.value[0] / peak:.0%} of the peak"
        f"{'' if declared is None else f', though {declared:g} steps of warm-up are declared'}.",
        lr,
        first=0,
        last=2,
        threshold={"peak": t.warmup_peak},
    )


@rule(
    "TP303",
    "warmup-never-ends",
    severity=FAIL,
    needs=("lr",),
    facts=("total_steps",),
    min_records=10,
    fix="Check the scheduler's units (epochs against steps) and that its total is that of this run.",
)
def warmup_never_ends(frame: Frame, t: LearningRateThresholds) -> Iterator[Sighting]:
    """The learning rate is still rising long after a warm-up should be over.

    What it does
    Looks for a rate that has never fallen and is still below its declared peak well into the run.

    Why it matters
    A warm-up counted in the wrong unit leaves the whole run at a fraction of its rate.

    Formula
    lr has not fallen once and < 0.9 of the declared peak after max(20 % of the planned steps, 3 x the declared warm-up): WARN; after
    50 %: FAIL. Without a declared peak: still rising by more than 1 % of itself at that point.

    False positives
    One-cycle schedules rise for 30 % of a run: they fall afterwards, and are not flagged at the end.

    What to try
    Plot the scheduler alone over the planned steps.
    """
    lr = logged_rate(frame)
    total = float(frame.total_steps or 0)
    if total <= 0:
        raise CannotTell("the planned steps are not a positive number")
    if (np.diff(lr.value) < 0).any() or lr.constant:
        return
    start = max(t.never_ends_warn * total, t.never_ends_warmups * (warmup_steps(frame) or 0.0))
    peak = frame.facts.number("learning_rate")
    late = np.flatnonzero(lr.step >= start)
    if not len(late):
        return
    below = (
        lr.value[late] < t.warmup_peak * peak if peak else lr.value[late] > (1 + t.never_ends_rise) * _earlier(lr, late)
    )
    if not below[-1]:
        return
    flagged = int(late[int(np.argmax(below))])
    severity = FAIL if lr.step[-1] >= t.never_ends_fail * total else WARN
    yield sighting(
        severity,
        f"the learning rate has only risen, to {lr.value[-1]:.4g} at step {lr.step[-1]} of {total:g}"
        f"{f', below its declared peak of {peak:.4g}' if peak else ''}.",
        lr,
        first=0,
        last=len(lr) - 1,
        flagged=flagged,
        threshold={"share": t.never_ends_fail if severity is FAIL else t.never_ends_warn},
    )


def _earlier(lr: Series, late: stats.Ints) -> stats.Floats:
    """The rate a tenth of the way before each late record."""
    return lr.value[np.maximum(late - np.maximum(late // 10, 1), 0)]


@rule(
    "TP304",
    "lr-constant-vs-declared",
    severity=WARN,
    needs=("lr",),
    facts=("schedule", "total_steps"),
    min_records=20,
    fix="Check that scheduler.step() is called, and that the scheduler belongs to this optimizer.",
)
def lr_constant_vs_declared(frame: Frame, t: LearningRateThresholds) -> Iterator[Sighting]:
    """A decaying schedule was declared, but the learning rate does not move.

    What it does
    After the warm-up, looks whether the logged rate moves at all over a fifth of the run.

    Why it matters
    A scheduler that is never stepped leaves the run at its peak rate to the end.

    Formula
    Declared schedule not constant, relative range of lr < 0.1 % over 20 % of the planned steps after the warm-up, in which a linear or
    cosine decay would move it by more than 5 %. WARN.

    False positives
    Rates printed with 3 digits stand still for a while (hence the 5 %); stable phases of warm-up-stable-decay schedules.

    What to try
    Print the scheduler's state at two steps.
    """
    lr = logged_rate(frame)
    schedule = frame.facts.text("schedule") or ""
    if any(word in schedule for word in _CONSTANT) or "wsd" in schedule or "stable" in schedule:
        raise CannotTell(f"the declared schedule {schedule!r} has a constant part")
    total = float(frame.total_steps or 0)
    start = int(np.searchsorted(lr.step, warmup_steps(frame) or 0.0))
    x, step = lr.value[start:], lr.step[start:]
    if not len(x) or total <= 0 or float(x[0]) <= 0:
        return
    still = np.maximum.accumulate(np.abs(x / x[0] - 1)) < t.constant_range
    long_enough = step - step[0] >= t.constant_share * total
    expected = (step - step[0]) / max(total - float(step[0]), 1.0)
    if "cosine" in schedule:
        expected = (1 - np.cos(np.pi * np.minimum(expected, 1.0))) / 2
    hits = np.flatnonzero(still & long_enough & (expected > t.constant_moves))
    if not len(hits):
        return
    flagged = start + int(hits[0])
    yield sighting(
        WARN,
        f"the learning rate stands at {x[0]:.6g} from step {step[0]} to {lr.step[start + int(hits[-1])]}, though the declared schedule is {schedule!r}.",
        lr,
        first=start,
        last=start + int(hits[-1]),
        flagged=flagged,
        threshold={"range": t.constant_range, "share": t.constant_share},
    )


@rule(
    "TP305",
    "lr-exhausted-early",
    severity=FAIL,
    needs=("lr",),
    facts=("total_steps",),
    min_records=20,
    fix="Check how often scheduler.step() is called (once a process, once a micro-batch?) and the total it was given.",
)
def lr_exhausted_early(frame: Frame, t: LearningRateThresholds) -> Iterator[Sighting]:
    """The learning rate has run out with a good part of the run still to come.

    What it does
    Looks for the step at which the rate has fallen to 1 % of its peak, and compares it with the planned steps.

    Why it matters
    A scheduler stepped several times a step spends its decay in a fraction of the run; the rest hardly learns.

    Formula
    lr <= 1 % of the peak (after the peak, and to the end of the log) with 10 % of the planned steps left: WARN; 25 %: FAIL. When the
    planned steps are a whole multiple of that step, the message says so.

    False positives
    Warm-up-stable-decay and annealed tails end near zero on purpose, and a cosine is at 1 % with 6.4 % left (less than 10 % from the end). Not asked when the planned steps
    are unknown.

    What to try
    Print the scheduler's last step beside the trainer's.
    """
    lr = logged_rate(frame)
    total = float(frame.total_steps or 0)
    if total <= 0:
        raise CannotTell("the planned steps are not a positive number")
    peak_at = int(np.argmax(lr.value))
    peak = float(lr.value[peak_at])
    out = lr.value <= t.exhausted_share * peak
    out[: peak_at + 1] = False
    state = stats.last_run(out)
    if state is None or peak <= 0:
        return
    step = int(lr.step[state[0]])
    left = 1 - step / total
    if left < t.exhausted_warn:
        return
    times = round(total / max(step, 1))
    whole = (
        f" {times} x that step is the planned total."
        if times >= 2 and abs(total / step - times) <= t.exhausted_whole * times
        else ""
    )
    yield sighting(
        FAIL if left >= t.exhausted_fail else WARN,
        f"the learning rate fell to {lr.value[state[0]]:.4g}, {t.exhausted_share:.0%} of its peak or less, at step {step} of {total:g}: {left:.0%} of the "
        f"run is left.{whole}",
        lr,
        first=peak_at,
        last=len(lr) - 1,
        flagged=state[0],
        threshold={
            "share": t.exhausted_share,
            "left": t.exhausted_fail if left >= t.exhausted_fail else t.exhausted_warn,
        },
    )
