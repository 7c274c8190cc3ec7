"""Generic JSONL: one object a line, any keys, any order. A bad line costs itself, never the file."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

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


@lru_cache(1)
def sniff_lines(head: bytes) -> list[dict[str, object]]:
    """The objects among the first complete lines, flattened ("a": {"b": 1} is "a/b"); a line that is none is an empty one.

    Several readers ask this of one head."""
    lines = head.split(b"\n")
    complete = [line for line in lines[: max(1, len(lines) - 1)] if line.strip()][:SNIFFED_LINES]
    return [dict(flatten(value)) if isinstance(value := _decoded(line), dict) else {} for line in complete]


def _decoded(line: bytes) -> object:
    try:
        return decode_json(line)
    except ValueError:
        return None


class JSONLReader:
    """The reader of any JSONL, and the base of those of known ones."""

    name = "jsonl"
    description = "JSONL: one JSON object a line, nested ones too, under any names"
    #: what numbers the records, where names do not say it
    step_key: str | None = None

    def __init__(self) -> None:
        self.ended = False  # the logger's end-of-run marker was seen

    def sniff(self, head: bytes) -> float:
        """Several lines that are training records; a single one must have both a step and a metric."""
        names = [_numeric_names(record) for record in sniff_lines(head)]
        marks = [_marks(found) for found in names]
        if len(marks) == 1:
            return 0.4 if marks[0] == (True, True) else 0.0
        good = sum(metric or (step and len(found) > 1) for (step, metric), found in zip(marks, names, strict=True))
        return 0.8 if good > 1 and good >= len(marks) / 2 else 0.0

    def read(self, log: LogInput, out: FrameBuilder) -> None:
        self.declare(out)
        reading = _Reading(out, self)
        for chunk in log.chunks():
            reading.take(chunk)
        if not reading.records:
            raise FormatError(f"{log.path}: no line of it is a JSON object; expected JSONL, one object a line")
        reading.sink.finish()
        if self.ended:
            out.end()

    def declare(self, out: FrameBuilder) -> None:
        """What the format itself says of a run."""

    def refine(self, batch: Batch) -> Batch:
        """The records as they are meant."""
        return batch


class KnownJSONL(JSONLReader):
    """The JSONL of one logger, known by the names in its records."""

    def sniff(self, head: bytes) -> float:
        records = sniff_lines(head)
        fitting = sum(self.claims(record) for record in records)
        return 0.95 if fitting and 2 * fitting >= len(records) else 0.0

    @abstractmethod
    def claims(self, record: Mapping[str, object]) -> bool:
        """Whether a record is one of the logger's."""


class _Reading:
    """One pass over a log, chunk by chunk."""

    def __init__(self, out: FrameBuilder, reader: JSONLReader) -> None:
        self.sink = RecordSink(out, reader.step_key)
        self.records = 0
        self._out, self._reader = out, reader
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

        columns = columns_of(cells, len(lines), line_of, self.sink.step_key)
        self.sink.give(self._reader.refine(Batch(lines, columns, cells)))

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


def _numeric_names(record: Mapping[str, object]) -> list[str]:
    return [name for name, leaf in record.items() if as_float(leaf) is not None]


def _marks(names: Sequence[str]) -> tuple[bool, bool]:
    """Whether there is a number under the name of a step, and one under the name of a metric."""
    steps = [name for name in names if plain(name) in STEP_NAMES or plain(name) in EPOCH_NAMES]
    return bool(steps), any(looks_like_metric(name) for name in names if name not in steps)


def _described(value: object) -> str:
    kinds = {"list": "a list", "str": "a text", "bool": "true or false", "NoneType": "null"}
    return kinds.get(type(value).__name__, "a number")
