"""Logs of an imaginary trainer that counts laps: `lap 12: loss=2.31 lr=0.0001 laps_per_s=3.2`."""

from __future__ import annotations

import re

from trainproof.errors import FormatError
from trainproof.readers.builder import FrameBuilder
from trainproof.readers.source import LogInput
from trainproof.readers.values import as_step, parse_number

_LAP = re.compile(r"lap (?P<lap>\d{1,18}): (?P<values>.*)")
_VALUE = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<value>\S+)")


class LapReader:
    """What trainproof asks of a reader: a name (for --format), a description, `sniff` and `read`."""

    name = "lap"
    description = "Lap-timer logs (an example)"

    def sniff(self, head: bytes) -> float:
        """From 0 to 1, how surely this is such a log. Look at the content; be cheap; never raise."""
        lines = head.decode("utf-8", "replace").splitlines()[:20]
        return 0.9 if sum(map(bool, map(_LAP.match, lines))) >= 2 else 0.0

    def read(self, log: LogInput, out: FrameBuilder) -> None:
        """Give each record to `out` under the logger's own names; say of each line that is none why it was dropped."""
        found = False
        for line, text in log.lines():
            match = _LAP.match(text)
            if match is None:
                if text.strip():
                    out.drop(line, "no lap")
                continue
            values = {name: parse_number(value) for name, value in _VALUE.findall(match["values"])}
            step = as_step(match["lap"])
            if step is None or None in values.values():
                out.drop(line, "a lap or a value that is no number")
                continue
            found = True
            out.add(step, {name: value for name, value in values.items() if value is not None}, line)
        if not found:
            raise FormatError(f"{log.path}: no line of it begins with `lap N:`, expected a lap-timer log")
