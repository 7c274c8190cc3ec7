"""What grows with the data: columns that go to files when they are large, and work on them in groups that fit into memory.

Columns in files are mapped: the system keeps of them in memory what it can, and drops it when others need the room.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from trainproof.errors import InputError

#: bytes of columns that wait in memory
MOST_BYTES = 256 * 1024 * 1024
#: values that are sorted at once
AT_ONCE = 4 * 1024 * 1024

Column = NDArray[Any]
Indices = NDArray[np.int64]


class Columns:
    """The columns of named tables, to which rows are added. most: bytes that wait in memory."""

    def __init__(self, most: int | None = None) -> None:
        self._most = MOST_BYTES if most is None else most
        self._waiting: dict[tuple[str, str], list[Column]] = {}
        self._files: dict[tuple[str, str], IO[bytes]] = {}
        self._forms: dict[tuple[str, str], Column] = {}
        self._bytes = 0

    def add(self, table: str, column: str, values: Column) -> None:
        """Add rows to a column. Raises InputError when a disk is full."""
        self._waiting.setdefault((table, column), []).append(values)
        self._bytes += values.nbytes
        if self._bytes > self._most:
            self._write()

    def tables(self) -> dict[str, dict[str, list[Column]]]:
        """Table -> column -> its pieces; one that is mapped where there are files."""
        if self._files:
            self._write()
        tables: dict[str, dict[str, list[Column]]] = {}
        for table, column in self._forms if self._files else self._waiting:
            pieces = [self._mapped((table, column))] if self._files else self._waiting[table, column]
            tables.setdefault(table, {})[column] = pieces
        return tables

    def _write(self) -> None:
        try:
            for key, pieces in self._waiting.items():
                if key not in self._files:
                    self._files[key] = tempfile.TemporaryFile()  # noqa: SIM115  closed when it is mapped
                    self._forms[key] = pieces[0][:0]
                for piece in pieces:
                    self._files[key].write(np.ascontiguousarray(piece).data)
        except OSError as error:
            raise InputError(f"{tempfile.gettempdir()}: {error.strerror}; name a folder with room by TMPDIR") from None
        self._waiting, self._bytes = {}, 0

    def _mapped(self, key: tuple[str, str]) -> Column:
        file, form = self._files[key], self._forms[key]
        with file:  # what is mapped outlives it
            file.flush()
            rows = file.tell() // (form.itemsize * math.prod(form.shape[1:]))
            return np.memmap(file, form.dtype, "r", shape=(rows, *form.shape[1:])) if rows else form


def joined(pieces: list[Column]) -> Column:
    """The pieces of a column as one; a copy only where there are several."""
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


def groups(values: Column) -> Iterator[Indices]:
    """Indices of the values, in order within groups of about AT_ONCE; equal values are in one. values: hashes of 63 bits or more."""
    count = 1 + len(values) // AT_ONCE
    for group in range(count):
        mine = [
            np.flatnonzero((values[start : start + AT_ONCE] >> 40) % count == group) + start
            for start in range(0, len(values), AT_ONCE)
        ]
        yield np.concatenate(mine) if mine else np.zeros(0, np.int64)


def repeats(values: Column) -> tuple[Indices, Indices]:
    """(index of every value that came before, index of its first appearance), in order."""
    again, chiefs = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for mine in groups(values):
        some = values[mine]
        ordered = np.sort(some)
        twice = ordered[1:][ordered[1:] == ordered[:-1]]  # few, as a rule
        if not len(twice):
            continue
        mine = mine[twice[np.minimum(np.searchsorted(twice, some), len(twice) - 1)] == some]
        _, first, inverse = np.unique(values[mine], return_index=True, return_inverse=True)
        chief = first[inverse]
        later = np.flatnonzero(chief != np.arange(len(mine)))
        again.append(mine[later])
        chiefs.append(mine[chief[later]])
    found, before = np.concatenate(again), np.concatenate(chiefs)
    order = np.argsort(found)
    return found[order], before[order]


def firsts(values: Column) -> Indices:
    """Indices of the values that did not come before, in order."""
    once = np.ones(len(values), bool)
    once[repeats(values)[0]] = False
    return np.flatnonzero(once)


def are_among(wanted: Column, values: Column) -> NDArray[np.bool_]:
    """Which of the wanted, that are few, are among the values."""
    ordered = np.unique(wanted)
    seen = np.zeros(len(ordered), bool)
    for start in range(0, len(values) if len(ordered) else 0, AT_ONCE):
        some = values[start : start + AT_ONCE]
        at = np.minimum(np.searchsorted(ordered, some), len(ordered) - 1)
        seen[at[ordered[at] == some]] = True
    return np.asarray(seen[np.searchsorted(ordered, wanted)], bool)
