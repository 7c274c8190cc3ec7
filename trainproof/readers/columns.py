"""Records as columns: what the readers of JSON records hand on, however the records were decoded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainproof.frame import Floats, Ints
from trainproof.readers.values import as_float, clean_name, flatten

#: the lines of a metric's values, given its name and the records that have it (None: all)
LineOf = Callable[[str, Ints | None], Ints]


class Cells(NamedTuple):
    """The decoded values of one key, and the indices of the records that have it (None: all)."""

    rows: Ints | None
    values: Floats | list[object]


class Column(NamedTuple):
    """The numbers of one metric: record index (None: all records), value and source line, each of shape (n,)."""

    rows: Ints | None
    values: Floats
    lines: Ints

    def indices(self, size: int) -> Ints:
        return np.arange(size) if self.rows is None else self.rows


class Batch(NamedTuple):
    """Consecutive records: the line of each, a column for each metric that any of them has, and all that was decoded of them."""

    lines: Ints
    columns: dict[str, Column]
    cells: Mapping[str, Cells] | None = None

    def where(self, name: str) -> NDArray[np.bool_]:
        """Which records have the metric."""
        column = self.columns.get(name)
        has = np.zeros(len(self.lines), bool)
        if column is not None:
            has[slice(None) if column.rows is None else column.rows] = True
        return has

    def renamed(self, names: Mapping[str, str]) -> Batch:
        """The same records, some of their metrics under other names."""
        return Batch(self.lines, {names.get(name, name): column for name, column in self.columns.items()})

    def without(self, absent: Callable[[str, Floats], NDArray[np.bool_]]) -> Batch:
        """The records without the points of which `absent(name, values)` is true: placeholders of what was not measured."""
        columns = {}
        for name, column in self.columns.items():
            gone = absent(name, column.values)
            if gone.any():
                rows = column.indices(len(self.lines))
                column = Column(rows[~gone], column.values[~gone], column.lines[~gone])
            if len(column.values):
                columns[name] = column
        return Batch(self.lines, columns)

    def keep(self, wanted: NDArray[np.bool_]) -> Batch:
        """The records of the mask `wanted`."""
        if wanted.all():
            return self
        place = np.cumsum(wanted) - 1
        columns = {}
        for name, column in self.columns.items():
            rows = column.indices(len(self.lines))
            kept = wanted[rows]
            if kept.any():
                columns[name] = Column(place[rows[kept]], column.values[kept], column.lines[kept])
        return Batch(self.lines[wanted], columns)


def cells_of(records: Sequence[Mapping[str, object]]) -> dict[str, Cells]:
    """Decoded objects, turned into one list of values a key."""
    alike: dict[tuple[str, ...], list[int]] = {}  # the records of the same keys in the same order
    for row, keys in enumerate(map(tuple, records)):
        if keys in alike:
            alike[keys].append(row)
        else:
            alike[keys] = [row]
    parts: dict[str, list[tuple[list[int], tuple[object, ...]]]] = {}
    for keys, rows in alike.items():
        columns = zip(*[records[row].values() for row in rows], strict=True)
        for key, column in zip(keys, columns, strict=True):
            parts.setdefault(key, []).append((rows, column))
    return {key: _joined(found, len(records)) for key, found in parts.items()}


def _joined(parts: list[tuple[list[int], tuple[object, ...]]], size: int) -> Cells:
    """The values of one key in the order of the records, from the records of each set of keys."""
    rows, values = parts[0]
    if len(parts) == 1:
        return Cells(None if len(rows) == size else np.array(rows, np.int64), list(values))
    every = np.array([row for some, _ in parts for row in some], np.int64)
    order = np.argsort(every)
    unordered = [value for _, some in parts for value in some]
    return Cells(None if len(every) == size else every[order], [unordered[at] for at in order.tolist()])


def columns_of(cells: Mapping[str, Cells], size: int, line_of: LineOf, step_key: str | None) -> dict[str, Column]:
    """The numbers among the values of each key, objects flattened ("a": {"b": 1} is "a/b"; a key so spelled wins).

    A value of `step_key` that is no number becomes NaN, so that its record can be dropped rather than placed by guess.
    """
    columns: dict[str, Column] = {}
    nested: dict[str, tuple[list[int], list[float]]] = {}
    for key, (rows, values) in cells.items():
        name = clean_name(key)
        if (plain := _plain(values)) is not None:
            columns[name] = Column(rows, plain, line_of(name, rows))
            continue
        index = range(size) if rows is None else rows.tolist()
        numbers = [_number(value, key == step_key) for value in values]
        if None not in numbers:
            columns[name] = Column(rows, np.array(numbers, np.float64), line_of(name, rows))
            continue
        pairs = [(row, number) for row, number in zip(index, numbers, strict=True) if number is not None]
        if pairs:
            columns[name] = _column(name, [row for row, _ in pairs], [number for _, number in pairs], line_of)
        _collect_nested(key, index, values, nested)
    for name, (present, found) in nested.items():
        columns.setdefault(name, _column(name, present, found, line_of))
    return columns


def _plain(values: Floats | list[object]) -> Floats | None:
    """The values as they are, when they are nothing but numbers that fit."""
    if isinstance(values, np.ndarray):
        return values
    if set(map(type, values)) <= {float, int}:
        try:
            return np.array(values, np.float64)
        except OverflowError:
            pass
    return None


def _number(value: object, is_step: bool) -> float | None:
    number = as_float(value)
    return float("nan") if number is None and is_step and value is not None else number


def _column(name: str, rows: list[int], numbers: list[float], line_of: LineOf) -> Column:
    index = np.array(rows, np.int64)
    return Column(index, np.array(numbers, np.float64), line_of(name, index))


def _collect_nested(
    key: str, index: Iterable[int], values: Iterable[object], nested: dict[str, tuple[list[int], list[float]]]
) -> None:
    for row, value in zip(index, values, strict=True):
        if isinstance(value, dict):
            for name, leaf in flatten({key: value}):
                number = as_float(leaf)
                if number is not None:
                    rows, numbers = nested.setdefault(name, ([], []))
                    rows.append(row)
                    numbers.append(number)
