"""What the evaluation rules share: which series are eval losses, which are task metrics, and how noisy they are."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from trainproof import stats
from trainproof.frame import Frame, Series
from trainproof.names import higher_is_better
from trainproof.rules.registry import CannotTell
from trainproof.stats import Bools, Floats, Ints
from trainproof.thresholds import EvaluationThresholds

SPLITS = ("eval/", "test/")
#: words of a name that is a loss in another dress: never a task metric
LOSS_WORDS = ("loss", "perplexity", "ppl", "nll", "bpb", "bpc", "bpd")


class Metric(NamedTuple):
    """A task metric with a known direction: its finite points, and +1 where higher is better, -1 where lower is."""

    series: Series
    sign: int

    @property
    def gain(self) -> Floats:
        """The values turned so that higher is better, shape (n,)."""
        return self.sign * self.series.value


class Level(NamedTuple):
    """A series, higher is worse, smoothed over `width` points: its level and best level so far, and where it left that by more than noise.

    Three arrays of shape (n,). `level` is no higher than the level of the last 3 points: what has come back is not away.
    """

    width: int
    level: Floats
    best: Floats
    clear: Bools


def is_loss(name: str) -> bool:
    return any(word in name.lower() for word in LOSS_WORDS)


def eval_names(frame: Frame) -> list[str]:
    """The metrics of the evaluation split, or of the test split when the run has no other. Raises CannotTell when it has neither."""
    for split in SPLITS:
        names = [name for name in frame if name.startswith(split) and len(frame[name])]
        if names:
            return names
    raise CannotTell("no eval metrics in the log")


def eval_losses(frame: Frame) -> list[Series]:
    """The eval loss, or its parts when it is known only in parts. Raises CannotTell when there is none."""
    names = eval_names(frame)
    whole = [frame[name] for name in names if name in ("eval/loss", "test/loss")]
    parts = [frame[name] for name in names if name.lower().endswith("loss") or "/loss/" in name]
    if not whole and not parts:
        raise CannotTell("no eval loss in the log")
    return whole or parts


def losses_or_none(frame: Frame) -> list[Series]:
    """`eval_losses`, or none."""
    try:
        return eval_losses(frame)
    except CannotTell:
        return []


def task_metrics(frame: Frame) -> list[Metric]:
    """The task metrics whose direction is known; only the declared one where the run declares which metric picks its best model."""
    metrics = []
    for name in eval_names(frame):
        better = None if is_loss(name) else higher_is_better(name)
        if better is not None and len(frame[name].finite):
            metrics.append(Metric(frame[name].finite, 1 if better else -1))
    declared = (frame.facts.text("best_metric_name") or "").removeprefix("eval_").removeprefix("eval/")
    named = [m for m in metrics if declared and m.series.name.lower() == f"eval/{declared}"]
    return named or metrics


def noise_so_far(y: Floats) -> Floats:
    """The robust standard deviation of y about its local level after each point, shape (n,); +inf for the first 3.

    From the distance of each point to the middle of its neighbours, which cancels a slope (Gasser, Sroka and Jennen-Steinmetz 1986);
    its variance is 1.5 times that of the noise. Renewed at each point up to 50 and then on the common schedule.
    """
    out = np.full(len(y), np.inf)
    if len(y) < 4:
        return out
    with np.errstate(over="ignore", invalid="ignore"):
        bend = np.abs(y[1:-1] - (y[:-2] / 2 + y[2:] / 2))
    counts = stats.renewals(len(y), 4).tolist()
    for count, following in zip(counts, [*counts[1:], len(y) + 1], strict=False):
        s = stats.MAD_TO_SIGMA * stats.median(stats.thinned(bend[: count - 2])) / math.sqrt(1.5)
        out[count - 1 : following - 1] = max(s, 1e-9 * abs(float(y[count - 1])), 1e-12)
    return out


def level_so_far(y: Floats, width: int) -> Floats:
    """The median of the last `width` points, shape (n,), NaN for the first width-1; renewed every width // 4 points."""
    stride = max(1, width // 4)
    _, level = stats.trailing_median(y, width, stride)
    out = np.full(len(y), np.nan)
    if len(level):
        out[width - 1 :] = np.repeat(level, stride)[: len(y) - width + 1]
    return out


def noise_bar(n: int, t: EvaluationThresholds) -> Floats:
    """Standard errors that a change must have after 1..n evals: more where few evals tell the noise, shape (n,)."""
    return t.noise_se * (1 + t.noise_se_few / np.arange(1, n + 1))


def levels(y: Floats, t: EvaluationThresholds, climbing: bool = False) -> Iterator[Level]:
    """y, higher is worse, smoothed over each width that fits twice (3 always); `climbing`: a trend since the best point is clear too."""
    noise, bar = noise_so_far(y), noise_bar(len(y), t)
    recent = level_so_far(y, t.level_widths[0])
    for width in t.level_widths:
        if len(y) < (2 * width if width > t.level_widths[0] else t.rise_min_evals):
            return
        own = level_so_far(y, width)
        best = np.fmin.accumulate(own)
        with np.errstate(over="ignore", invalid="ignore"):
            away = (own - best) / (stats.MEDIAN_SE * noise / math.sqrt(width))
        clear = away >= bar
        if climbing and width == t.level_widths[0] and len(y) <= t.few_evals:
            clear |= _climbing(y, away >= t.few_se, t)
        yield Level(width, np.fmin(own, recent), best, clear)


def _climbing(y: Floats, ask: Bools, t: EvaluationThresholds) -> Bools:
    """Where `ask` holds and y has climbed since its best point so far by a Mann-Kendall test: few evals show a trend before a level."""
    out = np.zeros(len(y), dtype=bool)
    for k in np.flatnonzero(ask):
        best = int(np.argmin(y[: k + 1]))
        out[k] = stats.mann_kendall(y[best : k + 1]) >= t.few_z
    return out


def since(state: Bools) -> int | None:
    """The first point of the stretch of True that reaches the end: since when a judge has been saying it."""
    run = stats.last_run(state)
    return run[0] if run else None


def best_so_far(gain: Floats) -> Ints:
    """The index of the first best value so far, higher is better, shape (n,)."""
    record = np.maximum.accumulate(gain)
    new = np.concatenate(([True], record[1:] > record[:-1]))
    return np.maximum.accumulate(np.where(new, np.arange(len(gain)), 0))


def improving(frame: Frame, after: Ints, now: Ints, t: EvaluationThresholds, but: str = "") -> tuple[Bools, str]:
    """Whether, at each step of `now`, a task metric (other than `but`) still improves on what it was at the step of `after`.

    It does when it found its best among the latest evals, and the median of its last 3 is better than it was by more than its noise.
    Returns the mask, shape as `now`, and the name of a metric that improves at the last of them ("" when none does).
    """
    mask, told = np.zeros(len(now), dtype=bool), ""
    for metric in task_metrics(frame):
        gain, steps = metric.gain, metric.series.step
        if metric.series.name == but or len(gain) < 3:
            continue
        at = np.searchsorted(steps, now, side="right") - 1
        start = np.searchsorted(steps, after, side="right") - 1
        known = (start >= 0) & (at > start) & (at >= 2)
        at, start = np.maximum(at, 0), np.maximum(start, 0)
        recent = at - best_so_far(gain)[at] < np.maximum(t.improving_evals, t.improving_share * (at + 1))
        noise = np.where(np.isfinite(noise := noise_so_far(gain)), noise, 0.0)[at]
        better = level_so_far(gain, 3)[at] - gain[start] > t.improving_se * stats.MEDIAN_SE * noise / math.sqrt(3)
        here = known & recent & better & (gain[at] > gain[start])
        told = told or (metric.series.name if len(here) and here[-1] else "")
        mask |= here
    return mask, told
