"""FrameBuilder: what readers pour records into, and what makes Frames of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from trainproof.facts import Facts
from trainproof.frame import Dropped, Event, Floats, Frame, Ints, Series, Source
from trainproof.names import resolve
from trainproof.objective import objective_of
from trainproof.segments import split_runs

#: columns that say in every record what the run declared
FACT_COLUMNS = frozenset(
    {"total_steps", "max_steps", "accumulation", "gradient_accumulation_steps", "world_size", "warmup_steps"}
)
#: dropped lines kept with their text of reason; the rest are only counted
DROPPED_SHOWN = 20


class FrameBuilder:
    """Collects points under the logger's own names; `build` renames, segments and freezes them into Frames.

    `line` is the source line from 1, or the record's number where a format has no lines: it is also the order of the log.
    """

    def __init__(self, mapping: Mapping[str, str] | None = None) -> None:
        self.mapping = dict(mapping or {})  # the user's names: logger's name -> ours (from --map ours=theirs)
        self.facts = Facts()
        self.ended = False
        self._points: dict[str, tuple[list[int], list[float], list[int]]] = {}
        self._blocks: dict[str, list[tuple[Ints, Floats, Ints]]] = {}
        self._shared: dict[tuple[int, ...], Any] = {}
        self._dropped: list[Dropped] = []
        self._dropped_count = 0
        self._masked: set[str] = set()
        self._events: list[Event] = []

    def add(self, step: int, values: Mapping[str, float], line: int) -> None:
        """One record. A value that was not logged is absent from `values`; a NaN in it means that the logger wrote NaN."""
        for name, value in values.items():
            steps, numbers, lines = self._points.setdefault(name, ([], [], []))
            steps.append(step)
            numbers.append(value)
            lines.append(line)

    def extend(self, name: str, steps: Ints, values: Floats, lines: Ints) -> None:
        """Many points of one metric, three arrays of shape (n,), in the order of the log: for readers that work in columns."""
        if len(values):
            self._blocks.setdefault(name, []).append((steps, values, lines))

    def drop(self, line: int, why: str) -> None:
        """A line (or record) that was not understood, and the reason; counted, and the first few shown."""
        self._dropped_count += 1
        if len(self._dropped) < DROPPED_SHOWN:
            self._dropped.append(Dropped(line, why))

    def mask(self, name: str) -> None:
        """The logger is known to hide non-finite values of this metric."""
        self._masked.add(name)

    def event(self, kind: str, text: str, line: int) -> None:
        """A line that announces a fatal event (rule TP104)."""
        self._events.append(Event(kind, text, line))

    def end(self) -> None:
        """The logger's own end-of-run marker was seen."""
        self.ended = True

    def build(self, source: Source, facts: Facts | None = None) -> list[Frame]:
        """The runs of this log, usually one. `facts` are those given by the user; they win over what the log declares."""
        raw = {theirs: self._series(theirs) for theirs in dict.fromkeys([*self._points, *self._blocks])}
        declared = Facts(
            {name: float(raw[name].value[0]) for name in list(raw) if _declares_fact(raw[name])}, "the log's records"
        )
        raw = {name: series for name, series in raw.items() if not _declares_fact(series)}
        names = resolve(raw, self.mapping)
        series = {ours: _renamed(raw[theirs], ours) for theirs, ours in names.items()}
        known = (facts or Facts()).merged(self.facts).merged(declared)
        frame = Frame(
            series,
            source,
            known,
            dropped=tuple(self._dropped),
            dropped_count=self._dropped_count,
            masked=frozenset(names.get(name, name) for name in self._masked),
            events=tuple(self._events),
            ended=self.ended,
            original_names={ours: theirs for theirs, ours in names.items()},
        )
        return [run.replace(objective=objective_of(run)) for run in split_runs(frame)]

    def _series(self, name: str) -> Series:
        """The points of one metric in the order of the log (not yet by step)."""
        blocks = self._blocks.get(name, [])
        if name in self._points:
            steps, values, lines = self._points[name]
            blocks = [*blocks, (np.array(steps, np.int64), np.array(values, np.float64), np.array(lines, np.int64))]
        step, value, line = (self._joined([block[part] for block in blocks]) for part in range(3))
        if len(blocks) > 1 and (np.diff(line) < 0).any():
            order = np.argsort(line, kind="stable")
            step, value, line = step[order], value[order], line[order]
        return Series(name, step, value, line)

    def _joined(self, arrays: list[Any]) -> Any:
        """The arrays as one; metrics that were logged together share their steps and lines here too."""
        if len(arrays) == 1:
            return arrays[0]
        key = tuple(map(id, arrays))
        if key not in self._shared:
            self._shared[key] = np.concatenate(arrays)
        return self._shared[key]


def _declares_fact(series: Series) -> bool:
    """Whether a column only repeats a declared number, such as total_steps in every record."""
    return series.name in FACT_COLUMNS and series.constant and series.value[0] > 0


def _renamed(series: Series, name: str) -> Series:
    return Series(name, series.step, series.value, series.line)
