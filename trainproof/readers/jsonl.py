"""Generic JSONL: one object a line, any keys, any order. A bad line costs itself, never the file."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trainproof.errors import FormatError
from trainproof.frame import Ints
from trainproof.names import EPOCH_NAMES, STEP_NAMES, looks_like_metric, plain
from trainproof.readers.builder import FrameBuilder
from trainproof.readers.columns import Batch, Cells, cells_of, columns_of
from trainproof.readers.layout import Layout
from trainproof.readers.records import RecordSink
from trainproof.readers.source import LogInput, count_lines
from trainproof.readers.values import as_float, decode_json, flatten

SNIFFED_LINES = 40


class JSONLReader:
    name = "jsonl"
    description = "JSONL: one JSON object a line, nested ones too, under any names"

    def sniff(self, head: bytes) -> float:
        """Several lines that are training records; a single one must have both a step and a metric."""
        lines = head.split(b"\n")
        complete = [line for line in lines[: max(1, len(lines) - 1)] if line.strip()][:SNIFFED_LINES]
        marks = [_marks(line) for line in complete]
        if len(marks) == 1:
            return 0.4 if marks[0] == (True, True) else 0.0
        good = sum(
            metric or (step and numbers) for (step, metric), numbers in zip(marks, map(_several, complete), strict=True)
        )
        return 0.8 if good > 1 and good >= len(marks) / 2 else 0.0

    def read(self, log: LogInput, out: FrameBuilder) -> None:
        reading = _Reading(out)
        for chunk in log.chunks():
            reading.take(chunk)
        if not reading.records:
            raise FormatError(f"{log.path}: no line of it is a JSON object; expected JSONL, one object a line")
        reading.sink.finish()


class _Reading:
    """One pass over a log, chunk by chunk."""

    def __init__(self, out: FrameBuilder) -> None:
        self.sink = RecordSink(out)
        self.records = 0
        self._out = out
        self._layout = Layout()
        self._line = 1

    def take(self, chunk: bytes) -> None:
        """The records of some whole lines."""
        first, count = self._line, count_lines(chunk)
        self._line += count
        fast = self._layout.decode_lines(chunk) if count else None
        if fast is not None and len(fast) == count:  # else blank lines, or objects over several lines
            self._give(self._layout.cells(fast), np.arange(first, first + count))
            return
        lines, records = [], []
        for line, record in self._tolerantly(chunk, first):
            lines.append(line)
            records.append(record)
            self._layout.learn(record)
        if records:
            self.sink.learn(records)
            self._give(cells_of(records), np.array(lines, np.int64))

    def _give(self, cells: dict[str, Cells], lines: Ints) -> None:
        self.records += len(lines)

        def line_of(_: str, rows: Ints | None) -> Ints:
            return lines if rows is None else lines[rows]

        self.sink.give(Batch(lines, columns_of(cells, len(lines), line_of, self.sink.step_key)))

    def _tolerantly(self, chunk: bytes, first: int) -> Iterator[tuple[int, dict[str, object]]]:
        """Each object with its line number; every other line is dropped."""
        texts = chunk.split(b"\n")
        for line, text in enumerate(texts, first):
            if not text.strip():
                continue
            try:
                value = decode_json(text)
            except ValueError:
                cut = line == first + len(texts) - 1  # its line end is missing: the log was cut, or is being written
                self._out.drop(line, "cut off before the end of the line" if cut else "not JSON")
                continue
            if isinstance(value, dict):
                yield line, value
            else:
                self._out.drop(line, f"not an object but {_described(value)}")


def _numeric_names(line: bytes) -> list[str]:
    try:
        value = decode_json(line)
    except ValueError:
        return []
    return [name for name, leaf in flatten(value) if as_float(leaf) is not None] if isinstance(value, dict) else []


def _marks(line: bytes) -> tuple[bool, bool]:
    """Whether a line has a number under the name of a step, and one under the name of a metric."""
    names = _numeric_names(line)
    steps = [name for name in names if plain(name) in STEP_NAMES or plain(name) in EPOCH_NAMES]
    return bool(steps), any(looks_like_metric(name) for name in names if name not in steps)


def _several(line: bytes) -> bool:
    return len(_numeric_names(line)) > 1


def _described(value: object) -> str:
    kinds = {"list": "a list", "str": "a text", "bool": "true or false", "NoneType": "null"}
    return kinds.get(type(value).__name__, "a number")
