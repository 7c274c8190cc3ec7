"""TP105, TP106: what the loss scaler of mixed precision says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from trainproof import stats
from trainproof.frame import Frame, Series
from trainproof.rules.registry import FAIL, INFO, WARN, CannotTell, Sighting, rule, sighting
from trainproof.thresholds import NumericsThresholds
from trainproof.verdict import Severity


class Overflows(NamedTuple):
    """Skipped steps a record of `series`, and the steps that each record stands for; shape (n,)."""

    series: Series
    skipped: stats.Floats
    steps: stats.Floats


def dynamic_scale(frame: Frame) -> Series:
    """The finite loss scales, if the scale is a dynamic one. Raises CannotTell for a static one and for a placeholder."""
    scale = frame["loss_scale"].finite
    if not len(scale) or not (scale.value > 0).any():
        raise CannotTell("the loss scale is a placeholder, never above 0")
    if scale.constant:
        raise CannotTell(f"the loss scale is {scale.value[0]:g} throughout: a static scale")
    return scale


def overflows(frame: Frame, t: NumericsThresholds) -> Overflows:
    """Skipped steps after the start-up grace: from the logger's count, else one for each halving of the loss scale.

    A count that never falls and passes 1 is a running total, and so is one that stands at 1 while the loss scale does not fall. Raises
    CannotTell when the log holds neither.
    """
    if "skipped_steps" in frame and len(frame["skipped_steps"].finite):
        series = frame["skipped_steps"].finite
        count = np.clip(series.value, 0.0, None)
        total = bool((count[1:] >= count[:-1]).all()) and (float(count[-1]) > 1 or _scale_stands(frame, series, count))
        skipped = np.diff(count, prepend=count[0]) if total else count
    elif "loss_scale" in frame:
        series = dynamic_scale(frame)
        skipped = _halvings(series.value)
    else:
        raise CannotTell("neither skipped steps nor a loss scale in the log")
    steps = np.diff(series.step, prepend=series.step[0]).astype(np.float64)
    skipped = np.minimum(skipped, steps)
    skipped[series.step <= series.step[0] + t.overflow_grace] = 0.0
    return Overflows(series, skipped, steps)


def _scale_stands(frame: Frame, series: Series, count: stats.Floats) -> bool:
    """Whether a loss scale is logged that is no lower at the end than after the first record with a count."""
    if "loss_scale" not in frame or not count.any():
        return False
    scale = frame["loss_scale"].finite
    at = int(scale.upto(series.step[np.argmax(count > 0) :][:1])[0])
    return 0 <= at < len(scale) - 1 and float(scale.value[-1]) >= float(scale.value[at])


def _halvings(scale: stats.Floats) -> stats.Floats:
    """How often the scale was halved since the record before; a scale printed as 0 has been halved at least once."""
    before, after = np.maximum(scale[:-1], 0.0), np.maximum(scale[1:], 0.0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        times = np.log2(before / after)
    times = np.where(np.isfinite(times), np.round(times), 1.0)
    return np.concatenate(([0.0], np.where(after < before, np.maximum(times, 1.0), 0.0)))


def window_share(seen: Overflows, t: NumericsThresholds) -> stats.Floats:
    """The share of skipped steps in the last 200 steps after the grace, at each record; 0 before 50 such steps."""
    step = seen.series.step
    total = np.cumsum(seen.skipped)
    before = np.searchsorted(step, step - t.overflow_window, side="right") - 1
    inside = total - np.where(before >= 0, total[np.maximum(before, 0)], 0.0)
    after_grace = step - step[0] - t.overflow_grace
    share: stats.Floats = inside / np.clip(after_grace, 1, t.overflow_window)
    share[after_grace < t.overflow_min_steps] = 0.0
    return share


@rule(
    "TP105",
    "overflow-rate",
    severity=FAIL,
    fix="Train in bfloat16, or lower the learning rate; check for activations that grow.",
)
def overflow_rate(frame: Frame, t: NumericsThresholds) -> Iterator[Sighting]:
    """The loss scaler skips too many steps.

    What it does
    Counts the steps that were skipped (by the logger's count, or by halvings of the scale), after the start-up search.

    Why it matters
    Every skipped step is work thrown away, and a scaler that keeps skipping is near its end.

    Formula
    After step 50, over the last 200 steps: more than 5 % skipped WARN; more than 20 %, or 8 consecutive ones, FAIL.

    False positives
    The search from 2^16 at the start skips 4 to 8 in a row; a scaler that probes every 2,000 steps skips 0.05 %. A static scale and a
    placeholder are not asked.

    What to try
    bfloat16.
    """
    seen = overflows(frame, t)
    series, n = seen.series, len(seen.series)
    if n and int(series.step[-1] - series.step[0]) < t.overflow_grace + t.overflow_min_steps:
        raise CannotTell(f"{series.step[-1] - series.step[0]} steps, needs {t.overflow_grace + t.overflow_min_steps}")
    if not seen.skipped.any():
        return
    share = window_share(seen, t)
    for severity, limit in ((FAIL, t.overflow_share), (WARN, t.overflow_share_warn)):
        over = share > limit
        if severity is FAIL:
            over |= _consecutive(seen) >= t.overflow_streak
        over[series.step - series.step[0] < t.overflow_grace + t.overflow_min_steps] = False
        if over.any():
            flagged = int(np.argmax(over))
            yield sighting(
                severity,
                f"the loss scaler skipped {seen.skipped[: flagged + 1].sum():g} steps up to step {series.step[flagged]} (start-up not "
                f"counted), {share[flagged]:.0%} of the last {t.overflow_window}.",
                series,
                first=int(np.argmax(seen.skipped > 0)),
                last=int(np.flatnonzero(seen.skipped)[-1]),
                flagged=flagged,
                threshold={"share": limit, "streak": t.overflow_streak},
            )
            return


def _consecutive(seen: Overflows) -> stats.Floats:
    """Skipped steps without a step in between, up to each record."""
    all_skipped = (seen.skipped > 0) & (seen.skipped >= seen.steps)
    total = np.cumsum(np.where(all_skipped, seen.skipped, 0.0))
    return total - np.maximum.accumulate(np.where(all_skipped, 0.0, total))


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
    After step 50: scale <= 1 for 5 records, or fallen 64 x within 50 steps: WARN; INFO once it has regained 4 x within 200 steps. FAIL
    when the scale is <= 1, or at its lowest, and steps are still skipped (more than 5 % of the last 200).

    False positives
    A static scale of 1.0 (bfloat16) and placeholders (-1, 0.000 throughout) are not asked; a scale printed as 0.000 after real ones
    has fallen below what is printed, and counts.

    What to try
    bfloat16.
    """
    scale = dynamic_scale(frame)
    started = scale.step > scale.step[0] + t.scale_grace
    low = stats.first_run(started & (scale.value <= t.scale_low), t.scale_low_records)
    fell = np.flatnonzero(_has_fallen(scale, started, t))
    flags = ([low[0] + t.scale_low_records - 1] if low else []) + fell[:1].tolist()
    if not flags:
        return
    flagged = min(flags)
    hopeless = _still_skipping(frame, scale, flagged, t)
    if hopeless is not None:
        yield _collapsed(scale, FAIL, hopeless, t)
    else:
        yield _collapsed(scale, INFO if _regained(scale, flagged, t) else WARN, flagged, t)


def _has_fallen(scale: Series, started: stats.Bools, t: NumericsThresholds) -> stats.Bools:
    """Whether the scale stands 64 x below its highest of the last 50 steps after the grace; a 0, as printed, has no ratio."""
    interval = max(1.0, stats.median(np.diff(scale.step)))
    width = min(max(1, round(t.scale_fall_steps / interval)) + 1, len(scale))
    after_grace = np.where(started, scale.value, 0.0)
    highest = -stats.trailing_minimum(-after_grace, width)
    highest[: width - 1] = np.maximum.accumulate(after_grace)[: width - 1]
    fallen: stats.Bools = (scale.value > 0) & (scale.value <= highest / t.scale_fall)
    return fallen


def _regained(scale: Series, flagged: int, t: NumericsThresholds) -> bool:
    until = int(np.searchsorted(scale.step, scale.step[flagged] + t.scale_regain_steps, side="right"))
    after = float(scale.value[flagged:until].max())
    return after > t.scale_low and after >= t.scale_regain * float(scale.value[flagged])


def _still_skipping(frame: Frame, scale: Series, since: int, t: NumericsThresholds) -> int | None:
    """The first record from `since` on at a scale <= 1, or at its lowest so far, with steps still being skipped; None if there is none."""
    seen = overflows(frame, t)
    at = seen.series.upto(scale.step)
    skipping = window_share(seen, t)[np.maximum(at, 0)] > t.overflow_share_warn
    lowest = np.minimum.accumulate(scale.value)
    held = np.concatenate(([False], (scale.value[1:] == lowest[1:]) & (scale.value[1:] == scale.value[:-1])))
    counted = seen.series.name == "skipped_steps"  # a scale that is its own witness cannot be held and cut at once
    stuck = skipping & ((scale.value <= t.scale_low) | (held & counted))
    stuck[:since] = False
    return int(np.argmax(stuck)) if stuck.any() else None


def _collapsed(scale: Series, severity: Severity, flagged: int, t: NumericsThresholds) -> Sighting:
    highest = int(np.argmax(scale.value[: flagged + 1]))
    back = " It has risen again since." if severity is INFO else ""
    return sighting(
        severity,
        f"the loss scale fell from {scale.value[highest]:.6g} to {scale.value[flagged]:.6g} by step {scale.step[flagged]}.{back}",
        scale,
        first=highest,
        last=len(scale) - 1,
        flagged=flagged,
        cite=sorted({highest, flagged}),
        threshold={"scale": t.scale_low, "fall": t.scale_fall},
    )
