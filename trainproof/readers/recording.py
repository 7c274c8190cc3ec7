"""Runs that trainproof's own recorder wrote: a header, then a row a step (trainproof.record.tape)."""

from __future__ import annotations

import json
from typing import Any

from trainproof.readers.builder import FrameBuilder
from trainproof.readers.source import LogInput

#: what a row holds beside numbers
_BESIDE = frozenset({"step", "cursor", "ids", "batch", "params", "sizes", "shards"})


class RecordingReader:
    """Reads steps-0.jsonl of a recorded run."""

    name = "recording"
    description = "`trainproof record` and `trainproof.Recorder` (`steps-0.jsonl`)"

    def sniff(self, head: bytes) -> float:
        return 0.99 if head.startswith(b'{"recording": "trainproof recording ') else 0.0

    def read(self, log: LogInput, out: FrameBuilder) -> None:
        for number, line in log.lines():
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                out.drop(number, "no JSON")
                continue
            if isinstance(row, dict) and isinstance(row.get("step"), int):
                out.add(row["step"], {name: float(v) for name, v in row.items() if _counts(name, v)}, number)
            elif isinstance(row, dict) and "recording" in row:
                _declared(row, out)
            else:
                out.drop(number, "no step in it")


def _counts(name: str, value: Any) -> bool:
    return name not in _BESIDE and isinstance(value, (int, float)) and not isinstance(value, bool)


def _declared(header: dict[str, Any], out: FrameBuilder) -> None:
    declared = header.get("facts")
    for name, value in declared.items() if isinstance(declared, dict) else ():
        if isinstance(value, (str, int, float, bool)):
            out.facts.declare(str(name), value, "recorded")
