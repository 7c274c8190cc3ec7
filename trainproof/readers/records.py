"""From batches of records to a log's points: which step each record stands at, and what its records declare."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainproof.facts import canonical_fact
from trainproof.frame import Floats, Ints
from trainproof.names import EPOCH_NAMES, plain, step_name
from trainproof.readers.builder import FrameBuilder
from trainproof.readers.columns import Batch, LineOf, cells_of, columns_of
from trainproof.readers.values import LARGEST_STEP, SMALLEST_STEP, as_float, as_step, flatten

#: records from which it is decided what numbers them
LEARNED_RECORDS = 200
#: records of one and the same number up to which it may still be what numbers them
STANDING_RECORDS = 3


class _Blocks(NamedTuple):
    """One metric's points, batch by batch; arrays are shared between metrics where their records are the same."""

    steps: list[Ints]
    values: list[Floats]
    lines: list[Ints]


class RecordSink:
    """Gives batches of records to a FrameBuilder, numbered by their step, else by whole epochs, else by their order.

    A record without the number that the others have stands at the step of the record before it.
    """

    def __init__(self, out: FrameBuilder, step_key: str | None = None) -> None:
        self.step_key = step_key
        self._out = out
        self._known = step_key is not None
        self._count = 0
        self._last: int | None = None
        self._blocks: dict[str, _Blocks] = {}
        out.on_take(self.finish)

    def learn(self, records: Sequence[Mapping[str, object]]) -> None:
        """Decide what numbers the records, from the first that there are."""
        if self._known:
            return
        records = records[:LEARNED_RECORDS]
        self._known = bool(records)
        samples = dict(zip(map(tuple, records), records, strict=True)).values()  # one of each set of keys
        names = dict.fromkeys(name for sample in samples for name, _ in flatten(sample))
        counting = [name for name in names if step_name((name,)) and _has_number(name, records)]
        moving = [name for name in counting if not _stands_still(name, records)]
        self.step_key = step_name(moving or counting)
        if self.step_key is not None and self._is_epoch(self.step_key) and not _counts(self.step_key, records):
            self.step_key = None

    def give_records(self, records: Sequence[Mapping[str, object]], lines: Ints, line_of: LineOf | None = None) -> None:
        """As `give`, of decoded records, from which it is learned what numbers them. lines: the line of each, shape (records,); line_of:
        those of a metric's values, where they are others."""

        def own(_: str, rows: Ints | None) -> Ints:
            return lines if rows is None else lines[rows]

        self.learn(records)
        self.give(Batch(lines, columns_of(cells_of(records), len(records), line_of or own, self.step_key)))

    def give(self, batch: Batch) -> None:
        """Take the points of a batch; records without any number beside the step are dropped, each with the reason."""
        steps, usable = self._steps(batch)
        metrics = {
            name: column for name, column in batch.columns.items() if name != self.step_key or self._is_epoch(name)
        }
        usable &= self._with_numbers(batch, metrics.keys(), usable)
        everything = bool(usable.all())
        for name, column in metrics.items():
            if everything and column.rows is None:
                self._append(name, steps, column.values, column.lines)
                continue
            rows = column.indices(len(batch.lines))
            kept = usable[rows]
            if kept.any():
                self._append(name, steps[rows[kept]], column.values[kept], column.lines[kept])

    def finish(self) -> None:
        """Hand all points to the builder."""
        joined: dict[tuple[int, ...], Ints] = {}
        parts = [part for blocks in self._blocks.values() for part in (blocks.steps, blocks.lines)]
        for part in parts:
            key = tuple(map(id, part))
            if key not in joined:
                joined[key] = np.concatenate(part)
        for name in list(self._blocks):
            steps, values, lines = self._blocks.pop(name)
            self._out.extend(name, joined[tuple(map(id, steps))], np.concatenate(values), joined[tuple(map(id, lines))])

    def _steps(self, batch: Batch) -> tuple[Ints, NDArray[np.bool_]]:
        """The step of each record, and which records can be placed at all."""
        size = len(batch.lines)
        self._count += size
        if self.step_key is None:
            return np.arange(self._count - size + 1, self._count + 1), np.ones(size, bool)
        column = batch.columns.get(self.step_key)
        if column is None:
            return self._carried(batch, np.zeros(size), np.zeros(size, bool), np.zeros(size, bool))
        given = (column.values >= SMALLEST_STEP) & (column.values <= LARGEST_STEP)
        given &= np.floor(column.values) == column.values
        if column.rows is None and given.all():
            self._last = int(column.values[-1])
            return column.values.astype(np.int64), given
        numbers, good, present = np.zeros(size), np.zeros(size, bool), batch.where(self.step_key)
        rows = column.indices(size)
        numbers[rows[given]] = column.values[given]
        good[rows] = given
        return self._carried(batch, numbers, good, present & ~good)

    def _carried(
        self, batch: Batch, numbers: Floats, good: NDArray[np.bool_], bad: NDArray[np.bool_]
    ) -> tuple[Ints, NDArray[np.bool_]]:
        """Steps where records without one stand at the step before; `bad` ones, whose step is unusable, are dropped."""
        for line in batch.lines[bad].tolist():
            self._out.drop(line, f"{self.step_key!r} is not a whole number that can be a step")
        source = np.maximum.accumulate(np.where(good, np.arange(len(good)), -1))
        steps = np.where(source >= 0, numbers[source], 0 if self._last is None else self._last).astype(np.int64)
        early = (source < 0) & ~bad if self._last is None else np.zeros(len(good), bool)
        for row in np.flatnonzero(early).tolist():
            self._declare(batch, row)
        if good.any():
            self._last = int(steps[-1])
        return steps, ~bad & ~early

    def _declare(self, batch: Batch, row: int) -> None:
        """A record before the first step is a header: its facts are taken; without any it is dropped."""
        line = int(batch.lines[row])
        named = False
        for name, column in batch.columns.items():
            for value in column.values[column.indices(len(batch.lines)) == row].tolist():
                named = named or canonical_fact(name) is not None
                self._out.facts.declare(name, value, f"line {line}")
        if not named:
            self._out.drop(line, f"a record without {self.step_key!r} before the first that has it")

    def _with_numbers(self, batch: Batch, names: Iterable[str], usable: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Which records have a number beside the step; the others are dropped."""
        full = np.zeros(len(batch.lines), bool)
        for name in names:
            if batch.columns[name].rows is None:
                return np.ones(len(batch.lines), bool)
            full |= batch.where(name)
        for line in batch.lines[usable & ~full].tolist():
            self._out.drop(line, "no number beside the step" if self.step_key else "no number in it")
        return full

    def _append(self, name: str, steps: Ints, values: Floats, lines: Ints) -> None:
        blocks = self._blocks.setdefault(name, _Blocks([], [], []))
        blocks.steps.append(steps)
        blocks.values.append(values)
        blocks.lines.append(lines)

    def _is_epoch(self, name: str) -> bool:
        return plain(name) in EPOCH_NAMES


def _stands_still(name: str, records: Sequence[Mapping[str, object]]) -> bool:
    """Whether all records have the same number there, and there are enough of them to tell."""
    values = [_value(record, name) for record in records]
    return len(values) > STANDING_RECORDS and all(value == values[0] for value in values)


def _has_number(name: str, records: Sequence[Mapping[str, object]]) -> bool:
    return any(as_float(_value(record, name)) is not None for record in records)


def _value(record: Mapping[str, object], name: str) -> object:
    """The value of a metric in a record, None when it has none."""
    return record[name] if name in record else dict(flatten(record)).get(name)


def _counts(key: str, records: Sequence[Mapping[str, object]]) -> bool:
    """Whether `key` numbers the records: whole, and never the same twice running among records of the same keys."""
    last: dict[frozenset[str], int] = {}
    for record in records:
        value = _value(record, key)
        if value is not None or key in record:
            step = as_step(value)
            keys = frozenset(record)
            if step is None or last.get(keys) == step:
                return False
            last[keys] = step
    return True
