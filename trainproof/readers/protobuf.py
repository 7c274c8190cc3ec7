"""As much of the protocol-buffer wire format as event files need."""

from __future__ import annotations

from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


class WireError(ValueError):
    """The bytes are no message: cut off, or of an unknown wire type."""


def varint(data: bytes, at: int) -> tuple[int, int]:
    """The varint at `at` and the position after it. Raises WireError."""
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise WireError("cut varint")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def fields(data: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """(field number, wire type, value): an int for varints, else the raw bytes. Raises WireError."""
    at, end = 0, len(data)
    while at < end:
        key, at = varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == VARINT:
            value, at = varint(data, at)
            yield number, kind, value
            continue
        if kind == BYTES:
            size, at = varint(data, at)
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
        else:
            raise WireError(f"wire type {kind}")
        if at + size > end:
            raise WireError("cut field")
        yield number, kind, data[at : at + size]
        at += size
