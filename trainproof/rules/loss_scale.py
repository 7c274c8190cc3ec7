"""TP105, TP106: what the loss scaler of mixed precision says."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trainproof import stats
from trainproof.frame import Frame, Series
from trainproof.rules.registry import FAIL, WARN, CannotTell, Sighting, rule, sighting
from trainproof.thresholds import NumericsThresholds
from trainproof.verdict import Severity


def dynamic_scale(frame: Frame) -> Series:
    """The loss scale, if it is a dynamic one. Raises CannotTell for a placeholder or a static scale."""
    scale = frame["loss_scale"].finite
    if not len(scale) or scale.constant or (scale.value <= 0).all():
        raise CannotTell("the loss scale is static or a placeholder")
    return scale


def _overflows(frame: Frame, t: NumericsThresholds) -> tuple[Series, stats.Bools]:
    """Records at which a step was skipped: the counter rose, or the scale fell."""
    if "skipped_steps" in frame and not frame["skipped_steps"].constant:
        counter = frame["skipped_steps"].finite
        return counter, np.concatenate(([False], np.diff(counter.value) > 0))
    if "loss_scale" not in frame:
        raise CannotTell("neither skipped steps nor a loss scale in the log")
    scale = dynamic_scale(frame)
    return scale, np.concatenate(([False], scale.value[1:] < scale.value[:-1] / t.overflow_cut))


@rule(
    "TP105",
    "overflow-rate",
    severity=FAIL,
    fix="Train in bfloat16, or lower the learning rate; check for activations that grow.",
)
def overflow_rate(frame: Frame, t: NumericsThresholds) -> Iterator[Sighting]:
    """The loss scaler skips too many steps.

    What it does
    Counts the records at which a step was skipped (a counter that rose, a scale that was cut), after the start-up search.

    Why it matters
    Every skipped step is work thrown away, and a scaler that keeps skipping is near its end.

    Formula
    After step 50, over the last 200 records: more than 5 % skipped WARN, more than 20 % or 8 in a row FAIL.

    False positives
    The search from 2^16 at the start skips 4 to 8 in a row; a scaler that probes every 2,000 steps skips 0.05 %.

    What to try
    bfloat16.
    """
    series, skipped = _overflows(frame, t)
    if len(series) < t.overflow_min_records:
        raise CannotTell(f"{len(series)} records, needs {t.overflow_min_records}")
    skipped = (
        skipped
        & (series.step > series.step[0] + t.overflow_grace_steps)
        & (np.arange(len(series)) >= t.overflow_grace_records)
    )
    total = np.concatenate(([0], np.cumsum(skipped)))
    n = np.arange(1, len(series) + 1)
    window = np.minimum(n, t.overflow_window)
    share = (total[n] - total[n - window]) / window
    streak = stats.first_run(skipped, t.overflow_streak)
    for severity, limit in ((FAIL, t.overflow_fail), (WARN, t.overflow_warn)):
        over = (share > limit) & (n >= t.overflow_min_records)
        hits = [int(np.argmax(over))] if over.any() else []
        if severity is FAIL and streak:
            hits.append(streak[0] + t.overflow_streak - 1)
        if hits:
            flagged = min(hits)
            yield sighting(
                severity,
                f"{int(skipped[: flagged + 1].sum())} steps were skipped by the loss scaler up to step {series.step[flagged]}, {share[flagged]:.0%} of "
                f"the last {window[flagged]} records.",
                series,
                first=int(np.argmax(skipped)),
                last=int(np.flatnonzero(skipped)[-1]),
                flagged=flagged,
                threshold={"share": limit, "streak": t.overflow_streak},
            )
            return


@rule(
    "TP106",
    "loss-scale-collapse",
    severity=FAIL,
    needs=("loss_scale",),
    min_records=20,
    stops=True,
    fix="Train in bfloat16; lower the learning rate; look at the layers whose activations grow.",
)
def loss_scale_collapse(frame: Frame, t: NumericsThresholds) -> Iterator[Sighting]:
    """The dynamic loss scale has fallen to the floor.

    What it does
    Watches a dynamic loss scale for a fall that does not recover.

    Why it matters
    The scale falls because gradients overflow at every size; in published runs it collapses about 30 steps before the loss does.

    Formula
    Scale <= 1 outside the first 20 records, or fallen 64 x within 50 records and not back at a quarter within 200: WARN. Scale <= 1 for 5
    records in a row at the end: FAIL.

    False positives
    A static scale of 1.0 (bfloat16) and placeholders are constant, and skipped; logs that print 0.000 for a scale.

    What to try
    bfloat16.
    """
    scale = dynamic_scale(frame)
    x = scale.value
    low = x <= t.scale_floor
    low[: t.scale_grace_records] = False
    low &= x > 0
    end = stats.last_run(low)
    if end and end[1] - end[0] >= t.scale_floor_records:
        yield _collapsed(scale, end[0], end[0] + t.scale_floor_records - 1, FAIL, t)
        return
    if low.any():
        yield _collapsed(scale, int(np.argmax(low)), int(np.argmax(low)), WARN, t)
        return
    for i in range(t.scale_grace_records, len(x)):
        high = float(x[max(0, i - t.scale_fall_records) : i].max())
        if 0 < x[i] <= high / t.scale_fall:
            until = min(len(x), i + t.scale_back_records)
            if until == i + t.scale_back_records and float(x[i:until].max()) < high / t.scale_fall * t.scale_back:
                yield _collapsed(scale, i, until - 1, WARN, t)
                return


def _collapsed(scale: Series, first: int, flagged: int, severity: Severity, t: NumericsThresholds) -> Sighting:
    return sighting(
        severity,
        f"the loss scale fell from {scale.value[: first + 1].max():.6g} to {scale.value[flagged]:.6g} by step {scale.step[flagged]}.",
        scale,
        first=first,
        last=len(scale) - 1,
        flagged=flagged,
        cite=sorted({int(np.argmax(scale.value[: first + 1])), first, flagged}),
        threshold={"floor": t.scale_floor, "fall": t.scale_fall},
    )
