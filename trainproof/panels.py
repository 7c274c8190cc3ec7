"""The curves that a report may draw, small enough to draw: no spike is lost, and every finding's own points are kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from trainproof.frame import Frame, Series
from trainproof.verdict import Finding, Panel

#: points drawn a series
MOST_POINTS = 1000
#: a positive series is drawn on a log scale when the bulk of it spans more than this
LOG_RANGE = 50.0

#: title, unit, metrics of one panel, in order; those that were logged are drawn
PANELS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("Loss", "loss", ("loss", "eval/loss")),
    ("Reward", "reward", ("reward",)),
    ("Learning rate", "lr", ("lr",)),
    ("Gradient norm", "grad_norm", ("grad_norm",)),
    ("Throughput", "per second", ("throughput",)),
    ("Step time", "step_time", ("step_time", "data_time")),
)
#: loss parts drawn when there is no total
MOST_PARTS = 4


def panels_of(frame: Frame, findings: Sequence[Finding]) -> tuple[Panel, ...]:
    """The panels of a run: at most 1,000 points a series, min/max-decimated."""
    cited = {(e.metric, e.step) for finding in findings for e in finding.evidence}
    panels = []
    for title, unit, metrics in PANELS:
        present = [name for name in metrics if name in frame]
        if title == "Loss" and not present:
            present = [name for name in frame if name.startswith("loss/")][:MOST_PARTS]
        if title == "Loss" and "eval/loss" not in frame:
            present += [name for name in frame if name.startswith("eval/loss/")][:1]
        if present:
            panels.append(_panel(title, unit, [frame[name] for name in present], cited))
    return tuple(panels)


def _panel(title: str, unit: str, series: list[Series], cited: set[tuple[str, int]]) -> Panel:
    drawn = []
    bad: list[int] = []
    for one in series:
        kept = decimate(one.value, _cited_indices(one, cited))
        drawn.append((one.name, tuple(one.step[kept].tolist()), tuple(one.value[kept].tolist())))
        bad += one.step[~np.isfinite(one.value)].tolist()
    if len(bad) > MOST_POINTS:
        bad = bad[:: -(-len(bad) // MOST_POINTS)]
    return Panel(title, unit, tuple(drawn), tuple(bad), _wants_log(series))


def _cited_indices(series: Series, cited: set[tuple[str, int]]) -> list[int]:
    steps = [step for metric, step in cited if metric == series.name]
    at = np.searchsorted(series.step, steps)
    return [int(i) for i, step in zip(at, steps, strict=True) if i < len(series) and series.step[i] == step]


def decimate(value: NDArray[np.float64], keep: Iterable[int] = (), most: int = MOST_POINTS) -> NDArray[np.int64]:
    """Indices of at most about `most` points: the smallest and the largest of each of `most` / 2 stretches, and those of `keep`."""
    n = len(value)
    if n <= most:
        return np.arange(n)
    width = -(-2 * n // most)
    full = n // width * width
    finite_low = np.where(np.isfinite(value), value, np.inf)
    finite_high = np.where(np.isfinite(value), value, -np.inf)
    starts = np.arange(0, full, width)
    low = starts + finite_low[:full].reshape(-1, width).argmin(axis=1)
    high = starts + finite_high[:full].reshape(-1, width).argmax(axis=1)
    tail = [full + int(finite_low[full:].argmin()), full + int(finite_high[full:].argmax())] if full < n else []
    return np.unique(np.concatenate([low, high, np.array([0, n - 1, *tail, *keep], np.int64)]))


def _wants_log(series: list[Series]) -> bool:
    """Whether all values are positive and the middle 98 % of them span more than LOG_RANGE."""
    values = np.concatenate([one.finite.value[:: max(1, len(one) // 4096)] for one in series])
    if not len(values) or values.min() <= 0:
        return False
    low, high = np.quantile(values, (0.01, 0.99))
    return bool(high / LOG_RANGE > low)
