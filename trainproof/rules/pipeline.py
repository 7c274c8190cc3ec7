"""Family TP92: asynchronous pipelines: what their logs say of their clock, their warm-up, their epochs, their batches and their queues."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trainproof import stats
from trainproof.frame import Frame, Series
from trainproof.rules import gaps, modes, queues  # noqa: F401  registers TP921 to TP923, TP927 and TP928
from trainproof.rules.registry import WARN, CannotTell, Sighting, rule, sighting
from trainproof.rules.schedules import logged_rate, warmup_steps
from trainproof.rules.states import lasting
from trainproof.thresholds import PipelineThresholds


@rule(
    "TP924",
    "first-step-at-full-rate",
    severity=WARN,
    needs=("lr",),
    whole_run=True,
    min_records=6,
    fix="Apply the scheduler before the first optimizer step (a warm-up factor of its first step, not of the one after).",
)
def first_step_at_full_rate(frame: Frame, t: PipelineThresholds) -> Iterator[Sighting]:
    """The first step is taken at the full learning rate, the second at the start of the warm-up.

    What it does
    Compares the first logged learning rate with the next ones.

    Why it matters
    The warm-up exists for the first step; one step at full rate on fresh moments moves every weight by about the rate itself.

    Formula
    lr of the first record >= 10 x that of the second, and the following 4 rise: WARN.

    False positives
    Parameter groups that warm down from above (biases in some detectors) fall from there and do not rise.

    What to try
    Print the rate inside the optimizer at step 0.
    """
    lr = logged_rate(frame)
    x = lr.value[: t.first_rises + 2]
    if len(x) < t.first_rises + 2 or not (np.diff(x[1:]) > 0).all():
        return
    if x[0] >= t.first_times * x[1] and int(lr.step[0]) <= t.first_step:
        yield sighting(
            WARN,
            f"the learning rate is {x[0]:.4g} at step {lr.step[0]} and {x[1]:.4g} at step {lr.step[1]}, rising from there: the warm-up missed "
            "its first step.",
            lr,
            first=0,
            last=len(x) - 1,
            cite=[0, 1, len(x) - 1],
            threshold={"times": t.first_times},
        )


@rule(
    "TP925",
    "warmup-longer-than-declared",
    severity=WARN,
    needs=("lr",),
    whole_run=True,
    min_records=10,
    fix="Check whether the scheduler counts optimizer steps, micro-batches or processes, and what the declared share is a share of.",
)
def warmup_longer_than_declared(frame: Frame, t: PipelineThresholds) -> Iterator[Sighting]:
    """The learning rate is still rising well after the declared warm-up.

    What it does
    Finds where the rate stops rising and compares that with the declared warm-up.

    Why it matters
    The scheduler counts something other than steps, so its decay will be off as well.

    Formula
    lr rises without a fall past 1.5 x the declared warm-up and stands 10 % above its value there: WARN at the first such record.

    False positives
    Schedules that rise again later are not asked: only the first rise counts.

    What to try
    Divide the two lengths: a whole number is how many times too seldom the scheduler is stepped.
    """
    declared = warmup_steps(frame)
    if declared is None:
        raise CannotTell("no warm-up declared (--fact warmup_steps=N)")
    lr = logged_rate(frame)
    skip = int(len(lr) > 1 and lr.value[0] > lr.value[1])  # a first step at full rate is TP924's
    x, step = lr.value[skip:], lr.step[skip:]
    fallen = np.flatnonzero(x[1:] < x[:-1])
    top = int(fallen[0]) if len(fallen) else len(x) - 1
    end = int(np.searchsorted(step, declared, side="right")) - 1
    if end < 1 or end >= top:
        return
    late = np.flatnonzero(
        (step[: top + 1] > t.warmup_times * declared) & (x[: top + 1] > (1 + t.warmup_above) * x[end])
    )
    if not len(late):
        return
    peak = int(np.argmax(x[: top + 1]))
    yield sighting(
        WARN,
        f"the learning rate rose until step {step[peak]}, {step[peak] / declared:.2g} x the declared warm-up of {declared:.0f} steps.",
        lr,
        first=0,
        last=peak + skip,
        flagged=int(late[0]) + skip,
        threshold={"times": t.warmup_times},
    )


@rule(
    "TP926",
    "epoch-arithmetic",
    severity=WARN,
    needs=("epoch",),
    whole_run=True,
    min_records=10,
    fix="Decide what one step and one epoch are (optimizer steps or micro-batches, one process or all), and log that.",
)
def epoch_arithmetic(frame: Frame, t: PipelineThresholds) -> Iterator[Sighting]:
    """The logged epoch does not agree with the step, the planned steps and the planned epochs.

    What it does
    Computes the epoch from the step and what was declared, and compares.

    Why it matters
    Schedules, saves and evaluations are planned in these units; when they disagree one of them is off by the same factor.

    Formula
    Expected epoch = step / steps_per_epoch, or step x epochs / total_steps (between that and its share (epochs - 1) / epochs, since the last
    epoch may be cut). The logged one is outside by 25 % and by 1 where it is whole: WARN, with the readings under which they agree.

    False positives
    Trainers that are given steps round the number of epochs up: hence the range. A log that begins late is compared at its end.

    What to try
    Count the batches of one epoch.
    """
    epoch = frame["epoch"].finite
    if frame.main is not None and frame.main.name == "epoch":
        raise CannotTell("the epoch is the step")
    expected = _expected(frame, epoch)
    early = int(np.searchsorted(epoch.step, int(t.epoch_share * frame.total_steps))) if frame.total_steps else 0
    start = max(early, t.epoch_records - 1)
    if start >= len(epoch):
        raise CannotTell("too early in the run to tell")
    low, high = expected
    sample = stats.thinned(epoch.value)
    whole = 1.0 if bool((sample == np.floor(sample)).all()) else 0.0
    x = epoch.value
    off = (x < (1 - t.epoch_near) * low - whole) | (x > (1 + t.epoch_near) * high + whole)
    state = lasting(off[start:], t.epoch_records)
    if state is None:
        return
    last = len(epoch) - 1
    yield sighting(
        WARN,
        f"the log says epoch {x[last]:.4g} at step {epoch.step[last]}, where {_what(frame)} make it {high[last]:.3g}."
        f"{_readings(frame, float(x[last]), float(high[last]))}",
        epoch,
        first=0,
        last=last,
        flagged=start + state.told,
        threshold={"near": t.epoch_near},
    )


def _expected(frame: Frame, epoch: Series) -> tuple[stats.Floats, stats.Floats]:
    """The least and the most that the epoch can be at each step. Raises CannotTell when too little is declared."""
    each, total, planned = frame.facts.number("steps_per_epoch"), frame.total_steps, frame.facts.number("epochs")
    if each:
        done = (epoch.step / each).astype(np.float64)
        return done, done + 1
    if not total or not planned or planned > total:
        raise CannotTell("neither steps_per_epoch, nor total_steps and epochs, are declared")
    done = (epoch.step * (planned / total)).astype(np.float64)
    return done * (planned - 1) / planned, done


def _what(frame: Frame) -> str:
    each = frame.facts.number("steps_per_epoch")
    if each:
        return f"{each:g} steps an epoch"
    return f"{frame.total_steps} planned steps and {frame.facts.number('epochs'):g} epochs"


def _readings(frame: Frame, logged: float, expected: float) -> str:
    """The readings under which the two agree, as a sentence; empty when there is none."""
    known = []
    ratio = expected / logged if logged > 0 else 0.0
    for name, what in (
        ("epochs", "the logged one is the share of the whole run"),
        ("accumulation", "one of them counts micro-batches, the other optimizer steps"),
        ("world_size", "one of them counts one process, the other all"),
    ):
        factor = frame.facts.number(name)
        if factor and factor > 1 and min(abs(ratio / factor - 1), abs(ratio * factor - 1)) <= 0.05:
            known.append(what)
    if abs(expected - np.floor(expected) - logged) <= 0.02 < abs(expected - logged):
        known.append("the logged one is the part of the current epoch")
    return f" They agree if {', or if '.join(known)}." if known else ""
