"""As much of the protocol-buffer wire format as event files need."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_SIZES = {FIXED64: 8, FIXED32: 4}


class WireError(ValueError):
    """The bytes are no message: cut off, or of an unknown wire type."""


class Field(NamedTuple):
    """One field of a message: its number, its wire type, and where its value begins and ends."""

    number: int
    kind: int
    begin: int
    end: int


def varint(data: bytes, at: int, end: int | None = None) -> tuple[int, int]:
    """The varint at `at` and the position after it. Raises WireError."""
    end = len(data) if end is None else end
    value = shift = 0
    while at < end and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise WireError("cut varint")


def fields(data: bytes, begin: int = 0, end: int | None = None) -> Iterator[Field]:
    """The fields of the message in data[begin:end], in order. Raises WireError."""
    at = begin
    end = len(data) if end is None else end
    while at < end:
        key, at = varint(data, at, end)
        number, kind = key >> 3, key & 7
        if kind == VARINT:
            start = at
            _, at = varint(data, at, end)
        else:
            if kind == BYTES:
                size, start = varint(data, at, end)
            elif kind in _SIZES:
                size, start = _SIZES[kind], at
            else:
                raise WireError(f"wire type {kind}")
            at = start + size
            if at > end:
                raise WireError("cut field")
        yield Field(number, kind, start, at)


def signed(value: int) -> int:
    """A varint as the int64 that it encodes."""
    value &= 2**64 - 1
    return value - 2**64 if value >= 2**63 else value
