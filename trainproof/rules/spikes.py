"""TP201, TP202, TP210: episodes and shifts of the loss against where it stood just before."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from trainproof import stats
from trainproof.frame import Frame, Series
from trainproof.rules.registry import FAIL, INFO, SUPERVISED, WARN, CannotTell, Sighting, evidence, rule, sighting
from trainproof.rules.starting_up import learned_since
from trainproof.rules.switched_on import switched_on
from trainproof.thresholds import LossThresholds
from trainproof.verdict import Evidence


class Episode(NamedTuple):
    """The loss above its baseline: records begin..stop (exclusive), flagged at `flagged`, baseline M and S just before."""

    begin: int
    flagged: int
    stop: int
    median: float
    scale: float
    corroborated_by: str | None = None
    more: tuple[Evidence, ...] = ()


def episodes(loss: Series, t: LossThresholds) -> list[Episode]:
    """Stretches in which the median of 5 records stands at least `spike_z` S and `spike_ratio` x M above the baseline.

    An episode lasts until the median of 5 is back within `recovered_ratio` of the baseline that it left.
    """
    m5 = loss.memo(stats.median5)
    base = loss.memo(stats.baseline)
    found: list[Episode] = []
    stop, known = 0, math.inf  # until `stop`, only a level above what is known of this stretch is news
    for flagged in _high(m5, base, t).tolist():
        level = float(m5[flagged])
        if flagged < stop and level <= known:
            continue
        median, scale = float(base.median[flagged]), float(base.scale[flagged])
        stop, known = _recovery(m5, flagged, median, t), math.inf
        if _recurs(loss.value[: flagged - 4], median, level, t):
            known = level + t.spike_recurs_more * (level - median)
        else:
            found.append(Episode(flagged - 4, flagged, stop, median, scale))
    return found


def _high(m5: stats.Floats, base: stats.Baseline, t: LossThresholds) -> stats.Ints:
    """The records whose median of 5 stands far above the baseline."""
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        at = np.flatnonzero(m5 > base.high)
        level, median, scale = m5[at], base.median[at], base.scale[at]
        spread = scale / np.abs(median)
        far = (level - median >= t.spike_z * scale) & (level - median >= (t.spike_ratio - 1) * np.abs(median))
        # Losses are skewed: what is far in units of the scale may be near in logarithms.
        far &= (median <= 0) | (np.log(level / median) >= t.spike_log_z * spread)
    return at[far]


def _recurs(before: stats.Floats, median: float, level: float, t: LossThresholds) -> bool:
    """Whether the records before went up to about `level` now and then: batches of two kinds make a loss of two levels, no spike."""
    high = before[-t.spike_memory :] >= median + t.spike_recurs_height * (level - median)
    rises = int(np.count_nonzero(high[1:] & ~high[:-1]))
    return rises >= max(2, len(high) / t.spike_recurs_every)


def _recovery(m5: stats.Floats, flagged: int, median: float, t: LossThresholds) -> int:
    """The first record after `flagged` whose median of 5 is back near the level left, or the end."""
    level = median + (t.recovered_ratio - 1) * abs(median)
    start, size = flagged, 64
    while start < len(m5):  # in pieces that grow: an episode is short, and a log may have many
        back = np.flatnonzero(m5[start : start + size] <= level)
        if len(back):
            return start + int(back[0])
        start, size = start + size, 2 * size
    return len(m5)


@rule(
    "TP201",
    "loss-spike-episode",
    severity=WARN,
    needs=("loss",),
    objectives=SUPERVISED,
    min_records=25,
    fix="Look at the batches just before the first cited step; skip them, lower the learning rate, or tighten gradient clipping.",
)
def loss_spike_episode(frame: Frame, t: LossThresholds) -> Iterator[Sighting]:
    """The loss rose well above where it stood, for several records in a row.

    What it does
    Compares the median of the last 5 records with the 64 records before them. A single record never fires by itself: only together
    with a gradient norm at 8 x its level, a loss scale cut to a quarter, or a skipped step.

    Why it matters
    Spikes cost progress, and a run that spikes more and more often is on the way to diverge.

    Formula
    M, S, H = median, max(1.4826 MAD, 0.02 M, print quantum) and 95th percentile of the 64 (at least 20) records that end 5 before; fires
    when the median of 5 is >= M + 5 S, >= 1.10 M, > H, and log(median of 5 / M) >= 4 S / M. At once: one record with z >= 8 and >= 1.5 M
    beside a corroborating record within 2 records, unless more such records have stood alone so far than beside one.

    False positives
    Isolated outliers (a median of 5 ignores them); batches of two kinds (no spike where the 512 records before went two thirds as
    high twice, or once in 128 records); the first 20 records; running means (skipped). None in 97 public runs.

    What to try
    Inspect the data of the cited steps; restart about 100 steps before and skip them; lower the rate; clip.
    """
    loss = frame["loss"].finite
    if loss.memo(stats.is_running_mean):
        raise CannotTell("the loss is a running mean, which hides spikes")
    if len(loss) < t.spike_min_records:
        return
    found = _merged(loss.derived(episodes, t), _immediate(frame, loss, t))
    if not found:
        return
    episode = max(found, key=lambda e: float(np.max(loss.value[e.begin : e.stop])) - e.median)
    peak = episode.begin + int(np.argmax(loss.value[episode.begin : episode.stop]))
    first = min(found, key=lambda e: e.flagged)
    others = f" {len(found)} episodes in all, the first at step {loss.step[first.begin]}." if len(found) > 1 else ""
    lasted = (
        "and has not come back yet"
        if episode.stop >= len(loss)
        else f"and was back after {episode.stop - episode.begin} records"
    )
    beside = f" Beside it: {episode.corroborated_by}." if episode.corroborated_by else ""
    yield sighting(
        WARN,
        f"the loss rose from {episode.median:.4g} to {loss.value[peak]:.4g} at step {loss.step[peak]} {lasted}.{beside}{others}",
        loss,
        first=first.begin,
        last=min(max(e.stop for e in found), len(loss) - 1),
        flagged=first.flagged,
        cite=sorted({*range(episode.begin, min(episode.begin + 5, len(loss))), peak}),
        more=episode.more,
        threshold={"z": t.spike_z, "ratio": t.spike_ratio},
    )


def _merged(slow: list[Episode], fast: list[Episode]) -> list[Episode]:
    """All episodes; a fast one is part of the slow one that covers it, which is then flagged where the fast one was."""
    found: list[Episode] = []
    left = fast
    for episode in slow:
        inside = [e for e in left if episode.begin <= e.flagged < max(episode.stop, episode.flagged + 1)]
        left = [e for e in left if e not in inside]
        found.append(
            episode._replace(flagged=min(episode.flagged, *(e.flagged for e in inside)) if inside else episode.flagged)
        )
    return sorted(found + left, key=lambda e: e.flagged)


def _immediate(frame: Frame, loss: Series, t: LossThresholds) -> list[Episode]:
    """Single records far above the baseline that another metric corroborates."""
    base = loss.memo(stats.baseline)
    with np.errstate(invalid="ignore", over="ignore"):
        high = np.flatnonzero(loss.value - base.median >= t.fast_z * base.scale)
        rise = loss.value[high] - base.median[high]
        high = high[
            (rise > 0) & (rise >= (t.fast_ratio - 1) * np.abs(base.median[high])) & (high >= t.fast_min_records)
        ]
    found: list[Episode] = []
    lone = 0
    for index in high.tolist():
        what, more = _corroboration(frame, loss, index, t)
        if not what:
            lone += 1
        elif lone <= len(found):  # where most outliers stand alone, the others do not come together but by chance
            found.append(
                Episode(index, index, index + 1, float(base.median[index]), float(base.scale[index]), what, more)
            )
    return found


def _corroboration(frame: Frame, loss: Series, i: int, t: LossThresholds) -> tuple[str | None, tuple[Evidence, ...]]:
    """What else moved within 2 records of record i: its description and its point."""
    near = loss.step[max(0, i - 2)], loss.step[i]
    for name, test, what in (
        ("grad_norm", _grad_jumped, "the gradient norm jumped"),
        ("loss_scale", _scale_fell, "the loss scale was cut"),
        ("skipped_steps", _step_skipped, "a step was skipped"),
    ):
        if name not in frame:
            continue
        series = frame[name].finite
        lo, hi = np.searchsorted(series.step, [near[0], near[1] + 1])
        for k in range(int(lo), int(hi)):
            if test(series.value, k, t):
                return what, evidence(series, [k])
    return None, ()


def _grad_jumped(x: stats.Floats, k: int, t: LossThresholds) -> bool:
    before = x[max(0, k - stats.BASELINE_WINDOW) : k]
    return len(before) >= stats.BASELINE_MINIMUM and float(x[k]) >= t.fast_grad_ratio * stats.median(before) > 0


def _scale_fell(x: stats.Floats, k: int, t: LossThresholds) -> bool:
    return k > 0 and 0 < float(x[k]) <= float(x[k - 1]) / t.fast_scale_cut


def _step_skipped(x: stats.Floats, k: int, t: LossThresholds) -> bool:
    return k > 0 and float(x[k]) > float(x[k - 1])


@rule(
    "TP202",
    "spike-not-recovered",
    severity=FAIL,
    needs=("loss",),
    objectives=SUPERVISED,
    min_records=65,
    fix="Restart from a checkpoint before the spike, skip the batches around it, and lower the learning rate.",
)
def spike_not_recovered(frame: Frame, t: LossThresholds) -> Iterator[Sighting]:
    """After a spike the loss did not come back to the level that it had left.

    What it does
    Follows each episode of TP201 until the median of 5 is back within 5 % of the level before it.

    Why it matters
    A spike that recovers costs little; one that does not has moved the weights somewhere worse.

    Formula
    WARN when the median of 5 stays above 1.05 M for 40 records; FAIL after max(200, 2 % of the planned steps) records, when the run
    ends there. M is the level before the episode.

    False positives
    A published 104-billion-parameter run needed about 2,000 steps to come back, so FAIL says "not recovered yet". An episode that
    came back later is at most WARN, and so is one at which a part of the loss was switched on or after which a
    task metric rose to its best (see TP203). A curriculum or data change
    that keeps the loss higher on purpose fires: declare phases apart.

    What to try
    Restart before the spike with those batches skipped; lower the rate.
    """
    loss = frame["loss"].finite
    if len(loss) < t.unrecovered_min_records or loss.memo(stats.is_running_mean):
        return
    for episode in loss.derived(episodes, t):
        length = episode.stop - episode.flagged
        if length < t.unrecovered_warn_records:
            continue
        still = episode.stop >= len(loss)
        fail_after = unrecovered_records(frame, loss, t)
        begin = max(0, episode.begin - 5)
        part = switched_on(frame, loss, begin, episode.flagged) or learned_since(
            frame, int(loss.step[begin]), int(loss.step[episode.flagged]), t
        )
        severity = FAIL if still and length >= fail_after and not part else WARN
        flagged = episode.flagged + (fail_after if severity is FAIL else t.unrecovered_warn_records) - 1
        now = stats.median(loss.value[-5:])
        came = f"it stands at {now:.4g} at the end" if still else f"it came back at step {loss.step[episode.stop]}"
        yield sighting(
            severity,
            f"{length} records after a spike the loss was still above its level before, {episode.median:.4g}: {came}.{part}",
            loss,
            first=episode.begin,
            last=min(episode.stop, len(loss) - 1),
            flagged=flagged,
            threshold={
                "ratio": t.recovered_ratio,
                "records": t.unrecovered_warn_records if severity is WARN else fail_after,
            },
        )
        return


def unrecovered_records(frame: Frame, loss: Series, t: LossThresholds) -> int:
    """After how many records above its level a loss that has not come back fails."""
    return max(t.unrecovered_fail_records, int(t.unrecovered_fail_share * _planned_records(frame, loss)))


def _planned_records(frame: Frame, loss: Series) -> float:
    """Planned steps in units of records: the declared total over the logging interval, else the records that there are."""
    total, interval = frame.total_steps, stats.median(np.diff(loss.step)) if len(loss) > 1 else 1.0
    return total / max(interval, 1.0) if total else float(len(loss))


@rule(
    "TP210",
    "level-shift",
    severity=WARN,
    needs=("loss",),
    objectives=SUPERVISED,
    min_records=60,
    fix="Compare what changed at the cited step: data mixture, sequence length, configuration, hardware.",
)
def level_shift(frame: Frame, t: LossThresholds) -> Iterator[Sighting]:
    """The loss moved to a higher level and stayed there, without a spike that explains it.

    What it does
    A Page-Hinkley test adds up how far each record stands above the 64 before it; a lasting small rise adds up, noise does not.

    Why it matters
    A change of data, length or configuration shows as a step in the loss that is too small for a spike test.

    Formula
    z = (loss - M) / S clipped to +-4; fires when the cumulative sum of z - 0.5 stands 25 above its minimum, and the median of the 20
    records after the change is above that of the 20 before by >= 2.5 S, by >= 3 %, and by >= 2.5 S / M in logarithms.

    False positives
    Planned changes (curriculum, longer sequences) are shifts too: they are told with the step. Episodes of TP201 and restarts are
    left to their own rules. None in 97 public runs.

    What to try
    See what changed at that step.
    """
    loss = frame["loss"].finite
    if len(loss) < t.shift_min_records or loss.memo(stats.is_running_mean):
        return
    base = loss.memo(stats.baseline)
    start = int(np.argmax(np.isfinite(base.median)))
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        z = np.clip((loss.value - base.median) / base.scale, -t.shift_clip, t.shift_clip)
    np.nan_to_num(z, copy=False)
    explained = np.zeros(len(loss), dtype=bool)
    for episode in loss.derived(episodes, t):
        explained[max(0, episode.begin - t.shift_side) : episode.stop + stats.BASELINE_WINDOW] = True
    while hit := stats.page_hinkley(z, t.shift_delta, t.shift_lambda, start):
        flagged, change = hit
        if not explained[change : flagged + 1].any() and (seen := _shift(loss, base, change, flagged, t)):
            yield seen
            return
        start = flagged + 1


def _shift(loss: Series, base: stats.Baseline, change: int, flagged: int, t: LossThresholds) -> Sighting | None:
    side = t.shift_side
    if change < side or change + side > len(loss):
        return None
    before, after = (
        stats.median(loss.value[change - side : change]),
        stats.median(loss.value[change : change + side]),
    )
    scale = float(base.scale[change])
    if after - before < max(t.shift_scales * scale, t.shift_share * abs(before)):
        return None
    if before > 0 and math.log(after / before) < t.shift_scales * scale / before:  # losses are skewed
        return None
    flagged = max(flagged, change + side - 1)
    back = stats.median(loss.value[-side:]) <= before
    return sighting(
        INFO if back else WARN,
        f"the loss moved from {before:.4g} to {after:.4g} (medians of {side} records) at step {loss.step[change]}"
        f"{', and has come back since' if back else ' and stayed'}.",
        loss,
        first=change,
        last=len(loss) - 1,
        flagged=flagged,
        cite=sorted({change - 1, change, flagged}),
        threshold={"scales": t.shift_scales, "share": t.shift_share},
    )
