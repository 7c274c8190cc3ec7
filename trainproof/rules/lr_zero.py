"""TP301: a learning rate of exactly zero while the run goes on."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trainproof import stats
from trainproof.frame import Frame, Series
from trainproof.rules.registry import FAIL, INFO, WARN, CannotTell, Sighting, rule, sighting
from trainproof.rules.schedules import logged_rate
from trainproof.thresholds import LearningRateThresholds

Run = tuple[int, int]


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
    lr == 0 in 5 consecutive records: WARN; over 20 % of the planned steps (or, where they are unknown, of at least 20 records): FAIL.
    The first record and the last 2 % of the planned steps do not count; a start at 0 that ends within 2 % of the records is INFO.

    False positives
    A deliberate start at 0; a rate that fades out where no planned steps are known (TP305 tells it); a small rate printed as 0, which
    its neighbours or a falling loss give away; a frozen group beside others that train.

    What to try
    Print the scheduler's rate for each step before training.
    """
    lr = logged_rate(frame)
    zero = lr.value == 0
    zero[0] = False
    if not zero.any():
        return
    if any(name.startswith("lr/") and (series.finite.value > 0).any() for name, series in frame.items()):
        raise CannotTell("another parameter group has a rate above 0")
    if frame.total_steps:
        zero &= lr.step < (1 - t.zero_end) * frame.total_steps
    runs = [r for r in stats.runs_of(zero) if r[1] - r[0] >= t.zero_records and not _innocent(frame, lr, r, t)]
    if runs:
        yield _told(frame, lr, runs, t)


def _told(frame: Frame, lr: Series, runs: list[Run], t: LearningRateThresholds) -> Sighting:
    counted = np.zeros(len(lr), dtype=bool)
    for start, stop in runs:
        counted[start:stop] = True
    failed = _too_many(frame, lr, counted, t)
    first, last = runs[0][0], runs[-1][1] - 1
    deliberate = first <= 1 and len(runs) == 1 and last < t.zero_end * len(lr)
    lasting = failed.any() and (failed[-1] or counted[-1] or bool(frame.total_steps))
    severity = FAIL if lasting else INFO if deliberate else WARN
    warned = first + t.zero_records - 1
    flagged = int(np.argmax(failed)) if severity is FAIL else warned
    return sighting(
        severity,
        f"the learning rate is exactly 0 in {int(counted.sum())} of {len(lr)} records, from step {lr.step[first]} on.",
        lr,
        first=first,
        last=last,
        flagged=flagged,
        cite=sorted({first, min(warned, flagged), flagged}),
        threshold={"records": t.zero_records, "share": t.zero_share},
    )


def _too_many(frame: Frame, lr: Series, counted: stats.Bools, t: LearningRateThresholds) -> stats.Bools:
    """Where the records at 0 make up 20 % of the planned steps, or of the records so far where nothing was planned."""
    if frame.total_steps:
        steps = np.diff(lr.step, prepend=lr.step[0])
        return np.cumsum(np.where(counted, steps, 0)) >= t.zero_share * frame.total_steps
    n = np.arange(1, len(lr) + 1)
    return (n >= t.zero_share_records) & (np.cumsum(counted) >= t.zero_share * n)


def _innocent(frame: Frame, lr: Series, run: Run, t: LearningRateThresholds) -> bool:
    return (
        (frame.total_steps is None and run[1] == len(lr) and _faded(lr, run, t))
        or _rounded(lr, run, t)
        or _still_learns(frame, lr, run, t)
    )


def _faded(lr: Series, run: Run, t: LearningRateThresholds) -> bool:
    """Whether the rate came down to 0 through ever smaller values."""
    before = lr.value[max(0, run[0] - 3) : run[0]]
    if len(before) < 3:
        return False
    return bool((before[1:] <= before[:-1]).all()) and float(before[-1]) <= t.zero_faded * float(
        lr.value[: run[0]].max()
    )


def _rounded(lr: Series, run: Run, t: LearningRateThresholds) -> bool:
    """Whether 0 may be a small rate as printed: the rates have few decimals, and a neighbour is a few units in the last one."""
    quantum = lr.memo(_decimal, t.zero_rounded_levels)
    neighbours = [float(lr.value[i]) for i in (run[0] - 1, run[1]) if i < len(lr) and lr.value[i] > 0]
    return quantum is not None and any(value <= t.zero_rounded * quantum for value in neighbours)


def _decimal(rate: stats.Floats, least: int) -> float | None:
    """The power of ten, 10^-8 or more, of which all positive rates are multiples; None with fewer than `least` different ones."""
    levels = stats.distinct(rate[rate > 0])[0]
    if len(levels) < least:
        return None
    return next((q for d in range(1, 9) if _multiples(levels, q := 10.0**-d)), None)


def _multiples(levels: stats.Floats, quantum: float) -> bool:
    units = levels / quantum
    return bool((np.abs(units - np.round(units)) < 1e-6).all())


def _still_learns(frame: Frame, lr: Series, run: Run, t: LearningRateThresholds) -> bool:
    """Whether the loss clearly falls over the stretch, which it cannot at a rate of 0."""
    if "loss" not in frame:
        return False
    loss = frame["loss"].finite
    lo, hi = (int(i) for i in np.searchsorted(loss.step, [lr.step[run[0]], lr.step[run[1] - 1] + 1]))
    return hi - lo >= t.zero_learns_records and stats.trend(loss.value, lo, hi).z < t.zero_learns_z
