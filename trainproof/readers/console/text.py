"""The text of a console, piece by piece: lines without colours, each with its number in the log.

Progress bars end their lines with carriage returns or backspaces; what lies between two of them counts as a line of its own here,
but not for the line numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from trainproof.frame import Ints
from trainproof.readers.source import LogInput

#: a longer line is no record
MOST_RECORD_BYTES = 16 * 1024
#: what ends a line that a carriage return ended: the newline after it is none of the log's
SOFT = b"\x0b"

_ANSI = re.compile(rb"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b\n]{0,200}(?:\x07|\x1b\\)|[@-Z\\-_])")
_BACKSPACES = re.compile(rb"\x08+")
#: a progress bar with more of its line behind it: the carriage return that was there is lost in many copies
_JOINED_BAR = re.compile(rb"(%\|[^|\n]{0,200}\| *+\d++/\d++ \[[^\]\n]{0,300}\])(?=[^\n\r\],)])")


class Span(NamedTuple):
    """Where a line lies in a block: its bytes without the line end, and its number there, from 0."""

    begin: int
    end: int
    line: int


class Block(NamedTuple):
    """Lines of text, each ended by a newline, and the number of each, shape (lines,), ascending."""

    text: bytes
    numbers: Ints

    def lines_with(self, mark: bytes) -> Iterator[Span]:
        """The lines that hold `mark` and are short enough to be records."""
        text, at, line = self.text, 0, 0
        while (found := text.find(mark, at)) >= 0:
            begin = max(at, text.rfind(b"\n", at, found) + 1)
            end = text.index(b"\n", found)
            line += text.count(b"\n", at, begin)
            if end - begin <= MOST_RECORD_BYTES:
                yield Span(begin, end, line)
            at = end + 1
            line += 1

    def rows(self) -> Iterator[tuple[int, bytes]]:
        """Each line with its number."""
        return zip(self.numbers.tolist(), self.text.split(b"\n"), strict=False)

    def cut(self, span: Span) -> tuple[Block, Block]:
        """The lines up to that of `span`, and those after it."""
        byte, line = span.end + 1, span.line + 1
        return Block(self.text[:byte], self.numbers[:line]), Block(self.text[byte:], self.numbers[line:])

    def without(self, spans: Sequence[Span]) -> Block:
        """The lines that are not among `spans`."""
        if not spans:
            return self
        begins = [0, *(span.end + 1 for span in spans)]
        ends = [*(span.begin for span in spans), len(self.text)]
        text = b"".join(self.text[begin:end] for begin, end in zip(begins, ends, strict=True))
        return Block(text, np.delete(self.numbers, [span.line for span in spans]))


def joined(blocks: Sequence[Block]) -> Block:
    if len(blocks) == 1:
        return blocks[0]
    return Block(b"".join(block.text for block in blocks), np.concatenate([block.numbers for block in blocks]))


def cleaned(data: bytes) -> bytes:
    """`data` without colours, its progress bars as lines, and a newline at the end."""
    data = data.replace(SOFT, b" ") if SOFT in data else data
    data = _ANSI.sub(b"", data) if b"\x1b" in data else data
    data = _BACKSPACES.sub(b"\r", data) if b"\x08" in data else data
    data = data.replace(b"\r\n", b"\n").replace(b"\r", SOFT + b"\n") if b"\r" in data else data
    data = _JOINED_BAR.sub(rb"\1" + SOFT + rb"\n", data) if b"%|" in data else data
    return data if data.endswith(b"\n") else data + b"\n"


class Piece(NamedTuple):
    """A piece of the log as lines, of which `soft` ended in a carriage return, and end no line of the log."""

    block: Block
    soft: Ints


def pieces(log: LogInput) -> Iterator[Piece]:
    """The log, piece by piece; lines are counted from 1, soft ones included."""
    line = 1
    for chunk in log.chunks():
        text = cleaned(chunk)
        lines = np.arange(line, line + text.count(b"\n"))
        yield Piece(Block(text, lines), lines[_soft(text)])
        line = int(lines[-1]) + 1


def _soft(text: bytes) -> Ints:
    """Which lines of `text` end in a carriage return."""
    if SOFT not in text:
        return np.zeros(0, np.int64)
    codes = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero(codes == ord("\n"))
    return np.flatnonzero((ends > 0) & (codes[np.maximum(ends - 1, 0)] == ord(SOFT)))
