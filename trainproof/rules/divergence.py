"""TP203: has the loss left its best level for good?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from trainproof import stats
from trainproof.frame import Frame, Series
from trainproof.rules.cycles import period
from trainproof.rules.modes import modes_of
from trainproof.rules.registry import FAIL, INFO, SUPERVISED, WARN, Sighting, rule, sighting
from trainproof.rules.starting_up import learned_since, start_up
from trainproof.rules.switched_on import switched_on
from trainproof.thresholds import DataOrderThresholds, LossThresholds, PipelineThresholds
from trainproof.verdict import Severity

#: a loss below is too near the smallest float to multiply, and a ratio above too near the largest
SMALL_LOSS, LARGE_RATIO = 1e-300, 1e300


class Level(NamedTuple):
    """The loss smoothed over `width` records, each `stride` records: level, best level so far, and how long a state must hold."""

    width: int
    stride: int
    level: stats.Floats
    best: stats.Floats
    hold: int  # in entries of these arrays

    def record(self, entry: int) -> int:
        """The index of the last record of an entry."""
        return self.width - 1 + entry * self.stride

    def each(self, noise: stats.Renewed) -> stats.Floats:
        """The noise so far at each entry."""
        return noise.each(len(self.level), self.width - 1, self.stride)


class Departure(NamedTuple):
    """A level that left the best one: record indices from..flagged, and the two levels at `flagged`."""

    severity: Severity
    width: int
    begin: int
    flagged: int
    level: float
    best: float


@rule(
    "TP203",
    "loss-diverged",
    severity=FAIL,
    needs=("loss",),
    objectives=SUPERVISED,
    min_records=9,
    stops=True,
    fix="Go back to a checkpoint before the rise; lower the learning rate, lengthen the warm-up, or clip gradients.",
)
def loss_diverged(frame: Frame, t: LossThresholds) -> Iterator[Sighting]:
    """The loss left its best level and gave back a good part of what it had gained.

    What it does
    Compares the loss, smoothed over 5, 20, 80 and 320 records, with the best level that it had reached at the same smoothing, and
    asks for three things at once: the ratio is large, the rise is many standard errors of the run's own noise, and a good part of
    the improvement has been given back. The state has to hold for as long as the smoothing (at least 10 records, or 5 at 3 x).

    Why it matters
    A run whose weights were pushed out of a basin rarely returns, and every later GPU hour is spent on a lost run.

    Formula
    level = median of w records; best = running minimum of level (for w = 5 also the median of the first 3); s = 1.4826 median
    |diff log loss| / sqrt 2 over the records so far. Fires when log(level / best) >= 9 x 1.2533 s / sqrt(w), level / best >= 1.5
    (WARN 1.2) and level - best >= 0.25 (WARN 0.15) x (first - best). Levels over 20, 80 and 320 records are taken every 10, 40
    and 160 records. Where the best level is not positive, differences in units of the noise replace logarithms and ratios.

    False positives
    Tiny losses of well-trained runs double without meaning (hence the share given back); noise (hence the standard error: none in
    3,200 healthy noise runs); overshoot in the first steps (the best level starts at the median of the first 3). A run that came
    back to its best level is told as INFO, and so is one whose evaluation loss went on to new lows in at least 3 evaluations and is
    now a tenth of the training loss or less: a term was added to that; and one whose task metric, an accuracy say, rose to its best since.
    So is a start-up: the loss rises from its first records and then falls for long, as it does while a contrastive queue fills or a
    weight is raised, and a task metric rises with its fall; WARN where no metric is logged, FAIL for a language model. A loss that came back under that ratio 3 times, and within the last
    80 records, swings: WARN. WARN, too, where a part of the loss (loss/...) was first logged, or first not 0, between the lowest record and
    the rise, and another part before it. Declared curricula still fire: judge their phases apart.

    What to try
    Resume from a checkpoint before the rise with a lower learning rate; look at the batches before it; check mixed-precision scale.
    """
    loss = frame["loss"].finite
    if len(loss) < t.diverged_min_records:
        return
    levels = list(_levels(loss, t))
    departures = [d for level in levels if (d := _departure(loss, level, t))]
    if departures:
        worst = min(departures, key=lambda d: (d.severity is not FAIL, d.flagged))
        if excuse := _excuse(frame, loss, levels, worst, t):
            yield _told(loss, worst, INFO, excuse, t)
        elif start := start_up(frame, loss, worst.begin, worst.best, t):
            yield _told(loss, worst, INFO if start.metric else WARN, start.sentence, t)
        elif times := _returns(loss, levels[0], t):
            swings = f" It came back {times} times and left again: batches of different kinds in turn, or a run at the edge of stability."
            yield _told(loss, worst, WARN, swings, t)
        elif part := switched_on(frame, loss, _lowest(loss, worst), worst.flagged):
            yield _told(loss, worst, WARN, part, t)
        else:
            yield _told(loss, worst, worst.severity, " This is consistent with a diverged run.", t)


def _excuse(frame: Frame, loss: Series, levels: Sequence[Level], seen: Departure, t: LossThresholds) -> str:
    """Why the departure is only told, as a sentence; nothing where it stands."""
    if not any(_still_away(loss, level, t) for level in levels):
        return f" It has come back since: {stats.median(loss.value[-levels[0].width :]):.4g} over the last {levels[0].width} records."
    if learned := learned_since(frame, int(loss.step[seen.begin]), int(loss.step[seen.flagged]), t):
        return learned
    if _evaluates_well(frame, loss, seen, t):
        return " The evaluation loss has fallen below all before: what rose is not what is evaluated."
    if _comes_in_stretches(loss, levels, t):
        return " Its records come in cycles, or in stretches of one kind of batch, some of which are still at its best level."
    return ""


def _returns(loss: Series, narrow: Level, t: LossThresholds) -> int:
    """How often the loss came back to its best level, where that is often and recent; 0 where it is not."""
    away = _away(loss, narrow, t.diverged_ratio, 0.0)
    back = [stop for begin, stop in stats.runs_of(away) if stop - begin >= narrow.hold and stop < len(away)]
    return len(back) if len(back) >= t.diverged_returns and len(away) - back[-1] < t.diverged_cycles else 0


def _comes_in_stretches(loss: Series, levels: Sequence[Level], t: LossThresholds) -> bool:
    """Whether the latest records are periodic (TP601) or on separate levels (TP927), and the best level is still among them.

    Both at the defaults of those rules.
    """
    narrow = levels[0]
    away = _away(loss, narrow, t.diverged_ratio_warn, 0.0)
    if away[-t.diverged_cycles :].all():
        return False
    cycling, asynchronous = DataOrderThresholds(), PipelineThresholds()
    if period(loss.value[-cycling.period_window :], cycling) is not None:
        return True
    if len(loss) < asynchronous.modes_window:
        return False
    found = modes_of(loss.value[-asynchronous.modes_window :], asynchronous)
    return found is not None and found.runs >= asynchronous.modes_runs


def _evaluates_well(frame: Frame, loss: Series, seen: Departure, t: LossThresholds) -> bool:
    """Whether a term was added to the training loss: it is many times what is evaluated, and the last of several evaluations since the
    rise is below all before it."""
    if "eval/loss" not in frame:
        return False
    evals = frame["eval/loss"].finite
    before = evals.value[evals.step < loss.step[seen.begin]]
    since = evals.value[evals.step >= loss.step[seen.flagged]]
    if not len(before) or len(since) < t.diverged_evals:
        return False
    return bool(since[-1] < before.min() and seen.level >= t.diverged_apart * since[-1])


def _levels(loss: Series, t: LossThresholds) -> Iterator[Level]:
    for width in t.diverged_widths:
        stride = stride_of(width)
        if len(loss) < width + stride:
            return
        if width == 5:
            level = loss.memo(stats.median5)[4:]
            start = stats.median(loss.value[:3])
        else:
            level = loss.memo(stats.trailing_median, width, stride)[1]
            start = float(level[0])
        best = np.minimum(np.minimum.accumulate(level), start)
        yield Level(width, stride, level, best, max(t.diverged_records, width) // stride)


def stride_of(width: int) -> int:
    """The records from one level over `width` records to the next."""
    return max(1, width // 2) if width > 5 else 1


def _departure(loss: Series, level: Level, t: LossThresholds) -> Departure | None:
    """The first FAIL of this level, else its first WARN."""
    least = min(level.hold, t.diverged_records_fast)
    # what is asked first spares the long way
    if not _may_stand_out(loss, level, least, t):
        return None
    if not _away(loss, level, t.diverged_ratio_warn, t.diverged_regained_warn).any():
        return None
    if not _stands_out(loss, level, least, t).any():
        return None
    for severity, share, ways in (
        (FAIL, t.diverged_regained, _ways_to_fail(level, t)),
        (WARN, t.diverged_regained_warn, [(t.diverged_ratio_warn, level.hold)]),
    ):
        fired = [
            _held(_stands_out(loss, level, hold, t), _away(loss, level, ratio, share), hold) for ratio, hold in ways
        ]
        if first := [k for k in fired if k is not None]:
            return _departed(severity, level, min(first))
    return None


def _ways_to_fail(level: Level, t: LossThresholds) -> list[tuple[float, int]]:
    """(ratio, entries for which it has to hold)."""
    slow = (t.diverged_ratio, level.hold)
    return [slow, (t.diverged_ratio_fast, t.diverged_records_fast)] if level.width == 5 else [slow]


def _departed(severity: Severity, level: Level, k: int) -> Departure:
    begin = max(0, level.record(max(0, k - level.hold + 1)) - level.width // 2)
    return Departure(severity, level.width, begin, level.record(k), float(level.level[k]), float(level.best[k]))


def _still_away(loss: Series, level: Level, t: LossThresholds) -> bool:
    """Whether the last entry of the level is still a WARN by itself: otherwise the run has come back."""
    away = _away(loss, level, t.diverged_ratio_warn, t.diverged_regained_warn)
    return bool(away[-1] and _stands_out(loss, level, 1, t)[-1])


def _held(stands_out: stats.Bools, away: stats.Bools, hold: int) -> int | None:
    """The first entry that stands out of the noise and ends `hold` entries away from the best level."""
    for begin, end in stats.runs_of(away):
        if end - begin >= hold and stands_out[begin + hold - 1 : end].any():
            return begin + hold - 1 + int(np.argmax(stands_out[begin + hold - 1 : end]))
    return None


def _away(loss: Series, level: Level, ratio: float, share: float) -> stats.Bools:
    """Where the level is above the best one by ratio and by the share of the improvement given back."""
    gained = np.maximum(stats.median(loss.value[:3]) - level.best, 0.0)
    high = (level.best <= 0) | (level.level >= ratio * level.best)
    return np.asarray(high & (level.level > level.best) & (level.level - level.best >= share * gained))


def _stands_out(loss: Series, level: Level, hold: int, t: LossThresholds) -> stats.Bools:
    """Where the last `hold` levels all stand above the best one by many standard errors of the noise of the records so far.

    In logarithms; in units of the loss from its first value on that has none.
    """
    bar = _bar(level, t)
    with np.errstate(divide="ignore", invalid="ignore"):
        height = np.log(level.level / level.best)  # no number where a level is not positive
    logs = stats.trailing_minimum(height, hold) >= bar * level.each(loss.memo(_noise_of_log))
    if loss.memo(np.min) > 0:
        return np.asarray(logs)
    noise = max(bar, t.diverged_noise_units) * level.each(loss.memo(stats.noise_renewed))
    rises = stats.trailing_minimum(level.level - level.best, hold) >= noise
    positive = np.arange(len(logs)) * level.stride + level.width - 1 < int(np.argmax(loss.value <= 0))
    return np.where(positive, logs, rises)


def _may_stand_out(loss: Series, level: Level, hold: int, t: LossThresholds) -> bool:
    """Whether `_stands_out` may be true anywhere. It takes no logarithm of a level."""
    if loss.memo(np.min) < SMALL_LOSS:
        return True
    counts, noise = loss.memo(_noise_of_log)
    with np.errstate(over="ignore"):
        ratios = np.minimum(np.exp(_bar(level, t) * noise), LARGE_RATIO) * (1 - 1e-9)  # more than a rounding error less
    ratio = np.minimum(level.each(stats.Renewed(counts, ratios)), LARGE_RATIO)
    at = np.flatnonzero(level.level >= ratio * level.best)
    at = at[at >= hold - 1]
    for back in range(1, hold):
        at = at[level.level[at - back] >= ratio[at] * level.best[at - back]]
    return len(at) > 0


def _bar(level: Level, t: LossThresholds) -> float:
    """How many units of the noise a level stands out by."""
    return t.diverged_se * stats.MEDIAN_SE / math.sqrt(level.width)


def _noise_of_log(x: stats.Floats) -> stats.Renewed:
    with np.errstate(divide="ignore", invalid="ignore"):
        return stats.noise_renewed(np.log(x))


def _lowest(loss: Series, seen: Departure) -> int:
    return int(np.argmin(loss.value[: seen.flagged + 1]))


def _told(loss: Series, seen: Departure, severity: Severity, why: str, t: LossThresholds) -> Sighting:
    lowest = _lowest(loss, seen)
    peak = seen.begin + int(np.argmax(loss.value[seen.begin : seen.flagged + 1]))
    ratio = f"{seen.level / seen.best:.3g} x" if seen.best > 0 else f"{seen.level - seen.best:.3g} above"
    return sighting(
        severity,
        f"the loss left its best level: {seen.level:.4g} over {seen.width} records is {ratio} the best {seen.best:.4g} (lowest record at step "
        f"{loss.step[lowest]}).{why}",
        loss,
        first=seen.begin,
        last=seen.flagged if severity is INFO else len(loss) - 1,
        flagged=seen.flagged,
        cite=sorted({lowest, seen.begin, peak, seen.flagged, len(loss) - 1}),
        threshold={
            "ratio": t.diverged_ratio if seen.severity is FAIL else t.diverged_ratio_warn,
            "regained": t.diverged_regained if seen.severity is FAIL else t.diverged_regained_warn,
            "standard_errors": t.diverged_se,
        },
    )
