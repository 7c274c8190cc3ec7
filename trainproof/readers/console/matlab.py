"""MATLAB's trainNetwork: a table whose names stand in two rows.

|========================================================================|
|  Epoch  |  Iteration  |  Time Elapsed  |  Mini-batch  |  Base Learning  |
|         |             |   (hh:mm:ss)   |     Loss     |      Rate       |
|========================================================================|
|       1 |          50 |       00:00:03 |       2.3012 |          0.0100 |
"""

from __future__ import annotations

import re

from trainproof.readers.builder import FrameBuilder
from trainproof.readers.console.rowwise import batches, sniffed
from trainproof.readers.records import RecordSink
from trainproof.readers.source import LogInput
from trainproof.readers.values import parse_number

_EDGE = re.compile(rb"[ \t]*\|={20,}\|[ \t]*\Z")
#: rows of a table that tell the format
SNIFFED_ROWS = 3
_NAMES = {
    "Mini-batch Loss": "loss",
    "Validation Loss": "eval_loss",
    "Mini-batch Accuracy": "train_accuracy",
    "Validation Accuracy": "eval_accuracy",
    "Mini-batch RMSE": "train_rmse",
    "Validation RMSE": "eval_rmse",
    "Base Learning Rate": "lr",
    "Iteration": "iteration",
    "Epoch": "epoch",
}


class MatlabReader:
    name = "matlab"
    description = "MATLAB: trainNetwork on the console"

    def sniff(self, head: bytes) -> float:
        return 0.9 if len(sniffed(_Table(), head).records) >= SNIFFED_ROWS else 0.0

    def read(self, log: LogInput, out: FrameBuilder) -> None:
        sink = RecordSink(out, "iteration")
        for records, lines in batches(log, out, _Table()):
            sink.give_records(records, lines)
        sink.finish()


class _Table:
    """The rows below two edges between which the names stand."""

    def __init__(self) -> None:
        self.records: list[tuple[int, dict[str, object]]] = []
        self._header: list[list[str]] | None = None  # the rows since an edge, while they may be names
        self._names: list[str] = []

    def take(self, line: int, row: bytes) -> None:
        if _EDGE.match(row):
            if self._header:
                names = [" ".join(filter(None, parts)) for parts in zip(*self._header, strict=False)]
                self._names = [_NAMES.get(name, "") for name in names]
            self._header = None if self._header else []
            return
        cells = [cell.strip() for cell in row.decode("utf-8", "replace").strip().strip("|").split("|")]
        if self._header is not None and len(self._header) < 2 and "|" in row.decode("utf-8", "replace"):
            self._header.append(cells)
        elif "iteration" in self._names and len(cells) == len(self._names):
            numbers = {
                name: parse_number(cell.removesuffix("%"))
                for name, cell in zip(self._names, cells, strict=True)
                if name
            }
            if numbers["iteration"] is not None:
                self.records.append((line, {name: value for name, value in numbers.items() if value is not None}))
