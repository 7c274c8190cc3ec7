"""What a kind of record line looks like, and how lines of that kind are found in a text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

import numpy as np

from trainproof.frame import Ints
from trainproof.readers.console.fields import FIELD, STRICT_FIELD, Cells, columns_of, fields_of, shape_of
from trainproof.readers.console.text import Block, Span, joined
from trainproof.readers.values import clean_name

#: a number in a head, in words of a pattern: what it is worth is told when it is read
NUMBER = r"[-+.\w]+"
#: lines with the same names after which a regular expression is made of the last: that costs as much as reading ten lines
LEARNED_AFTER = 8
#: shapes that are learned of one kind of line
MOST_SHAPES = 12
#: sets of names that are counted; where no two lines are alike, none is worth learning
MOST_SEEN = 1000
#: groups of a head that say where a record stands, and are no metrics
PLACES = frozenset({"step", "of", "batch", "batches"})


class Line(NamedTuple):
    """A kind of record line, anchored at the line's begin and end.

    mark: a text that every such line holds. head, tail: regular expressions of what comes before and after the fields. Named
    groups of the head are metrics, but for step, batch (within an epoch) and their totals `of` and `batches`; a line without a
    step stands at that of the line before. fields: a regular expression of the text that holds fields; "" where there are none.
    prefix: what is put before the names. total: the fact that `of` declares. first_epoch: the number of the first one. counted: the
    records are numbered by their order. pairs: the head has the groups `name` and `value`, one metric a line.
    strict: the fields need a colon or an equals sign. sure: such a line, if it has a loss, tells the format.
    """

    mark: str
    head: str
    fields: str = r"[^\n]*"
    tail: str = ""
    prefix: str = ""
    total: str = "total_steps"
    first_epoch: int = 1
    counted: bool = False
    pairs: bool = False
    strict: bool = False
    sure: bool = True


class Batch(NamedTuple):
    """Records of one kind with the same names: a column a name, and the line of each record."""

    line: Line
    columns: dict[str, Cells]
    lines: Ints


class Shape(NamedTuple):
    """Lines of one kind with the same fields, and what stands between these: the names, and the regular expression."""

    names: tuple[str, ...]
    pattern: re.Pattern[bytes]


class LineReader:
    """Finds the lines of one kind."""

    def __init__(self, line: Line) -> None:
        self.line = line
        self._mark = line.mark.encode()
        self._head, self._tail = line.head.encode(), line.tail.encode() + rb"[ \t\x0b]*+$"
        self._pattern = re.compile(self._head + b"(?P<fields>" + line.fields.encode() + b")" + self._tail)
        self._groups = tuple(name for name in self._pattern.groupindex if name != "fields")
        self._field = STRICT_FIELD if line.strict else FIELD
        self._seen: dict[tuple[str, ...], int] = {}  # lines that were read singly, by their names
        self._learned: list[Shape] = []

    def read(self, block: Block) -> tuple[list[Batch], Block]:
        """The records in `block`, and the lines that are none."""
        batches: list[Batch] = []
        for shape in self._learned:
            block = self._lift(shape, block, batches)
        passed: list[Block] = []
        while True:
            spans, learned = self._read_singly(block, batches)
            if learned is None:
                passed.append(block.without(spans))
                return batches, joined(passed)
            before, block = block.cut(spans[-1])
            passed.append(before.without(spans))
            block = self._lift(learned, block, batches)

    def names_in(self, block: Block, most: int) -> Iterator[tuple[str, ...]]:
        """The names in each of the first `most` lines of this kind."""
        for span in block.lines_with(self._mark):
            if match := self._pattern.match(block.text, span.begin, span.end):
                yield (*self._groups, *fields_of(match["fields"], self._field)[0])
                most -= 1
                if not most:
                    return

    def _lift(self, shape: Shape, block: Block, batches: list[Batch]) -> Block:
        """Read all lines of a learned shape at once; the lines that are left."""
        if self._mark not in block.text:
            return block
        found, rest = lifted(shape.pattern, block)
        if found is not None:
            batches.append(self._batch(shape.names, *found))
        return rest

    def _read_singly(self, block: Block, batches: list[Batch]) -> tuple[list[Span], Shape | None]:
        """Read line by line, until a shape is learned; the lines that are records, and the shape."""
        rows: dict[tuple[str, ...], tuple[list[bytes | None], list[int]]] = {}
        spans: list[Span] = []
        learned = None
        for span in block.lines_with(self._mark):
            match = self._pattern.match(block.text, span.begin, span.end)
            if match is None:
                continue
            spans.append(span)
            names, values = fields_of(match["fields"], self._field)
            cells, lines = rows.setdefault(names, ([], []))
            cells += [*(match[name] for name in self._groups), *values]
            lines.append(int(block.numbers[span.line]))
            learned = self._learn(names, match)
            if learned is not None:
                break
        batches += [self._batch(names, cells, np.array(lines)) for names, (cells, lines) in rows.items()]
        return spans, learned

    def _learn(self, names: tuple[str, ...], match: re.Match[bytes]) -> Shape | None:
        """The shape of a line, when enough lines with these names had to be read singly."""
        if len(self._seen) > MOST_SEEN:
            self._seen.clear()
        count = self._seen[names] = self._seen.get(names, 0) + 1
        if count % LEARNED_AFTER or len(self._learned) >= MOST_SHAPES or not (self._groups or names):
            return None
        shape = Shape(names, whole_lines(self._head + shape_of(match["fields"], self._field) + self._tail))
        if shape.pattern.match(b"\n" + match[0]) is None:
            return None
        self._learned.append(shape)
        return shape

    def _batch(self, names: tuple[str, ...], cells: list[bytes | None], lines: Ints) -> Batch:
        names = (*self._groups, *names)
        if not names:
            return Batch(self.line, {}, lines)
        columns: dict[str, Cells] = {}
        for name, column in zip(names, columns_of(cells, len(names)), strict=True):
            columns.setdefault(name, column)
        return Batch(self.line, columns, lines)


class PairReader(LineReader):
    """Finds lines of one metric each."""

    def __init__(self, line: Line) -> None:
        super().__init__(line)
        self._pair = whole_lines(self._head + self._tail)

    def read(self, block: Block) -> tuple[list[Batch], Block]:
        found, rest = lifted(self._pair, block)
        if found is None:
            return [], block
        cells, lines = found
        names = [(name or b"").decode("utf-8", "replace") for name in cells[::2]]
        values, present = columns_of(cells[1::2], 1)[0]
        rows: dict[str, list[int]] = {}
        for row, name in enumerate(names):
            rows.setdefault(clean_name(name), []).append(row)
        batches = []
        for name, which in rows.items():
            cell = Cells(values[which], None if present is None else present[which])
            batches.append(Batch(self.line, {name: cell}, lines[which]))
        return batches, rest

    def names_in(self, block: Block, most: int) -> Iterator[tuple[str, ...]]:
        for match in islice(self._pair.finditer(b"\n" + block.text), most):
            yield (clean_name(match["name"].decode("utf-8", "replace")),)


def reader_of(line: Line) -> LineReader:
    return PairReader(line) if line.pairs else LineReader(line)


def whole_lines(source: bytes) -> re.Pattern[bytes]:
    """The lines that match `source`, each with the line end before it: searched for a third faster than ^, since it begins with a literal."""
    return re.compile(rb"\n" + source, re.MULTILINE)


def lifted(pattern: re.Pattern[bytes], block: Block) -> tuple[tuple[list[bytes | None], Ints] | None, Block]:
    """The groups of all lines that match a pattern of `whole_lines`, row by row, and their lines; and the lines that are left."""
    cells: list[bytes | None] = list(pattern.split(b"\n" + block.text[:-1]))
    stride = pattern.groups + 1
    gaps: list[bytes] = [gap or b"" for gap in cells[::stride]]
    if len(gaps) == 1:
        return None, block
    del cells[::stride]
    if len(gaps) == len(block.numbers) + 1:  # every line is one
        return (cells, block.numbers), Block(b"", block.numbers[:0])
    before = np.cumsum(np.array([gap.count(b"\n") for gap in gaps[:-1]]))
    lines = before + np.arange(len(before))
    left = np.ones(len(block.numbers), bool)
    left[lines] = False
    rest = Block(b"".join([*gaps, b"\n"])[1:], block.numbers[left])
    return (cells, block.numbers[lines]), rest
