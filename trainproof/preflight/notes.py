"""What is there at places, for every check that names them: in files when there is much of it."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator

import numpy as np

from trainproof.preflight import spill
from trainproof.preflight.spill import Column, Columns, joined

#: a place, a value, and what is there
Note = tuple[int, float, str]
#: notes that are written or read together
SOME = 10_000
#: of the room for columns in memory, notes take one part of so many
SHARE = 8


class Notes:
    """Notes by the code of a check. First all are added, then they are read."""

    def __init__(self) -> None:
        self._columns = Columns(spill.MOST_BYTES // SHARE)
        self._table: dict[str, Column] | None = None
        self._numbers: dict[str, int] = {}
        self._begin = 0
        self._clear()

    def _clear(self) -> None:
        self._code, self._place, self._end = array("i"), array("q"), array("q")
        self._value, self._text = array("d"), bytearray()

    def add(self, code: str, notes: Iterable[Note]) -> None:
        """Add notes to those of a code. Raises InputError when a disk is full."""
        number = self._numbers.setdefault(code, len(self._numbers))
        for place, value, text in notes:
            self._code.append(number)
            self._place.append(place)
            self._value.append(value)
            self._text += text.encode("utf-8", "surrogatepass")
            self._end.append(self._begin + len(self._text))
            if len(self._code) >= SOME:
                self._flush()

    def _flush(self) -> None:
        self._begin += len(self._text)
        columns = {"code": self._code, "place": self._place, "value": self._value, "end": self._end, "text": self._text}
        for name, values in columns.items():
            self._columns.add("notes", name, np.array(values))
        self._clear()

    def of(self, code: str) -> Iterator[Note]:
        """The notes of a code, by their places; of one place, as they were added."""
        if code not in self._numbers:
            return
        if self._table is None:
            self._flush()
            self._table = {name: joined(pieces) for name, pieces in self._columns.tables()["notes"].items()}
        table, text = self._table, self._table["text"].data
        mine = _equal(table["code"], self._numbers[code])
        mine = mine[np.argsort(table["place"][mine], kind="stable")]
        for start in range(0, len(mine), SOME):
            some = mine[start : start + SOME]
            begin = np.where(some > 0, table["end"][some - 1], 0)
            columns = (table["place"][some], table["value"][some], begin, table["end"][some])
            for place, value, first, last in zip(*(column.tolist() for column in columns), strict=True):
                yield place, value, str(text[first:last], "utf-8", "surrogatepass")


def _equal(values: Column, wanted: int) -> spill.Indices:
    """Indices of the values that are the one that is wanted."""
    starts = range(0, len(values), spill.AT_ONCE)
    found = [np.flatnonzero(values[start : start + spill.AT_ONCE] == wanted) + start for start in starts]
    return np.concatenate(found) if found else np.zeros(0, np.int64)
