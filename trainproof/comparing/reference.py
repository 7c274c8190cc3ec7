"""What a run is compared with: a baseline read from its log, or a summary of one from the baseline store, behind one interface."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np

from trainproof.comparing.summary import StoredRun
from trainproof.facts import Facts
from trainproof.frame import Floats, Frame, Ints, Source


class Curve(NamedTuple):
    """One metric along an axis: positions `x` (ascending), values, steps and source lines, shape (n,).

    `start` is None where each point is one record; a point of a summary is the median of the records from `start` to `x`.
    """

    x: Floats
    value: Floats
    step: Ints
    line: Ints
    start: Floats | None = None


class Reference(Protocol):
    """A baseline, whatever it was made from."""

    label: str
    source: Source
    objective: str
    facts: Facts

    def metrics(self) -> Iterator[str]:
        """The names of its metrics."""

    def curve(self, metric: str) -> Curve | None:
        """A metric along the steps, or None when it has none."""

    def original_name(self, metric: str) -> str | None:
        """The logger's own name of a metric, where it is known."""


class LogReference:
    """A baseline read from its log."""

    def __init__(self, label: str, frame: Frame) -> None:
        self.label, self.frame = label, frame
        self.source, self.objective, self.facts = frame.source, frame.objective, frame.facts
        self._positions: dict[int, Floats] = {}  # metrics that are logged together share their steps

    def metrics(self) -> Iterator[str]:
        return iter(self.frame)

    def curve(self, metric: str) -> Curve | None:
        series = self.frame.get(metric)
        if series is None or not len(series):
            return None
        key = id(series.step)
        if key not in self._positions:
            self._positions[key] = series.step.astype(np.float64)
        return Curve(self._positions[key], series.value, series.step, series.line)

    def original_name(self, metric: str) -> str | None:
        return self.frame.original_names.get(metric)


class StoredReference:
    """A baseline of the store: medians over stretches of records. Its line numbers are those of its rows."""

    def __init__(self, label: str, run: StoredRun) -> None:
        self.label, self.run = label, run
        self.source, self.objective = Source(run.source, run.format, run.run), run.objective
        self.facts = Facts(run.facts, "baseline")

    def metrics(self) -> Iterator[str]:
        return iter(self.run.curves)

    def curve(self, metric: str) -> Curve | None:
        stored = self.run.curves.get(metric)
        if stored is None or not stored.rows:
            return None
        columns = np.array(stored.rows, np.float64).T
        first, last, median = columns[0], columns[1], columns[4]
        rows = np.arange(1, len(stored.rows) + 1, dtype=np.int64)
        return Curve(last, median, last.astype(np.int64), rows, first)

    def original_name(self, metric: str) -> str | None:
        stored = self.run.curves.get(metric)
        return stored.original if stored is not None else None
