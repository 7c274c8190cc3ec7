"""CSV, TSV and their kin: any delimiter, padded or quoted cells, blank cells, repeated headers, comment lines.

A blank cell is a metric that was not logged in that row. A row of the wrong width costs itself; a cell that is no number costs itself.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from trainproof.errors import FormatError
from trainproof.names import EPOCH_NAMES, STEP_NAMES, looks_like_metric, plain, step_name
from trainproof.readers.builder import FrameBuilder
from trainproof.readers.source import LogInput
from trainproof.readers.values import as_step, parse_number

DELIMITERS = (",", "\t", ";", "|")
SNIFFED_ROWS = 20
#: header of a scalar that TensorBoard lets one download; the metric is in the file's name
_TENSORBOARD = ("wall time", "step", "value")
_TENSORBOARD_FILE = re.compile(r"(?:.*-tag-|run-[^_]*_?|run-)?(?P<tag>.+?)(?:\.csv)?(?:\.gz|\.zst|\.xz)?\Z")
#: stable-baselines3 monitor files: reward, length and time of each episode
_MONITOR = ("r", "l", "t")


class Table(NamedTuple):
    """What the header says: the delimiter, the names, and the line it stands on."""

    delimiter: str
    names: tuple[str, ...]
    line: int


class DelimitedReader:
    name = "csv"
    description = "CSV or TSV with a header: Lightning, Keras, ultralytics, W&B exports and others"

    def sniff(self, head: bytes) -> float:
        lines = list(islice(_numbered(head), 2 * SNIFFED_ROWS))
        if len(lines) > 1 and not head.endswith(b"\n"):
            lines = lines[:-1]  # the last one may be cut
        table = _header(lines)
        if table is None:
            return 0.0
        rows = [_cells(text, table.delimiter) for line, text in lines if line > table.line and text.strip()]
        if not rows:
            return 0.0
        fitting = sum(len(row) == len(table.names) and _has_number(row) for row in rows)
        return 0.6 if fitting >= 0.8 * len(rows) else 0.0

    def read(self, log: LogInput, out: FrameBuilder) -> None:
        lines = log.lines()
        first = list(islice(lines, 2 * SNIFFED_ROWS))
        table = _header(first)
        if table is None:
            raise FormatError(f"{log.path}: no header line with column names; expected a CSV with one")
        names = _metric_names(table, log.path)
        numbering = _Numbering(table.names, first, table)
        for line, text in _chain(first, lines):
            if line > table.line and text.strip() and not text.startswith("#"):
                _read_row(line, text, table, names, numbering, out)


def _chain(first: list[tuple[int, str]], rest: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    yield from first
    yield from rest


def _numbered(head: bytes) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(head.split(b"\n"), 1):
        yield number, line.decode("utf-8", "replace").rstrip("\r")


def _header(lines: list[tuple[int, str]]) -> Table | None:
    """The header among the first lines: comments and blank lines may stand before it, and numbers must follow."""
    rows = [(line, text) for line, text in lines if text.strip() and not text.startswith("#")]
    if not rows:
        return None
    line, text = rows[0]
    for delimiter in DELIMITERS:
        names = tuple(_cells(text, delimiter))
        if len(names) < 2 or any(parse_number(name) is not None for name in names):
            continue
        if any(len(name) > 200 for name in names) or sum(not name for name in names) > 1:
            continue
        if _known(names):
            return Table(delimiter, names, line)
    return None


def _known(names: Sequence[str]) -> bool:
    """Whether a header is a training log's: one of its names counts records or is a metric."""
    lowered = [plain(name) for name in names]
    if tuple(lowered) == _MONITOR or tuple(name.lower() for name in names) == _TENSORBOARD:
        return True
    return any(name in STEP_NAMES or name in EPOCH_NAMES for name in lowered) or any(map(looks_like_metric, names))


def _cells(text: str, delimiter: str) -> list[str]:
    """The cells of one row, unquoted and without padding."""
    if '"' not in text:
        return [cell.strip() for cell in text.split(delimiter)]
    try:
        return [cell.strip() for cell in next(csv.reader([text], delimiter=delimiter, skipinitialspace=True))]
    except (csv.Error, StopIteration):
        return [text]


def _has_number(row: Sequence[str]) -> bool:
    return any(parse_number(cell) is not None for cell in row)


def _metric_names(table: Table, path: str) -> tuple[str, ...]:
    """The name under which each column is logged; repeated names count up so that none hides another."""
    lowered = tuple(plain(name) for name in table.names)
    if tuple(name.lower() for name in table.names) == _TENSORBOARD:
        match = _TENSORBOARD_FILE.match(Path(path).name)
        return ("wall_time", "step", match["tag"] if match else "value")
    if lowered == _MONITOR:
        return ("reward", "episode_length", "time")
    seen: dict[str, int] = {}
    names = []
    for name in table.names:
        seen[name] = seen.get(name, 0) + 1
        names.append(name if seen[name] == 1 else f"{name}~{seen[name]}")
    return tuple(names)


class _Numbering:
    """Which column numbers the rows: a step, else whole epochs, else the rows' own order."""

    def __init__(self, names: Sequence[str], lines: list[tuple[int, str]], table: Table) -> None:
        self.ordinal = 0
        key = step_name(names)
        self.column = names.index(key) if key is not None else None
        self.keeps_column = key is None or plain(key) in EPOCH_NAMES
        if self.column is not None and self.keeps_column:
            rows = [_cells(text, table.delimiter) for line, text in lines if line > table.line and text.strip()]
            epochs = [as_step(row[self.column]) for row in rows if len(row) > self.column]
            if None in epochs or len(set(epochs)) < len(epochs) / 2:
                self.column = None

    def step(self, row: Sequence[str]) -> int | None:
        self.ordinal += 1
        return self.ordinal if self.column is None else as_step(row[self.column])


def _read_row(
    line: int, text: str, table: Table, names: tuple[str, ...], numbering: _Numbering, out: FrameBuilder
) -> None:
    row = _cells(text, table.delimiter)
    if tuple(row) == table.names:
        return  # a repeated header: the logger was started again
    if len(row) != len(names):
        out.drop(line, f"{len(row)} cells, expected {len(names)}")
        return
    step = numbering.step(row)
    if step is None:
        out.drop(line, f"no usable {table.names[numbering.column or 0]!r}")
        return
    comma = table.delimiter == ";"
    values = {}
    for i, cell in enumerate(row):
        if cell and (i != numbering.column or numbering.keeps_column):
            number = parse_number(cell.replace(",", ".") if comma else cell)
            if number is not None:
                values[names[i]] = number
    if values:
        out.add(step, values, line)
    else:
        out.drop(line, "no numeric cell beside the step")
