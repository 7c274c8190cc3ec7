"""The CSV that a chart of W&B exports: an x axis, and for each run a column `<run> - <metric>` with its __MIN and __MAX.

Each run is a run of its own, under its name. Where the chart showed points of several steps as one, the value is their
mean, and __MIN and __MAX, which are not read, are their extremes.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np

from trainproof.errors import FormatError
from trainproof.readers.builder import FrameBuilder
from trainproof.readers.columns import Batch, cells_of, columns_of
from trainproof.readers.records import RecordSink
from trainproof.readers.source import LogInput
from trainproof.readers.values import clean_name

SEPARATOR = " - "
EXTREMES = ("__MIN", "__MAX")
#: rows that are turned into columns together
ROWS_AT_ONCE = 4096


class _Header(NamedTuple):
    """What the columns are: the x axis, and run -> metric -> index."""

    axis: str
    width: int
    runs: dict[str, dict[str, int]]


class WandbExportReader:
    name = "wandb-export"
    description = "W&B: a chart exported as CSV, several runs side by side"

    def sniff(self, head: bytes) -> float:
        return 0.95 if _header(_cells(head.partition(b"\n")[0].decode("utf-8", "replace"))) is not None else 0.0

    def read(self, log: LogInput, out: FrameBuilder) -> None:
        rows = _rows(log)
        header = _header(next(rows, (0, []))[1])
        if header is None:
            raise FormatError(
                f"{log.path}: no column `<run> - <metric>` with its __MIN and __MAX, expected a CSV that W&B exported"
            )
        runs = {name: _Run(header, name, out.run(clean_name(name))) for name in header.runs}
        while part := list(islice(rows, ROWS_AT_ONCE)):
            for line, cells in part:
                if len(cells) != header.width:
                    out.drop(line, f"{len(cells)} cells, expected {header.width}")
            fitting = [(line, cells) for line, cells in part if len(cells) == header.width]
            for run in runs.values():
                run.take(fitting)
        for run in runs.values():
            run.sink.finish()


class _Run:
    """One run of the table."""

    def __init__(self, header: _Header, name: str, out: FrameBuilder) -> None:
        self.sink = RecordSink(out)
        self._axis, self._columns = header.axis, header.runs[name]

    def take(self, rows: Sequence[tuple[int, list[str]]]) -> None:
        """The points of this run in some rows: a row without any is another run's."""
        records, lines = [], []
        for line, cells in rows:
            record: dict[str, object] = {name: cells[i] for name, i in self._columns.items() if cells[i]}
            if record:
                records.append({self._axis: cells[0], **record})
                lines.append(line)
        if records:
            self.sink.learn(records)
            numbers = np.array(lines, np.int64)
            columns = columns_of(
                cells_of(records), len(lines), lambda _, at: numbers if at is None else numbers[at], self.sink.step_key
            )
            self.sink.give(Batch(numbers, columns))


def _cells(text: str) -> list[str]:
    """The cells of a line; a quote that is not closed, as in a header that is cut, costs the last one."""
    try:
        return next(csv.reader([text.strip("\r\n")]), [])
    except csv.Error:  # a cell of more than 128 KiB
        return []


def _rows(log: LogInput) -> Iterator[tuple[int, list[str]]]:
    """The rows that are not blank, with their lines."""
    for line, text in log.lines():
        if text.strip():
            yield line, [cell.strip() for cell in _cells(text)]


def _header(cells: Sequence[str]) -> _Header | None:
    """The runs and metrics that a header names; None when no column says a run and has its extremes beside it."""
    names = {name: i for i, name in enumerate(cells)}
    runs: dict[str, dict[str, int]] = {}
    for name, i in names.items():
        run, separator, metric = name.rpartition(SEPARATOR)
        if i and separator and run and all(name + extreme in names for extreme in EXTREMES):
            runs.setdefault(run, {})[clean_name(metric)] = i
    return _Header(cells[0] or "Step", len(cells), runs) if runs else None
