"""Tables that are read a row at a time: what a row means, the rows above it say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, TypeVar

import numpy as np

from trainproof.frame import Ints
from trainproof.readers.builder import FrameBuilder
from trainproof.readers.console.text import cleaned, pieces
from trainproof.readers.source import LogInput


class Rows(Protocol):
    """What makes records of rows. Those that are whole wait, each with the number of its line."""

    records: list[tuple[int, dict[str, object]]]

    def take(self, line: int, row: bytes) -> None:
        """The next row."""


AnyRows = TypeVar("AnyRows", bound=Rows)


def sniffed(rows: AnyRows, head: bytes) -> AnyRows:
    """The rows, which took those of the beginning of a log."""
    for line, row in enumerate(cleaned(head).split(b"\n")):
        rows.take(line, row)
    return rows


def batches(log: LogInput, out: FrameBuilder, rows: Rows) -> Iterator[tuple[list[dict[str, object]], Ints]]:
    """(records, the number of the line of each) of a log, many at once."""
    for block, soft in pieces(log):
        out.soft(soft)
        for line, row in block.rows():
            rows.take(line, row)
        if rows.records:
            yield [record for _, record in rows.records], np.array([line for line, _ in rows.records], np.int64)
            rows.records.clear()
