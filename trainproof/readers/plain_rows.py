"""Rows that hold nothing but plain numbers and empty cells, decoded at the speed of a JSON decoder.

All the cells of such rows are one JSON array but for its brackets and nulls. Whatever else stands in a piece (text, nan,
quotes, blanks for an empty cell, comments, rows of another width) makes the decoder refuse the whole piece, which then goes
cell by cell, with the same result.
"""

from __future__ import annotations

import msgspec
import numpy as np

from trainproof.readers.columns import Cells

_COMMA, _NEWLINE = ord(","), ord("\n")


class PlainRows:
    """Decodes pieces of a table of `width` columns."""

    def __init__(self, width: int, delimiter: str) -> None:
        self._width, self._delimiter = width, delimiter.encode()
        self._decoder = msgspec.json.Decoder(list[float | None])

    def columns(self, piece: bytes) -> list[Cells] | None:
        """The cells of each column of some whole lines; None when they are not plain."""
        if self._delimiter != b",":
            if self._delimiter == b" " or b"," in piece:
                return None
            piece = piece.replace(self._delimiter, b",")
        text = piece.replace(b"\r\n", b"\n") if b"\r" in piece else piece
        text = text if text.endswith(b"\n") else text + b"\n"
        if not self._is_regular(text):
            return None
        try:
            cells = self._decoder.decode(_as_array(text))
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        table = np.array(cells, np.float64).reshape(-1, self._width)
        return [_cells(column) for column in np.ascontiguousarray(table.T)]

    def _is_regular(self, text: bytes) -> bool:
        """Whether each line has as many cells as the table has columns."""
        data = np.frombuffer(text, np.uint8)
        marks = data[(data == _COMMA) | (data == _NEWLINE)]
        if len(marks) % self._width:
            return False
        ends = marks.reshape(-1, self._width) == _NEWLINE
        return bool(ends[:, -1].all() and not ends[:, :-1].any())


def _as_array(text: bytes) -> bytes:
    """The cells of some lines as one JSON array, null for an empty one."""
    text = b"[" + text[:-1].replace(b"\n", b",") + b"]"
    if b",," in text or text.startswith(b"[,") or text.endswith(b",]"):
        text = text.replace(b",,", b",null,").replace(b",,", b",null,")
        text = text.replace(b"[,", b"[null,").replace(b",]", b",null]")
    return text


def _cells(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Cells:
    """A column in which the empty cells are NaN (JSON has no NaN of its own)."""
    present = ~np.isnan(values)
    return Cells(None, values) if present.all() else Cells(np.flatnonzero(present), values[present])
