"""What was found in data, as a partial result that merges: counts, places, and a few numbers a record, never the records.

Partials are merged in any order with the same result: everything that is said is said of places in their order.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, islice
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from trainproof.preflight.clips import clip_at
from trainproof.preflight.notes import Notes
from trainproof.preflight.spill import AT_ONCE, Columns, joined
from trainproof.rules.registry import Sighting
from trainproof.verdict import Evidence, Severity, number

#: a place is one integer: the number of the file, and in the low bits the row from 1
ROW_BITS = 40
#: places that are kept with an excerpt for each check, and that a finding cites
MOST_EXAMPLES = 8
MOST_EXCERPT = 100

Places = NDArray[np.int64]
T = TypeVar("T")


class DataFile(NamedTuple):
    """A file of the data, as it is named in reports; `held_out` is of the evaluation side."""

    path: str
    held_out: bool = False
    layout: str = ""  # of a folder whose clips no manifest lists


class Example(NamedTuple):
    """A place with what is there."""

    place: int
    value: float
    excerpt: str


def place_of(file: int, row: int) -> int:
    return file << ROW_BITS | row


class Partial:
    """What one worker found. `tables` are named tables of equally long columns, one row a record (or fewer)."""

    def __init__(self, keep: int = MOST_EXAMPLES) -> None:
        self.keep = keep
        self.rows = 0
        self.places: dict[str, array[int]] = {}
        self.examples: dict[str, list[Example]] = {}
        self.counters: dict[str, Counter[str]] = {}
        self.notes: Notes | None = None  # in place of examples, of a whole that names all places
        self.tables: dict[str, dict[str, list[NDArray[Any]]]] = {}

    def hit(self, code: str, place: int, excerpt: str = "", value: float = math.nan) -> None:
        """The check `code` found something at a place; once a place and check."""
        places = self.places.setdefault(code, array("q"))
        if places and places[-1] == place:
            return
        places.append(place)
        self.example(code, Example(place, value, excerpt[:MOST_EXCERPT]))

    def example(self, code: str, example: Example) -> None:
        """Keep an example, unless there are enough."""
        examples = self.examples.setdefault(code, [])
        if len(examples) < self.keep:
            examples.append(example)

    def count(self, counter: str, label: str, times: int = 1) -> None:
        self.counters.setdefault(counter, Counter())[label] += times

    def add_table(self, name: str, /, **columns: NDArray[Any]) -> None:
        """Rows of a table; columns have equal lengths."""
        table = self.tables.setdefault(name, {})
        for column, values in columns.items():
            table.setdefault(column, []).append(values)

    def compact(self) -> None:
        """Make each column one array."""
        for columns in self.tables.values():
            for column, pieces in columns.items():
                columns[column] = [joined(pieces)]


def merged(partials: Iterable[Partial], keep: int = MOST_EXAMPLES, notes: Notes | None = None) -> Partial:
    """All partials as one; its tables may lie in files. notes: where the examples go, if they are too many to keep."""
    whole, columns = Partial(keep), Columns()
    whole.notes = notes
    for part in partials:
        whole.rows += part.rows
        for code, places in part.places.items():
            whole.places.setdefault(code, array("q")).extend(places)
        for code, examples in part.examples.items():
            if notes is not None:
                notes.add(code, examples)
                continue
            best = sorted([*whole.examples.get(code, ()), *examples], key=lambda example: example.place)
            whole.examples[code] = best[: whole.keep]
        for counter, counts in part.counters.items():
            whole.counters.setdefault(counter, Counter()).update(counts)
        for table, named in part.tables.items():
            for column, pieces in named.items():
                for piece in pieces:
                    columns.add(table, column, piece)
    whole.tables = columns.tables()
    return whole


class Options(NamedTuple):
    """What the user said of the data and of the trainer; None where nothing was said."""

    max_length: int | None = None
    tokenizer: str | None = None
    trainer: str | None = None
    language: str | None = None
    sample_rate: int | None = None
    near: bool = True
    keep: int = MOST_EXAMPLES


class Found:
    """Everything that was found, in the order of places; what checks look at."""

    def __init__(self, kind: str, files: Sequence[DataFile], whole: Partial, options: Options = Options()) -> None:  # noqa: B008  immutable
        self.kind = kind
        self.files = files
        self.rows = whole.rows
        self.options = options
        self.counters = whole.counters
        self._places = {code: np.sort(np.array(places, np.int64)) for code, places in whole.places.items()}
        self._examples, self._notes = whole.examples, whole.notes
        self._tables = {name: _in_order(columns) for name, columns in whole.tables.items()}
        self._memo: dict[str, Any] = {}
        self.names_all = options.keep > MOST_EXAMPLES
        self._rejected = Notes()

    def places(self, code: str) -> Places:
        """Where a collector found what `code` is about."""
        return self._places.get(code, np.zeros(0, np.int64))

    def examples(self, code: str) -> Iterator[Example]:
        """The first places of `code`, with what is there; all where all are named."""
        if self._notes is not None:
            return map(Example._make, self._notes.of(code))
        return iter(self._examples.get(code, ()))

    def rejected(self, code: str) -> Iterator[tuple[int, str]]:
        """(place, why) of everything that was told of `code`, by place. Nothing can be told after it."""
        for place, notes in groupby(self._rejected.of(code), key=itemgetter(0)):
            *_, (_, _, why) = notes
            yield place, why

    def memo(self, name: str, make: Callable[[], T]) -> T:
        """What `make` gives, made once: several checks look at it."""
        if name not in self._memo:
            self._memo[name] = make()
        made: T = self._memo[name]
        return made

    def table(self, name: str) -> dict[str, NDArray[Any]]:
        """The columns of a table in the order of their column `place`; empty when nothing was collected."""
        return self._tables.get(name, {})

    def share(self, count: int) -> float:
        return count / self.rows if self.rows else 0.0

    def held_out(self, places: Places) -> NDArray[np.bool_]:
        """Which places are of the evaluation side."""
        sides = np.array([file.held_out for file in self.files], bool)
        held = np.zeros(len(places), bool)
        for start in range(0, len(places), AT_ONCE):
            held[start : start + AT_ONCE] = sides[places[start : start + AT_ONCE] >> ROW_BITS]
        return held

    def where(self, place: int) -> tuple[str, int]:
        """File and row of a place; of a folder of sounds the sound itself, and row 0."""
        file, row = self.files[place >> ROW_BITS], place & ((1 << ROW_BITS) - 1)
        return clip_at(file.path, file.layout, row) if file.layout else (file.path, row)

    def named(self, place: int) -> str:
        path, row = self.where(place)
        return f"{path}:{row}" if row else path

    def told(
        self, code: str, severity: Severity, says: str, *, metric: str = "value", **limits: float
    ) -> Iterator[Sighting]:
        """A sighting of all places of `code`, if there are any. says: after the count, such as "rows are no JSON"."""
        places = self.places(code)
        if not len(places):
            return
        if self.names_all:
            self._rejected.add(code, ((place, math.nan, "") for place in map(int, places)))
            self._rejected.add(code, self.examples(code))
        points = [self._evidence(e, metric) for e in islice(self.examples(code), MOST_EXAMPLES)]
        yield seen(severity, f"{self.counted(len(places))} {says}", points, **limits)

    def tell(
        self,
        code: str,
        severity: Severity,
        message: str,
        examples: Iterable[Example],
        *,
        metric: str = "value",
        **limits: float,
    ) -> Sighting:
        """A sighting of places that a check worked out itself; `examples` are all of them."""
        first: list[Example] = []
        for example in examples:
            if self.names_all:
                self._rejected.add(code, (example,))
            first.append(example)
            if len(first) > 100 * MOST_EXAMPLES:
                first = sorted(first)[:MOST_EXAMPLES]
        points = [self._evidence(e, metric) for e in sorted(first)[:MOST_EXAMPLES]]
        return seen(severity, message, points, **limits)

    def counted(self, count: int) -> str:
        """ "12 of 200 records (6 %)" """
        return f"{count:,} of {self.rows:,} records ({100 * self.share(count):.3g} %)"

    def to_tell(self, places: Places) -> Places:
        """Those of the places, or indices of them, in order, that have to be named: all, or as many as a finding cites."""
        return places if self.names_all else places[:MOST_EXAMPLES]

    def _evidence(self, example: Example, metric: str) -> Evidence:
        path, row = self.where(example.place)
        return Evidence(metric, row, number(example.value), row, path, example.excerpt)


def seen(severity: Severity, message: str, points: Sequence[Evidence], **limits: float) -> Sighting:
    rows = [point.line for point in points] or [0]
    return Sighting(severity, message, tuple(points), dict(limits), min(rows), max(rows), rows[0])


def _in_order(columns: dict[str, list[NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    whole = {name: joined(pieces) for name, pieces in columns.items()}
    place = whole["place"]
    if np.all(place[1:] >= place[:-1]):
        return whole
    order = np.argsort(place, kind="stable")
    return {name: column[order] for name, column in whole.items()}
