"""CSV, TSV and their kin: any delimiter, padded or quoted cells, blank cells, repeated headers, comment lines.

A blank cell is a metric that was not logged in that row. A row of the wrong width costs itself, and so does a cell that
is no number. A repeated header is a logger that was started again.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

import numpy as np

from trainproof.errors import FormatError
from trainproof.frame import Ints
from trainproof.readers.builder import FrameBuilder
from trainproof.readers.columns import Batch, Cells, columns_of
from trainproof.readers.header import COMMENT, Table, cells_of, find_table, is_repeated, known_columns, metric_names
from trainproof.readers.plain_rows import PlainRows
from trainproof.readers.records import RecordSink
from trainproof.readers.source import HEAD_BYTES, LogInput, count_lines
from trainproof.readers.values import parse_number

SNIFFED_LINES = 100
#: share of the first rows that must have the header's width and a number, for a file to be a table
FITTING_SHARE = 0.8
#: rows from which it is decided which column numbers them
LEARNED_ROWS = 100


class Sniffed(NamedTuple):
    """The table at the start of a log, and its first rows that have the header's width and a number."""

    table: Table
    rows: list[list[str]]


@lru_cache(1)
def sniff_table(head: bytes) -> Sniffed | None:
    """The table that `head` begins with; None when it is none of a training log. Several readers ask this of one head."""
    lines = head.decode("utf-8", "replace").split("\n", SNIFFED_LINES)
    if len(lines) > SNIFFED_LINES or (len(lines) > 1 and len(head) >= HEAD_BYTES):
        lines.pop()  # it may be cut
    table = find_table(lines)
    if table is None:
        return None
    rows = [_row(text, table) for text in lines[table.line :] if _is_row(text, table)]
    fitting = [row for row in rows if len(row) == len(table.names) and _fits(row, table)]
    if not rows or len(fitting) < FITTING_SHARE * len(rows):
        return None
    known = known_columns(table.names)
    has_numbers = any(parse_number(row[i]) is not None for row in fitting for i in known)
    return Sniffed(table, fitting) if has_numbers else None


class DelimitedReader:
    """The reader of any table, and the base of those of known ones."""

    name = "csv"
    description = "CSV, TSV and their kin with a header that names steps or metrics"

    def sniff(self, head: bytes) -> float:
        """A header that names steps or metrics, and rows below it that have numbers in those columns."""
        return 0.6 if sniff_table(head) else 0.0

    def read(self, log: LogInput, out: FrameBuilder) -> None:
        chunks = log.chunks()
        first = next(chunks, b"")
        head = first.decode("utf-8", "replace").split("\n", SNIFFED_LINES)[:SNIFFED_LINES]
        table = find_table(head)
        if table is None:
            raise FormatError(f"{log.path}: no header line that names steps or metrics, expected a CSV with one")
        self.declare(out)
        rows = _Rows(table, self.metric_names(table), out, self.refine)
        for chunk in chain(first.split(b"\n", table.line)[table.line :], chunks):
            rows.read(chunk)
        rows.restart()

    def metric_names(self, table: Table) -> list[str]:
        """The name of each column's metric."""
        return metric_names(table)

    def declare(self, out: FrameBuilder) -> None:
        """What the format itself says of a run."""

    def refine(self, batch: Batch) -> Batch:
        """The records as they are meant."""
        return batch


class KnownTable(DelimitedReader):
    """The tables of one logger, known by the names of their columns."""

    def sniff(self, head: bytes) -> float:
        found = sniff_table(head)
        return 0.95 if found and self.claims(found) else 0.0

    @abstractmethod
    def claims(self, found: Sniffed) -> bool:
        """Whether this is a table of the logger."""


def _is_row(text: str, table: Table) -> bool:
    """Whether a line holds values: neither blank nor a comment nor the header again."""
    return bool(text.strip()) and not text.startswith(COMMENT) and not is_repeated(text, table)


def _row(text: str, table: Table) -> list[str]:
    """The cells of a line, without the empty one behind the delimiter with which some loggers end each row."""
    row = cells_of(text, table.delimiter)
    if len(row) == len(table.names) + 1 and not row[-1].strip():
        row.pop()
    return row


def _fits(row: Sequence[str], table: Table) -> bool:
    """Whether a row looks like a record: it has a number; where only blanks part the cells, as in prose, mostly numbers."""
    numbers = sum(parse_number(_decimal(cell, table)) is not None for cell in row)
    return 2 * numbers >= len(row) if table.delimiter == " " else numbers > 0


def _decimal(cell: str, table: Table) -> str:
    """Where semicolons part the cells, a comma is the decimal point."""
    return cell.replace(",", ".") if table.delimiter == ";" and "." not in cell else cell


class _Rows:
    """Turns rows into columns, a piece of the log at a time."""

    def __init__(self, table: Table, names: Sequence[str], out: FrameBuilder, refine: Callable[[Batch], Batch]) -> None:
        self.table, self.names, self.out, self.refine = table, names, out, refine
        self.line = table.line + 1
        self.plain = PlainRows(len(names), table.delimiter)
        self.sink = RecordSink(out)

    def read(self, chunk: bytes) -> None:
        """Some whole lines."""
        if not chunk:
            return
        count = count_lines(chunk) + (not chunk.endswith(b"\n"))
        plain = self.plain.columns(chunk)
        if plain is not None:
            self._give(np.arange(self.line, self.line + count), plain)
        else:
            self._read_tolerantly(chunk.decode("utf-8", "replace").removesuffix("\n").split("\n"))
        self.line += count

    def _read_tolerantly(self, lines: list[str]) -> None:
        """Lines of any kind: rows are gathered, what is none is passed over or dropped."""
        numbers: list[int] = []
        rows: list[list[str]] = []
        width = len(self.names)
        for number, text in enumerate(lines, self.line):
            row = _row(text, self.table)
            if not text.strip() or text.startswith(COMMENT):
                continue
            if self._is_header(row):
                self._give_cells(numbers, rows)
                numbers, rows = [], []
                self.restart()
            elif len(row) == width:
                numbers.append(number)
                rows.append(row)
            else:
                self.out.drop(number, f"{len(row)} cells, expected {width}")
        self._give_cells(numbers, rows)

    def _is_header(self, row: list[str]) -> bool:
        return row[0].strip() == self.table.names[0] and tuple(map(str.strip, row)) == self.table.names

    def _give_cells(self, numbers: list[int], rows: list[list[str]]) -> None:
        if rows:
            self._give(np.array(numbers, np.int64), [_cells(column, self.table) for column in zip(*rows, strict=True)])

    def restart(self) -> None:
        """Hand over what was read; what follows is numbered anew."""
        self.sink.finish()
        self.sink = RecordSink(self.out)

    def _give(self, numbers: Ints, columns: list[Cells]) -> None:
        cells = {name: column for name, column in zip(self.names, columns, strict=True) if name}
        self.sink.learn(_first_records(cells, min(len(numbers), LEARNED_ROWS)))
        batch = columns_of(
            cells, len(numbers), lambda _, rows: numbers if rows is None else numbers[rows], self.sink.step_key
        )
        self.sink.give(self.refine(Batch(numbers, batch)))


def _first_records(cells: dict[str, Cells], count: int) -> list[dict[str, object]]:
    """The first rows as records, from which it is learned what numbers them."""
    records: list[dict[str, object]] = [{} for _ in range(count)]
    for name, (rows, values) in cells.items():
        index = range(count) if rows is None else rows[:count].tolist()
        first: list[object] = np.asarray(values[:count], object).tolist()
        for row, value in zip(index, first, strict=False):
            if row < count:
                records[row][name] = value
    return records


def _cells(column: Sequence[str], table: Table) -> Cells:
    """The cells of a column that are not blank, as numbers where all of them are."""
    rows: Ints | None = None
    cells = column
    if "" in column or any(map(str.isspace, column)):
        present = [i for i, cell in enumerate(column) if cell and not cell.isspace()]
        rows, cells = np.array(present, np.int64), [column[i] for i in present]
    if table.delimiter == ";":
        cells = [_decimal(cell, table) for cell in cells]
    text = "".join(cells)
    if text.isascii() and "_" not in text:  # float() reads more than loggers write
        try:
            return Cells(rows, np.fromiter(map(float, cells), np.float64, len(cells)))
        except ValueError:
            pass
    return Cells(rows, list(cells))
