"""What the evaluation rules share: which series are eval losses, which are task metrics, and how noisy they are."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from trainproof import stats
from trainproof.frame import Frame, Series
from trainproof.names import higher_is_better
from trainproof.rules.registry import CannotTell
from trainproof.stats import Bools, Floats, Ints
from trainproof.thresholds import EvaluationThresholds

SPLITS = ("eval/", "test/")
#: last parts of names that are a loss in another dress; with "loss" itself, they are judged as losses, never as task metrics
LOSS_WORDS = ("loss", "perplexity", "ppl", "nll")


class Metric(NamedTuple):
    """A task metric with a known direction: its finite points, and +1 where higher is better, -1 where lower is."""

    series: Series
    sign: int

    @property
    def gain(self) -> Floats:
        """The values turned so that higher is better, shape (n,)."""
        return self.sign * self.series.value


def is_loss(name: str) -> bool:
    return any(word in name.rsplit("/", 1)[-1].lower() for word in LOSS_WORDS)


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
    parts = [frame[name] for name in names if name.rsplit("/", 1)[-1].lower().endswith("loss")]
    if not whole and not parts:
        raise CannotTell("no eval loss in the log")
    return whole or parts


def task_metrics(frame: Frame) -> list[Metric]:
    """The task metrics whose direction is known; only the declared one where the run declares which metric picks its best model."""
    metrics = []
    for name in eval_names(frame):
        better = None if is_loss(name) else higher_is_better(name)
        if better is not None and len(frame[name].finite):
            metrics.append(Metric(frame[name].finite, 1 if better else -1))
    declared = frame.facts.text("best_metric_name") or ""
    named = [m for m in metrics if declared and m.series.name.lower().endswith(declared.removeprefix("eval_"))]
    return named or metrics


def noise_so_far(y: Floats) -> Floats:
    """The robust standard deviation of y about its local level after each point, shape (n,); +inf for the first 3.

    From the distance of each point to the middle of its neighbours, which cancels a slope (Gasser, Sroka and Jennen-Steinmetz 1986);
    its variance is 1.5 times that of the noise. Renewed at each point up to 50 and then on the common schedule.
    """
    out = np.full(len(y), np.inf)
    if len(y) < 4:
        return out
    bend = np.abs(y[1:-1] - (y[:-2] + y[2:]) / 2)
    counts = [*range(4, min(len(y), 50)), *(int(n) for n in stats.schedule(len(y)) if n >= 4)]
    for count, following in zip(counts, [*counts[1:], len(y) + 1], strict=True):
        s = stats.MAD_TO_SIGMA * float(np.median(stats.thinned(bend[: count - 2]))) / math.sqrt(1.5)
        out[count - 1 : following - 1] = max(s, 1e-9 * abs(float(y[count - 1])), 1e-12)
    return out


def level_so_far(y: Floats, width: int) -> Floats:
    """The median of the last `width` points, shape (n,), NaN for the first width-1; renewed every width // 4 points."""
    at, level = stats.trailing_median(y, width, max(1, width // 4))
    out = np.full(len(y), np.nan)
    if len(at):
        latest = np.searchsorted(at, np.arange(len(y)), side="right") - 1
        out[latest >= 0] = level[latest[latest >= 0]]
    return out


def noise_bar(n: int, t: EvaluationThresholds) -> Floats:
    """Standard errors that a change must have after 1..n evals: more where few evals tell the noise, shape (n,)."""
    return t.noise_se * (1 + t.noise_se_few / np.arange(1, n + 1))


def since(state: Bools) -> int | None:
    """The first point of the stretch of True that reaches the end: since when a judge has been saying it."""
    run = stats.last_run(state)
    return run[0] if run else None


def best_so_far(gain: Floats) -> Ints:
    """The index of the first best value so far, higher is better, shape (n,)."""
    record = np.maximum.accumulate(gain)
    new = np.concatenate(([True], record[1:] > record[:-1]))
    return np.maximum.accumulate(np.where(new, np.arange(len(gain)), 0))


def still_improving(frame: Frame, after: int, t: EvaluationThresholds, upto: int | None = None) -> Metric | None:
    """A task metric that is better now than at step `after` by more than its noise, and found its best among the latest evals."""
    for metric in task_metrics(frame):
        steps, gain = metric.series.step, metric.gain
        if upto is not None:
            gain = gain[: int(np.searchsorted(steps, upto, side="right"))]
        n = len(gain)
        start = int(np.searchsorted(steps, after, side="right")) - 1
        if n < 3 or not 0 <= start < n - 1:
            continue
        recent = n - 1 - int(best_so_far(gain)[-1]) < max(t.improving_evals, t.improving_share * n)
        noise = noise_so_far(gain)[-1] if n >= 4 else 0.0
        if (
            recent
            and gain[-1] > gain[start]
            and np.median(gain[-3:]) - gain[start] > t.improving_se * stats.MEDIAN_SE * noise / math.sqrt(3)
        ):
            return metric
    return None
