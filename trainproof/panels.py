"""The curves that a report may draw, small enough to draw: no spike is lost, and the findings' own points are kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np

from trainproof.decimate import decimate
from trainproof.frame import Frame, Ints, Series
from trainproof.verdict import Finding, Panel

#: points drawn a series, and non-finite steps marked a panel
MOST_POINTS = 1000
#: parts (`loss/<part>`, `lr/<group>`) drawn where the whole was not logged, and panels for other metrics that findings cite
MOST_PARTS, MOST_CITED = 4, 6
#: a positive curve is drawn on a log scale when the middle 90 % of it spans more than this, or its peak is so much above its median
LOG_RANGE, LOG_PEAK = 100.0, 20.0

#: title, unit and metrics of one panel, in order; those that were logged are drawn
PANELS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("Loss", "", ("loss", "eval/loss")),
    ("Learning rate", "", ("lr",)),
    ("Gradient norm", "", ("grad_norm",)),
    ("Loss scale", "", ("loss_scale",)),
    ("Reward", "", ("reward",)),
    ("Preference rewards", "", ("rewards/chosen", "rewards/rejected")),
    ("KL divergence", "", ("kl",)),
    ("Entropy", "", ("entropy",)),
    ("Throughput", "per second", ("throughput",)),
    ("Step time", "", ("step_time", "data_time")),
)


def panels_of(frame: Frame, findings: Sequence[Finding]) -> tuple[Panel, ...]:
    """The panels of a run: the usual curves that it logged, then those of other metrics that findings cite."""
    cited: dict[str, list[int]] = {}
    for finding in findings:
        for point in finding.evidence:
            cited.setdefault(point.metric, []).append(point.step)
    return tuple(_panel(title, unit, series, cited) for title, unit, series in _chosen(frame, cited))


def _chosen(frame: Frame, cited: dict[str, list[int]]) -> Iterator[tuple[str, str, list[Series]]]:
    drawn: set[str] = set()
    for title, unit, metrics in PANELS:
        names = [name for metric in metrics for name in _logged(frame, metric)]
        drawn.update(names)
        if names:
            yield title, unit, [frame[name] for name in names]
    others = (name for name in cited if name in frame and name not in drawn and len(frame[name]))
    for name in islice(others, MOST_CITED):
        yield name, "", [frame[name]]


def _logged(frame: Frame, metric: str) -> list[str]:
    """The metric, or the first few parts of it where the whole was not logged."""
    names = [metric] if metric in frame else [name for name in frame if name.startswith(f"{metric}/")]
    return [name for name in names if len(frame[name])][:MOST_PARTS]


def _panel(title: str, unit: str, series: list[Series], cited: dict[str, list[int]]) -> Panel:
    drawn = []
    for one in series:
        kept = decimate(one, MOST_POINTS, _indices(one, cited.get(one.name, ())))
        drawn.append(one.take(kept))
    bad = [_thinned(one.step[~np.isfinite(one.value)]) for one in series if one.finite is not one]
    return Panel(
        title,
        unit,
        tuple((one.name, tuple(one.step.tolist()), tuple(one.value.tolist())) for one in drawn),
        tuple(_thinned(np.unique(np.concatenate(bad))).tolist()) if bad else (),
        _wants_log(drawn),
    )


def _thinned(steps: Ints) -> Ints:
    """At most MOST_POINTS of the steps, evenly, with the first and the last."""
    if len(steps) <= MOST_POINTS:
        return steps
    return steps[np.linspace(0, len(steps) - 1, MOST_POINTS).astype(np.int64)]


def _indices(series: Series, steps: Sequence[int]) -> set[int]:
    at = np.searchsorted(series.step, steps)
    return {int(i) for i, step in zip(at, steps, strict=True) if i < len(series) and series.step[i] == step}


def _wants_log(drawn: Sequence[Series]) -> bool:
    """Whether all values are positive and span so much that a linear scale would hide most of them.

    The first 5 % and last 5 % are set aside: a rate that decays to nothing reads best on a linear scale.
    """
    values = np.concatenate([one.finite.value for one in drawn])
    if not len(values) or values.min() <= 0:
        return False
    low, middle, high = np.sort(values)[[len(values) // 20, len(values) // 2, -1 - len(values) // 20]]
    return bool(high / LOG_RANGE > low or values.max() / LOG_PEAK > middle)  # products could overflow
