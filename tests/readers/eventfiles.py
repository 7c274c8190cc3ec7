"""Writes event files, a field at a time, for the tests."""

from __future__ import annotations

import struct

from tests.readers.crc import masked_crc32c


def varint(value: int) -> bytes:
    value &= 2**64 - 1
    parts = bytearray()
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def integer(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def double(number: int, value: float) -> bytes:
    return varint(number << 3 | 1) + struct.pack("<d", value)


def single(number: int, value: float) -> bytes:
    return varint(number << 3 | 5) + struct.pack("<f", value)


def message(number: int, *parts: bytes) -> bytes:
    content = b"".join(parts)
    return varint(number << 3 | 2) + varint(len(content)) + content


def record(data: bytes) -> bytes:
    """One TFRecord."""
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", masked_crc32c(length)) + data + struct.pack("<I", masked_crc32c(data))


VERSION = record(double(1, 1000.0) + message(3, b"brain.Event:2"))


def scalar(tag: str, value: float) -> bytes:
    """Summary.Value with a simple_value, as PyTorch writes it."""
    return message(1, message(1, tag.encode()), single(2, value))


def tensor(tag: str, *fields: bytes) -> bytes:
    """Summary.Value with a tensor and the scalars plugin's metadata, as TensorFlow 2 writes it."""
    metadata = message(9, message(1, message(1, b"scalars")), integer(4, 1))
    return message(1, message(1, tag.encode()), metadata, message(8, *fields))


def event(step: int, *values: bytes, wall: float = 1000.0) -> bytes:
    """One event with a summary; a step of 0 is left out, as proto3 does."""
    return record(double(1, wall) + (integer(2, step) if step else b"") + message(5, *values))
