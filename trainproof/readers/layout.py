"""The fast way to decode many JSON objects that share few sets of keys: into structs made from the keys seen so far.

A strict decoder refuses NaN literals, so in a field of floats NaN can only mean that the key was absent. Whatever does
not fit (new keys, broken text) is refused as a whole, and the caller reads it the tolerant way with the same result.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np

from trainproof.frame import Floats
from trainproof.readers.columns import Cells

#: records with more keys than this are read the tolerant way
MOST_KEYS = 512
#: literals that a strict decoder refuses, and the same as text; within a text the quotes would make it no JSON
_LITERALS = tuple(
    (colon + literal, colon + b'"' + literal + b'"')
    for colon in (b": ", b":")
    for literal in (b"NaN", b"Infinity", b"-Infinity")
)
_LARGEST = sys.float_info.max

Records = list[Any]


class Layout:
    """The keys seen so far, in the order in which records spell them, and decoders made for them."""

    def __init__(self) -> None:
        self._numeric: dict[str, bool] = {}  # key -> every value so far was a finite number
        self._decoders: tuple[Callable[[bytes], Records], Callable[[bytes], Records]] | None = None
        self._encoder = msgspec.msgpack.Encoder()
        self._body = bytearray()  # the last table: its memory is used again

    def learn(self, record: Mapping[str, object]) -> None:
        """Take up a record's keys, so that the next records like it can be decoded."""
        previous = None
        for key, value in record.items():
            if len(self._numeric) > MOST_KEYS:
                return
            number = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= _LARGEST
            if key not in self._numeric:
                self._insert(key, previous, number)
            elif self._numeric[key] and not number:
                self._numeric[key] = False
                self._decoders = None
            previous = key

    def in_order(self, cells: Mapping[str, Cells], records: Sequence[Mapping[str, object]]) -> dict[str, Cells]:
        """The cells of records in the order in which these spell their keys."""
        for record in dict(zip(map(tuple, records), records, strict=True)).values():
            self.learn(record)
        return {key: cells[key] for key in self._numeric if key in cells}

    def decode_lines(self, data: bytes) -> Records | None:
        """The records of newline-delimited objects, or None when they do not fit."""
        return self._decode(0, data)

    def decode_list(self, data: bytes) -> Records | None:
        """The records of one JSON list, or None when they do not fit."""
        return self._decode(1, data)

    def cells(self, records: Records) -> dict[str, Cells]:
        """The values of each key that any of the records has; a null is a value."""
        if all(self._numeric.values()):
            numeric = dict(zip(self._numeric, self._table(records), strict=True))
        else:
            numeric = {
                key: np.fromiter(map(attrgetter(f"f{i}"), records), np.float64, len(records))
                for i, (key, number) in enumerate(self._numeric.items())
                if number
            }
        cells = {}
        for i, key in enumerate(self._numeric):
            found = _logged(numeric[key]) if key in numeric else _given(list(map(attrgetter(f"f{i}"), records)))
            if len(found.values):
                cells[key] = found
        return cells

    def _insert(self, key: str, previous: str | None, number: bool) -> None:
        """Put a new key behind the key that it follows in its record."""
        keys = list(self._numeric.items())
        at = 0 if previous is None else list(self._numeric).index(previous) + 1
        self._numeric = dict([*keys[:at], (key, number), *keys[at:]])
        self._decoders = None

    def _decode(self, kind: int, data: bytes) -> Records | None:
        if not self._numeric or len(self._numeric) > MOST_KEYS:
            return None
        try:
            self._decoders = self._decoders or _decoders(self._numeric)
            try:
                return self._decoders[kind](data)
            except msgspec.DecodeError:
                quoted = data
                for literal, text in _LITERALS:
                    quoted = quoted.replace(literal, text)
                return self._decoders[kind](quoted)
        except (ValueError, RecursionError):  # msgspec's errors, and keys that no struct can have, are ValueErrors
            return None

    def _table(self, records: Records) -> list[Floats]:
        """The values of all-numeric records, one array of shape (records,) a key.

        In MessagePack such records have one width, so their bytes are a table: the quickest way to columns.
        """
        names = [len(msgspec.msgpack.encode(key)) for key in self._numeric]
        head = len(msgspec.msgpack.encode(dict.fromkeys(self._numeric))) - sum(names) - len(names)
        width = head + sum(names) + 9 * len(names)  # a float is a type byte and eight of value
        body = self._body
        self._encoder.encode_into(records, body)
        ends = len(body) - len(records) * width + head + np.cumsum([name + 9 for name in names])
        return [np.ndarray((len(records),), ">f8", body, end - 8, (width,)).astype(np.float64) for end in ends.tolist()]


def _logged(values: Floats) -> Cells:
    absent = np.isnan(values)
    if not absent.any():
        return Cells(None, values)
    rows = np.flatnonzero(~absent)
    return Cells(rows, values[rows])


def _given(values: list[object]) -> Cells:
    rows = [i for i, value in enumerate(values) if value is not msgspec.UNSET]
    if len(rows) == len(values):
        return Cells(None, values)
    return Cells(np.array(rows, np.int64), [values[i] for i in rows])


def _decoders(numeric: Mapping[str, bool]) -> tuple[Callable[[bytes], Records], Callable[[bytes], Records]]:
    """Decoders of lines and of a list. Raises ValueError for keys that no struct can have."""
    fields: list[tuple[str, Any, Any]] = [
        (f"f{i}", float, msgspec.field(name=key, default=float("nan")))
        if number
        else (f"f{i}", Any, msgspec.field(name=key, default=msgspec.UNSET))
        for i, (key, number) in enumerate(numeric.items())
    ]
    record: Any = msgspec.defstruct("Record", fields, forbid_unknown_fields=True, gc=False)
    return msgspec.json.Decoder(record).decode_lines, msgspec.json.Decoder(list[record]).decode
