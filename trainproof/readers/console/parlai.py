"""ParlAI: a headline that counts, and a table of one row below it.

10:01:00 | time:10s total_exs:1000 total_steps:100 epochs:0.10 time_left:900s
    clip  exps  gnorm  loss     lr   ppl  token_acc  total_train_updates   ups
       1   123  3.123 2.061  1e-06  7.85      .2074                  100  1.92
"""

from __future__ import annotations

import re

from trainproof.readers.builder import FrameBuilder
from trainproof.readers.console.rowwise import batches, sniffed
from trainproof.readers.records import RecordSink
from trainproof.readers.source import LogInput
from trainproof.readers.values import clean_name, parse_number

_HEADLINE = re.compile(
    rb"[^\n]{0,60}?\btime: ?\d+s total_exs: ?\d+ (?:total_steps: ?(?P<step>\d{1,15}) )?epochs: ?(?P<epoch>\d{1,9}(?:\.\d{1,9})?)"
)
_EVALUATION = re.compile(rb"[^\n]{0,60}?\b(?P<data>valid|test):[ \t]*\Z")
_NAMES = re.compile(rb"[ \t]+[A-Za-z_%][\w/%.-]*(?:[ \t]+[A-Za-z_%][\w/%.-]*)+[ \t]*\Z")
#: records that tell the format
SNIFFED_RECORDS = 2
#: names that stand for others
_OTHERS = {"total_train_updates": "step", "gpu_mem": "memory"}


class ParlAIReader:
    name = "parlai"
    description = "ParlAI: console output"

    def sniff(self, head: bytes) -> float:
        return 0.9 if len(sniffed(_Report(), head).records) >= SNIFFED_RECORDS else 0.0

    def read(self, log: LogInput, out: FrameBuilder) -> None:
        sink = RecordSink(out, "step")
        for records, lines in batches(log, out, _Report()):
            sink.give_records(records, lines)
        sink.finish()


class _Report:
    """The records of the tables of one row, each below the line that says of what it is."""

    def __init__(self) -> None:
        self.records: list[tuple[int, dict[str, object]]] = []
        self._head: dict[str, object] | None = None  # since a headline, until its row
        self._prefix = ""
        self._names: list[str] = []

    def take(self, line: int, row: bytes) -> None:
        if match := _HEADLINE.match(row):
            self._head = {name: float(value) for name, value in match.groupdict().items() if value is not None}
            self._prefix, self._names = "", []
        elif match := _EVALUATION.match(row):
            self._head, self._prefix, self._names = {}, "eval_" if match["data"] == b"valid" else "test_", []
        elif self._head is not None and self._names:
            self._row(line, row)
        elif self._head is not None and _NAMES.match(row):
            self._names = [clean_name(name) for name in row.decode("utf-8", "replace").split()]

    def _row(self, line: int, row: bytes) -> None:
        cells = row.decode("utf-8", "replace").split()
        if len(cells) == len(self._names):
            record = dict(self._head or {})
            for name, cell in zip(self._names, cells, strict=True):
                number = parse_number(cell)
                if number is not None:
                    name = _OTHERS.get(name, name)
                    record[name if name == "step" else self._prefix + name] = number
            self.records.append((line, record))
        self._head, self._names = None, []
