"""Writes W&B data stores, a field at a time, for the tests."""

from __future__ import annotations

import json
import struct
import zlib

from tests.readers.eventfiles import integer, message

HEADER = b":W&B\xe1\xbe\x00"
BLOCK = 32768


def store(*records: bytes) -> bytes:
    """A data store: each record in one chunk, or in several where a block ends."""
    data = bytearray(HEADER)
    for record in records:
        first, rest = True, record
        while first or rest:
            room = BLOCK - len(data) % BLOCK
            if room < 7:
                data += bytes(room)
                room = BLOCK
            part, rest = rest[: room - 7], rest[room - 7 :]
            kind = (1 if not rest else 2) if first else (4 if not rest else 3)
            data += struct.pack("<IHB", zlib.crc32(bytes([kind]) + part), len(part), kind) + part
            first = False
    return bytes(data)


def item(name: str, value: object, *, nested: bool = True) -> bytes:
    """An item of a history or a config, with its value as JSON."""
    keys = [message(2, part.encode()) for part in name.split(".")] if nested else [message(1, name.encode())]
    return message(1, *keys, message(16, json.dumps(value).encode()))


def history(step: int, /, **values: object) -> bytes:
    """A history record; "." in a name parts nested keys, "__" stands for "/"."""
    items = [item(name.replace("__", "/"), value) for name, value in values.items()]
    return message(2, *items, message(2, integer(1, step) if step else b""))


def run(**config: object) -> bytes:
    """A run record with a configuration."""
    items = [item(name, value, nested=False) for name, value in config.items()]
    return message(17, message(1, b"abc"), message(4, *items))


def exit_code(code: int) -> bytes:
    return message(18, integer(1, code) if code else b"", integer(2, 100))
