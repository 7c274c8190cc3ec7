"""TP921 to TP923: stalls in the steps and the clock, what follows them, and cliffs that no stall explains."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from trainproof import stats
from trainproof.frame import Frame, Series
from trainproof.names import higher_is_better
from trainproof.rules.registry import INFO, WARN, CannotTell, Sighting, rule, sighting
from trainproof.stats import Bools, Ints
from trainproof.thresholds import PipelineThresholds


class Gaps(NamedTuple):
    """Where the main series stands still: indices of the records before, seconds lost there (NaN without a clock), the usual distances."""

    main: Series
    before: Ints
    seconds: stats.Floats
    usual_steps: int
    usual_seconds: float


def gaps(frame: Frame, t: PipelineThresholds) -> Gaps:
    """The stalls of the run. Raises CannotTell for too few records, and where stalls are how the run logs."""
    main = frame.main
    if main is None or len(main) < t.gap_min_records:
        raise CannotTell(f"fewer than {t.gap_min_records} records")
    found = Gaps(main, *main.derived(_gaps, frame.get("time"), t))  # three rules ask
    if len(found.before) > t.gap_share * len(main):
        raise CannotTell("steps or times are irregular throughout")
    return found


def _gaps(main: Series, clock: Series | None, t: PipelineThresholds) -> tuple[Ints, stats.Floats, int, float]:
    """What is known of the gaps of the series `main`, in the order of Gaps."""
    steps = np.diff(main.step)
    usual = max(int(stats.median(stats.thinned(steps))), 1)
    seconds = _elapsed(clock, main)
    sample = stats.thinned(seconds)
    known = sample[np.isfinite(sample)]
    pace = stats.median(known) if len(known) else float("nan")
    stalled = steps >= t.gap_steps * usual
    if pace > 0:
        stalled |= seconds >= t.gap_seconds * pace
    before = np.flatnonzero(stalled)
    return before, seconds[before], usual, pace


def _elapsed(clock: Series | None, main: Series) -> stats.Floats:
    """Seconds between consecutive records of the main series, NaN where the clock says nothing; shape (n - 1,)."""
    if clock is None or not len(clock):
        return np.full(len(main) - 1, np.nan)
    if np.array_equal(clock.step, main.step):
        return np.diff(clock.value)
    at = clock.upto(main.step)
    exact = (at >= 0) & (clock.step[np.maximum(at, 0)] == main.step)
    seconds = np.where(exact, clock.value[np.maximum(at, 0)], np.nan)
    return np.diff(seconds)


def _interval(frame: Frame, at: Ints, t: PipelineThresholds) -> int | None:
    """The save interval whose multiples the steps `at` are: the declared one, or that of the first of at least two."""
    declared = frame.facts.number("save_steps")
    near = t.stall_near
    candidates = [int(declared)] if declared and declared >= 1 else []
    if len(at) >= t.stall_gaps:
        candidates += [round(int(at[0]) / unit) * unit for unit in (1000, 500, 100, 50, 10) if int(at[0]) >= unit]
    for interval in candidates:
        off = np.abs(at - np.round(at / interval) * interval)
        if (off <= max(near, t.stall_off * interval)).all() and (at >= interval - near).all():
            return interval
    return None


@rule(
    "TP921",
    "checkpoint-stall",
    severity=WARN,
    whole_run=True,
    fix="Save in the background or less often, on storage that keeps up; let prefetching threads wait instead of dropping steps.",
)
def checkpoint_stall(frame: Frame, t: PipelineThresholds) -> Iterator[Sighting]:
    """The run stands still, or loses steps from its log, each time a checkpoint is saved.

    What it does
    Finds gaps in the steps or the clock, and compares where they begin with the multiples of the save interval.

    Why it matters
    All devices wait for the disk; in decoupled pipelines the queues drain or overflow meanwhile.

    Formula
    A gap is a distance of 5 usual steps, or 5 usual times between records. Two or more, all within 5 steps (or 1 %) of multiples of the
    declared save interval, or of the step of the first one: WARN at the second.

    False positives
    Gaps elsewhere are TP002's and TP903's. Without a clock only missing steps are seen.

    What to try
    Time one save by itself.
    """
    found = gaps(frame, t)
    at = found.main.step[found.before]
    interval = _interval(frame, at, t)
    if interval is None or len(at) < t.stall_gaps:
        return
    told = ", ".join(_gap_text(found, k) for k in range(min(len(at), t.stall_told)))
    yield sighting(
        WARN,
        f"{len(at)} gaps, all at multiples of {interval} steps: {told}; a usual record is {found.usual_steps} step{'s' if found.usual_steps > 1 else ''}"
        f"{f' and {found.usual_seconds:.3g} s' if found.usual_seconds > 0 else ''} after the one before.",
        found.main,
        first=int(found.before[0]),
        last=int(found.before[-1]) + 1,
        flagged=int(found.before[t.stall_gaps - 1]) + 1,
        cite=[i for b in found.before[: t.stall_told].tolist() for i in (b, b + 1)],
        threshold={"steps": t.gap_steps, "seconds": t.gap_seconds},
    )


def _gap_text(found: Gaps, k: int) -> str:
    i = int(found.before[k])
    lost = f" with {found.seconds[k]:.0f} s between" if np.isfinite(found.seconds[k]) else ""
    return f"{found.main.step[i]} to {found.main.step[i + 1]}{lost}"


@rule(
    "TP922",
    "spike-after-gap",
    severity=INFO,
    needs=("loss",),
    whole_run=True,
    fix="Average over a fixed number of batches across the gap; compare the checkpoint with `trainproof checkpoint` before blaming it.",
)
def spike_after_gap(frame: Frame, t: PipelineThresholds) -> Iterator[Sighting]:
    """The first records after a stall show a loss far above its level, and then it is back.

    What it does
    Looks at the 5 records after each gap of the log.

    Why it matters
    It is easily read as damage done by the pause, such as a checkpoint that corrupts the weights.

    Formula
    A loss of 3 x the median of the 20 records before the gap within 5 records after it, and back under 1.5 x within 20: INFO.

    False positives
    Weights that a save had damaged would not be back within 20 records, so a recovery rules that out as the only cause; what rules out or
    proves a damaged file is the checkpoint itself. Spikes with no gap before them are TP923's and TP201's.

    What to try
    Log how many batches each printed average holds.
    """
    found = gaps(frame, t)
    loss = frame["loss"].finite
    hits = []
    for gap in found.before.tolist():
        after = int(np.searchsorted(loss.step, found.main.step[gap], side="right"))
        if after < t.after_level or after + t.after_records >= len(loss):
            continue
        level = stats.median(loss.value[after - t.after_level : after])
        top = after + int(np.argmax(loss.value[after : after + t.after_records]))
        back = loss.value[top + 1 : after + t.after_back]
        if level > 0 and loss.value[top] >= t.after_times * level and bool((back <= t.after_back_times * level).any()):
            hits.append((after, top, level, gap))
    if not hits:
        return
    told = ", ".join(f"{level:.3g} to {loss.value[top]:.3g} at step {loss.step[top]}" for _, top, level, _ in hits[:3])
    yield sighting(
        INFO,
        f"the loss spikes in the first records after {len(hits)} of {len(found.before)} gaps ({told}) and is back within {t.after_back} records. "
        "Consistent with an average over few batches after the pause; a recovery that fast speaks against damaged weights, which "
        "`trainproof checkpoint` on the saved file can settle.",
        loss,
        first=hits[0][0] - 1,
        last=hits[-1][1],
        flagged=min(hits[0][0] + t.after_records, len(loss) - 1),
        cite=[i for after, top, _, _ in hits[:3] for i in (after - 1, top)],
        threshold={"times": t.after_times, "records": t.after_records},
    )


@rule(
    "TP923",
    "cliff-without-gap",
    severity=WARN,
    whole_run=True,
    min_records=60,
    fix="Look at the batches of those steps (one source or length only?), the gradient norm and the learning rate; no pause explains it.",
)
def cliff_without_gap(frame: Frame, t: PipelineThresholds) -> Iterator[Sighting]:
    """A training metric falls off a cliff while the clock runs evenly.

    What it does
    Compares the median of 5 of each training metric that is better when higher with the median of the 64 records before.

    Why it matters
    The cause is in the training (its data, its rate), not in a pause of the machine: a story about saves or restarts does not hold.

    Formula
    Median of 5 <= 20 % of the median of the 64 before, in 5 records, with no gap of the log within 10 records before: WARN, with how long
    the recovery took. The clock has to be in the log.

    False positives
    Metrics that are near 0 anyway (median under 0.02) and those printed in coarse steps are passed over.

    What to try
    Print what the batches of these steps have in common.
    """
    found = gaps(frame, t)
    if not found.usual_seconds > 0:
        raise CannotTell("no clock in the log that could show a gap")
    for name in frame:
        if name.startswith(("eval/", "test/", "reward", "lr")) or higher_is_better(name) is not True:
            continue
        series = frame[name].finite
        if len(series) >= t.cliff_min_records:
            yield from _cliffs(series, found, t)


def _cliffs(series: Series, found: Gaps, t: PipelineThresholds) -> Iterator[Sighting]:
    m5 = series.memo(stats.median5)
    if not (m5 <= t.cliff_share * np.fmax.accumulate(m5)).any():
        return
    median = series.memo(stats.baseline).median
    low: Bools = (m5 <= t.cliff_share * median) & (median >= t.cliff_level)
    run = stats.first_run(low, t.cliff_records)
    if run is None:
        return
    start, level = run[0], float(median[run[0]])
    lost = found.main.step[found.before]
    earliest = int(series.step[max(0, start - t.cliff_apart)])
    if bool(((lost >= earliest) & (lost <= series.step[start])).any()):
        return
    begin = max(0, start - 2)  # a median of 5 is low from its third low value on
    lowest = float(series.value[begin : run[1]].min())
    back = np.flatnonzero(m5[run[1] :] >= t.cliff_back * level)
    again = run[1] + int(back[0]) if len(back) else None
    recovery = (
        f"it took {series.step[again] - series.step[begin]} steps to recover"
        if again is not None
        else "it has not recovered"
    )
    yield sighting(
        WARN,
        f"{series.name} fell from {level:.3g} to {lowest:.3g} at step {series.step[begin]} with no gap in steps or clock near it; {recovery}. "
        "This rules out pauses of the machine (saves, restarts, stalls) as its cause; it does not clear the weights that a save wrote: "
        "`trainproof checkpoint` does.",
        series,
        first=begin,
        last=again if again is not None else len(series) - 1,
        flagged=start + t.cliff_records - 1,
        threshold={"share": t.cliff_share, "records": t.cliff_records},
    )
