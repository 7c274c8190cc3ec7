"""A log that grows record by record, and the Frame of what has come so far."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from trainproof.facts import Facts
from trainproof.frame import Frame, Source
from trainproof.names import resolve
from trainproof.readers.builder import FACT_COLUMNS, LARGEST_STEP, FrameBuilder
from trainproof.segments.joining import with_resumes

FIRST_CAPACITY = 64


class _Table:
    """Records of one and the same metrics: steps and lines of shape (n,), values of shape (metrics, n), all with room to grow."""

    def __init__(self, width: int) -> None:
        self.count = 0
        self.steps = np.empty(FIRST_CAPACITY, np.int64)
        self.lines = np.empty(FIRST_CAPACITY, np.int64)
        self.values = np.empty((width, FIRST_CAPACITY))

    def append(self, step: int, line: int, values: tuple[float, ...]) -> None:
        at = self.count
        if at == len(self.steps):
            self._grow()
        self.steps[at] = step
        self.lines[at] = line
        self.values[:, at] = values
        self.count = at + 1

    def _grow(self) -> None:
        """Twice the room: frames made before keep the arrays that they have."""
        self.steps = np.concatenate((self.steps, np.empty_like(self.steps)))
        self.lines = np.concatenate((self.lines, np.empty_like(self.lines)))
        self.values = np.concatenate((self.values, np.empty_like(self.values)), axis=1)


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
        self._tables: dict[tuple[str, ...], _Table] = {}

    def append(self, step: int, values: Mapping[str, float], line: int | None = None) -> bool:
        """Add one record; False when its step is out of bounds, and it is dropped."""
        if not -LARGEST_STEP <= step <= LARGEST_STEP:
            return False
        key = tuple(values)
        table = self._tables.get(key)
        if table is None:
            table = self._tables[key] = _Table(len(key))
            if not self.names.keys() >= values.keys():
                self.names = resolve(self._known(), self._present())
        self.count += 1
        self.last_line = self.count if line is None else line
        table.append(step, self.last_line, tuple(values.values()))
        return True

    def resume(self) -> None:
        """The run goes on in another process: what follows is a stretch of its own, wherever its steps begin."""
        self.resumed_after.append(self.last_line)

    def frames(self) -> list[Frame]:
        """The runs of the log so far, usually one."""
        out = FrameBuilder(self._present())
        out.take_notes(self.notes)
        for key, table in self._tables.items():
            steps, lines = table.steps[: table.count], table.lines[: table.count]
            for name, values in zip(key, table.values, strict=True):
                out.extend(name, steps, values[: table.count], lines)
        return [with_resumes(run, self.resumed_after) for run in out.build(self.source, self.facts, self.beside)]

    def rows(self) -> list[tuple[int, int, dict[str, float]]]:
        """Every record as (line, step, values), in the order in which they came."""
        found = []
        for key, table in self._tables.items():
            columns = table.values[:, : table.count].T.tolist()
            steps, lines = table.steps[: table.count].tolist(), table.lines[: table.count].tolist()
            found += [
                (line, step, dict(zip(key, row, strict=True)))
                for line, step, row in zip(lines, steps, columns, strict=True)
            ]
        return sorted(found, key=lambda row: row[0])

    def _known(self) -> list[str]:
        """Every name seen so far, in the order of the log; columns that only repeat a fact are none."""
        return list(dict.fromkeys(name for key in self._tables for name in key if name not in FACT_COLUMNS))

    def _present(self) -> dict[str, str]:
        """The user's mapping, as far as the log has its names yet."""
        known = set(self._known())
        return {ours: theirs for ours, theirs in self.mapping.items() if theirs in known}
