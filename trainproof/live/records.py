"""A log that grows record by record, and the Frame of what has come so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from trainproof.facts import Facts
from trainproof.frame import Floats, Frame, Ints, Source
from trainproof.names import resolve
from trainproof.readers.builder import FACT_COLUMNS, LARGEST_STEP, FrameBuilder
from trainproof.segments.joining import with_resumes

FIRST_CAPACITY = 64
#: records that wait, at most: many are moved into an array for the price of a few
MOST_WAITING = 256


class Columns:
    """Records of one and the same metrics, `ours` under our names ("" for a column that only repeats a fact): steps and lines of shape
    (n,), values of shape (metrics, n), all with room to grow. Records wait as they came until there are some, or somebody asks."""

    def __init__(self, width: int) -> None:
        self.ours: tuple[str, ...] = ()
        self.waiting: list[tuple[int, int, Sequence[float]]] = []  # (step, line, values)
        self._count = 0
        self._steps = np.empty(FIRST_CAPACITY, np.int64)
        self._lines = np.empty(FIRST_CAPACITY, np.int64)
        self._values = np.empty((width, FIRST_CAPACITY))

    def filled(self) -> tuple[Ints, Ints, Floats]:
        """The steps, the lines and the values."""
        if self.waiting:
            self.pour()
        n = self._count
        return self._steps[:n], self._lines[:n], self._values[:, :n]

    def pour(self) -> None:
        """Take in what waits."""
        begin, end = self._count, self._count + len(self.waiting)
        while end > len(self._steps):
            self._grow()
        steps, lines, rows = zip(*self.waiting, strict=True)
        self._steps[begin:end] = steps
        self._lines[begin:end] = lines
        self._values[:, begin:end] = np.array(rows).T
        self._count = end
        self.waiting.clear()

    def _grow(self) -> None:
        """Twice the room: frames made before keep the arrays that they have."""
        self._steps = np.concatenate((self._steps, np.empty_like(self._steps)))
        self._lines = np.concatenate((self._lines, np.empty_like(self._lines)))
        self._values = np.concatenate((self._values, np.empty_like(self._values)), axis=1)


class GrowingLog:
    """Records under their logger's names, appended in constant amortised time; `frames` is what a reader would make of them."""

    def __init__(self, source: Source, facts: Facts, mapping: Mapping[str, str] | None = None) -> None:
        self.source = source
        self.facts = facts  # those that the user gave
        self.beside = Facts()  # those that lie beside the log
        self.notes = FrameBuilder()  # what the log says beside its points
        self.names: dict[str, str] = {}  # the logger's name -> ours
        self.count = 0
        self.mapping = dict(mapping or {})
        self.resumed_after: list[int] = []  # lines after which another process went on
        self.last_line = 0
        self._columns: dict[tuple[str, ...], Columns] = {}

    def append(
        self, step: int, names: tuple[str, ...], values: Sequence[float], line: int | None = None
    ) -> Columns | None:
        """Add one record to the columns of its names; None when its step is out of bounds, and it is dropped."""
        if not -LARGEST_STEP <= step <= LARGEST_STEP:
            return None
        columns = self._columns.get(names)
        if columns is None:
            columns = self._columns[names] = Columns(len(names))
            self._resolve(names)
        self.count += 1
        self.last_line = self.count if line is None else line
        columns.waiting.append((step, self.last_line, values))
        if len(columns.waiting) >= MOST_WAITING:
            columns.pour()
        return columns

    def _resolve(self, new: tuple[str, ...]) -> None:
        """Our names, when a record has others than those before."""
        if not self.names.keys() >= set(new):
            self.names = resolve(self._known(), self._present())
        for names, columns in self._columns.items():
            columns.ours = tuple(self.names.get(name, "") for name in names)

    def resume(self) -> None:
        """The run goes on in another process: what follows is a stretch of its own, wherever its steps begin."""
        self.resumed_after.append(self.last_line)

    def frames(self) -> list[Frame]:
        """The runs of the log so far, usually one."""
        out = FrameBuilder(self._present())
        out.take_notes(self.notes)
        for names, columns in self._columns.items():
            steps, lines, rows = columns.filled()
            for name, values in zip(names, rows, strict=True):
                out.extend(name, steps, values, lines)
        return [with_resumes(run, self.resumed_after) for run in out.build(self.source, self.facts, self.beside)]

    def rows(self) -> list[tuple[int, int, dict[str, float]]]:
        """Every record as (line, step, values), in the order in which they came."""
        found = []
        for names, columns in self._columns.items():
            steps, lines, rows = (array.tolist() for array in columns.filled())
            found += [
                (line, step, dict(zip(names, row, strict=True)))
                for line, step, *row in zip(lines, steps, *rows, strict=True)
            ]
        return sorted(found, key=lambda row: row[0])

    def _known(self) -> list[str]:
        """Every name seen so far, in the order of the log; columns that only repeat a fact are none."""
        return list(dict.fromkeys(name for names in self._columns for name in names if name not in FACT_COLUMNS))

    def _present(self) -> dict[str, str]:
        """The user's mapping, as far as the log has its names yet."""
        known = set(self._known())
        return {ours: theirs for ours, theirs in self.mapping.items() if theirs in known}
