"""Reading a small log the way the command line does: the reader that recognises it, and the runs it makes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from trainproof.frame import Frame, Source
from trainproof.readers.base import recognise
from trainproof.readers.builder import FrameBuilder
from trainproof.readers.source import LogInput


def runs(text: str, path: str = "log") -> list[Frame]:
    """The runs of a log, read by whichever reader recognises it; `source.format` says which."""
    log = LogInput(path, text.encode())
    reader = recognise(log)
    out = FrameBuilder()
    reader.read(log, out)
    return out.build(Source(path, reader.name))


def run(text: str, path: str = "log") -> Frame:
    (frame,) = runs(text, path)
    return frame


def lines(records: Iterable[Mapping[str, object]]) -> str:
    """JSONL."""
    return "".join(json.dumps(record) + "\n" for record in records)


def curve(frame: Frame, name: str) -> list[tuple[int, float]]:
    return list(zip(frame[name].step.tolist(), frame[name].value.tolist(), strict=True))
