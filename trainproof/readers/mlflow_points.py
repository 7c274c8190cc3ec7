"""The metrics of an MLflow run, however they were stored: each point has a time, a value and a step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from trainproof.frame import Floats, Ints
from trainproof.readers.builder import FrameBuilder


class Points(NamedTuple):
    """One metric: unix time in ms, value, step and line, four arrays of shape (n,) in the order of the log."""

    times: Ints
    values: Floats
    steps: Ints
    lines: Ints


def give_run(series: Mapping[str, Points], out: FrameBuilder) -> None:
    """Hand the metrics of one run to the builder, and the seconds since its first point.

    Where a metric goes back, a point's line is its number in the order of time: that tells which points of the other
    metrics came before.
    """
    placed = _placed(series)
    if any((np.diff(points.steps) < 0).any() for points in placed.values()):
        placed = _by_time(placed)
    for name, points in placed.items():
        out.extend(name, points.steps, points.values, points.lines)
    clock = _longest(placed)
    if "wall_time" not in placed:
        start = min(int(points.times.min()) for points in placed.values())
        out.extend("wall_time", clock.steps, (clock.times - start) / 1000, clock.lines)


def _by_time(series: Mapping[str, Points]) -> dict[str, Points]:
    """The same points, numbered from 1 in the order of time instead of by lines; a clock that was set back stands still."""
    times = np.concatenate([np.maximum.accumulate(points.times) for points in series.values()])
    numbers = np.empty(len(times), np.int64)
    numbers[np.argsort(times, kind="stable")] = np.arange(1, len(times) + 1)
    borders = np.cumsum([len(points.times) for points in series.values()])[:-1]
    return {
        name: points._replace(lines=lines)
        for (name, points), lines in zip(series.items(), np.split(numbers, borders), strict=True)
    }


def _longest(series: Mapping[str, Points]) -> Points:
    return max(series.values(), key=lambda points: len(points.steps))


def _placed(series: Mapping[str, Points]) -> dict[str, Points]:
    """The series, those that were logged without steps (which MLflow stores as 0) with the steps of their time: where the
    longest series with steps stood then, or, when no series has any, how many points the longest one had."""
    stepless = {name: points for name, points in series.items() if len(points.steps) > 1 and not points.steps.any()}
    if not stepless:
        return dict(series)
    stepped = {name: points for name, points in series.items() if name not in stepless and len(points.steps) > 1}
    clock = _longest(stepped or stepless)
    at, steps = np.maximum.accumulate(clock.times), clock.steps if stepped else np.arange(1, len(clock.steps) + 1)
    placed = dict(series)
    for name, points in stepless.items():
        last = np.maximum(np.searchsorted(at, points.times, side="right") - 1, 0)
        placed[name] = points._replace(steps=steps if points is clock else steps[last])
    return placed
