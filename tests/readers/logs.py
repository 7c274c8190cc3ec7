"""What the tests of the readers share: reading bytes as a format."""

from __future__ import annotations

from trainproof.frame import Frame, Source
from trainproof.readers.base import reader_for
from trainproof.readers.builder import FrameBuilder
from trainproof.readers.source import LogInput


def pour(format_name: str, data: bytes) -> FrameBuilder:
    """A builder that holds what the reader found in `data`."""
    out = FrameBuilder()
    reader_for(format_name).read(LogInput("log", data), out)
    return out


def read_bytes(format_name: str, data: bytes) -> Frame:
    """The one run in `data`."""
    (frame,) = pour(format_name, data).build(Source("log", format_name))
    return frame


#: (step, value, line); a NaN as text, so that points compare
Point = tuple[int, float | str, int]


def points(frame: Frame, name: str) -> list[Point]:
    """The points of one metric."""
    series = frame[name]
    columns = zip(series.step.tolist(), series.value.tolist(), series.line.tolist(), strict=True)
    return [(step, value if value == value else "nan", line) for step, value, line in columns]


def everything(frame: Frame) -> dict[str, list[Point]]:
    return {name: points(frame, name) for name in sorted(frame)}
