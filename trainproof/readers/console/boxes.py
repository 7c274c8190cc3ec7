"""Boxes of `| name | value |` lines, a record each, as stable-baselines3 and OpenAI baselines print them.

    ---------------------------------
    | rollout/           |          |
    |    ep_rew_mean     | 125.3    |
    | time/              |          |
    |    total_timesteps | 2048     |
    ---------------------------------

A name without a value is a section: the indented names below it are its own.
"""

from __future__ import annotations

import re

from trainproof.names import step_name
from trainproof.readers.builder import FrameBuilder
from trainproof.readers.console.rowwise import batches, sniffed
from trainproof.readers.records import RecordSink
from trainproof.readers.source import LogInput
from trainproof.readers.values import clean_name, parse_number

_EDGE = re.compile(rb"[ \t]*(?:\+-[-+]*\+|\|?-{10,}\|?)[ \t]*\Z")
_ROW = re.compile(rb"\|(?P<indent> *)(?P<name>[A-Za-z_][\w ./()%-]{0,80}?) *\| *(?P<value>[-+.\w]*) *\|[ \t]*\Z")
#: boxes in the head of a log that tell the format
SNIFFED_BOXES = 2
#: counters that number the boxes; the first that a log has
_COUNTERS = ("time/total_timesteps", "total_timesteps", "TimestepsSoFar", "time/iterations", "iterations", "Epoch")


class BoxReader:
    name = "boxes"
    description = "stable-baselines3, OpenAI baselines: the boxes on the console"

    def sniff(self, head: bytes) -> float:
        boxes = sniffed(_Boxes(), head)
        known = sum(step_name(name.rpartition("/")[2] for name in record) is not None for _, record in boxes.records)
        return 0.85 if known >= SNIFFED_BOXES else 0.0

    def read(self, log: LogInput, out: FrameBuilder) -> None:
        out.facts.declare("objective", "rl", "the format")
        sink = RecordSink(out)
        for records, lines in batches(log, out, _Boxes()):
            if sink.step_key is None:
                sink.step_key = next((name for name in _COUNTERS if any(name in record for record in records)), None)
            sink.give_records(records, lines)
        sink.finish()


class _Boxes:
    """The records of the boxes that were read whole."""

    def __init__(self) -> None:
        self.records: list[tuple[int, dict[str, object]]] = []
        self._open: dict[str, object] = {}
        self._line, self._section = 0, ""

    def take(self, line: int, row: bytes) -> None:
        match = _ROW.match(row)
        if match is None:
            if _EDGE.match(row) and self._open:
                self.records.append((self._line, self._open))
            if row.strip():
                self._open, self._section = {}, ""
            return
        name = clean_name(match["name"].decode("utf-8", "replace"))
        if name.endswith("/") and not match["value"]:
            self._section = name
            return
        number = parse_number(match["value"].decode("utf-8", "replace"))
        if number is not None:
            self._line = line if not self._open else self._line
            inside = len(match["indent"]) > 1 and self._section
            self._open[self._section + name if inside else name] = number
