"""What tells a rise of the loss that belongs to training from one that undoes it: task metrics, and a rise from the very start that
is followed by a long fall."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from trainproof import stats
from trainproof.frame import Frame, Series
from trainproof.names import higher_is_better
from trainproof.rules.eval_series import Metric, is_loss
from trainproof.thresholds import LossThresholds


class StartUp(NamedTuple):
    """A rise from the first records to its highest at step `peak`, that has been falling since; `metric` has risen with the fall ("": none)."""

    peak: int
    metric: str

    @property
    def sentence(self) -> str:
        """What a finding says of it."""
        fall = f" It rose from its first records to its highest at step {self.peak}, and has been falling since: a start-up"
        if self.metric:
            return f"{fall}, in which {self.metric} rises (queues that fill, weights that are raised)."
        return f"{fall} (queues that fill, weights that are raised), or a pretrained start that was lost."


def _metrics(frame: Frame) -> Iterator[Metric]:
    for name, series in frame.items():
        better = None if is_loss(name) else higher_is_better(name)
        if better is not None:
            yield Metric(series.finite, 1 if better else -1)


def learned_since(frame: Frame, before: int, since: int, t: LossThresholds) -> str:
    """Which task metric rose to its best after step `since`, better than every value up to step `before`, as a sentence; "" when none did, or
    when the evaluation loss has left its best level too."""
    evals = frame["eval/loss"].finite.value if "eval/loss" in frame else np.zeros(0)
    if len(evals) >= 3 and stats.median(evals[-3:]) >= t.diverged_ratio * evals.min():
        return ""
    for metric in _metrics(frame):
        gain, step = metric.gain, metric.series.step
        first, then = gain[step < before], gain[step > since]
        if min(len(first), len(then)) < t.learned_points:
            continue
        if stats.median(_last_tenth(then)) > first.max() and stats.trend_z(then) >= t.learned_z:
            name = metric.series.name
            return f" {name} has become better than it was before: what the loss sums has changed, and the model still learns."
    return ""


def start_up(frame: Frame, loss: Series, begin: int, best: float, t: LossThresholds) -> StartUp | None:
    """The start-up where the loss rose from its first records on and has been falling for long since: nothing that was learned was lost.

    `begin` is the index at which it left its best level, `best` that level. A task metric tells a start-up from a pretrained start that
    was lost; without one the fall has to be large, and to go on. A language model that rises from its start has lost what it was taught.
    """
    level = loss.memo(stats.median5)
    peak = 4 + int(np.argmax(level[4:]))
    rest = level[peak:]
    rise = float(level[peak]) - best
    n = len(loss)
    late = (
        begin > max(t.startup_first, t.startup_begins * n) or peak > t.startup_peak * n or len(rest) < t.startup_records
    )
    if frame.objective == "lm" or late or stats.median(loss.value[:3]) - best > t.startup_gained * rise:
        return None
    metric = _risen_since(frame, step := int(loss.step[peak]), t)
    falls = stats.trend_z(rest) <= t.startup_z if metric else _goes_on(rest, rise, t)
    return StartUp(step, metric) if falls else None


def _goes_on(level: stats.Floats, rise: float, t: LossThresholds) -> bool:
    """Whether the level has taken back a good part of the rise since its first entry, the peak, and still falls in its last half."""
    half, end = level[len(level) // 2 :], stats.median(_last_tenth(level))
    fallen, lately = float(level[0]) - end, stats.median(half[: max(3, len(half) // 5)]) - end
    enough = fallen >= t.startup_fallen * rise and lately >= t.startup_falling * fallen
    return enough and stats.trend_z(half) <= t.startup_z


def _risen_since(frame: Frame, step: int, t: LossThresholds) -> str:
    """The task metric that has regained a good part of its best since `step`, and rises; "" when none does."""
    for metric in _metrics(frame):
        gain = metric.gain
        since = gain[metric.series.step >= step]
        if len(since) < t.startup_metric_points:
            continue
        low, now = float(stats.median5(since)[4:].min()), stats.median(_last_tenth(since))
        if now - low >= t.startup_metric * (float(gain.max()) - low) > 0 and stats.trend_z(since) >= -t.startup_z:
            return metric.series.name
    return ""


def _last_tenth(x: stats.Floats) -> stats.Floats:
    return x[-max(3, len(x) // 10) :]
