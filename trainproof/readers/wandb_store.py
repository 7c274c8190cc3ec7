"""W&B's data store: 7 bytes of header, then a log as LevelDB writes it, in blocks of 32 KiB.

A record lies in one or more chunks: CRC-32 of kind and data (4 bytes), length (2), kind (1), data. A chunk does not cross
the end of a block; fewer than 7 bytes there are padding.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from trainproof.readers.source import Stream

HEADER = b":W&B\xe1\xbe\x00"
BLOCK_BYTES = 32 * 1024
#: a history record is a few kilobytes; larger ones hold tables and are passed over
MOST_RECORD_BYTES = 64 * 1024 * 1024

_CHUNK = struct.Struct("<IHB")
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_CRC_OF_KIND = {kind: zlib.crc32(bytes([kind])) for kind in (_FULL, _FIRST, _MIDDLE, _LAST)}


class Damage(NamedTuple):
    """A place at which records are lost, and why."""

    why: str


class _Chunk(NamedTuple):
    """A part of a record."""

    kind: int
    data: bytes


def records(stream: Stream) -> Iterator[bytes | Damage]:
    """The records of a data store, and the places between which some are lost. Memory is bounded by MOST_RECORD_BYTES."""
    parts: list[bytes] | None = None  # of a record whose last chunk has not come yet
    size = 0
    for chunk in _chunks(stream):
        if isinstance(chunk, Damage):
            parts = None
            yield chunk
            continue
        if chunk.kind in (_FULL, _FIRST):
            if parts is not None:
                yield Damage("record without an end")
            parts, size = [], 0
        if parts is None:
            continue  # what is left of a record that was damaged
        parts.append(chunk.data)
        size += len(chunk.data)
        if size > MOST_RECORD_BYTES:
            parts = None
            yield Damage(f"record of more than {MOST_RECORD_BYTES >> 20} MiB")
        elif chunk.kind in (_FULL, _LAST):
            yield b"".join(parts)
            parts = None
    if parts is not None:
        yield Damage("truncated tail")


def _chunks(stream: Stream) -> Iterator[_Chunk | Damage]:
    """The sound chunks. Where one is broken, its block is given up: its length cannot be trusted."""
    at = len(HEADER)
    while block := stream.read(BLOCK_BYTES):
        while at + _CHUNK.size <= len(block):
            crc, size, kind = _CHUNK.unpack_from(block, at)
            data = block[at + _CHUNK.size : at + _CHUNK.size + size]
            if not (crc or size or kind):
                break  # room that was reserved and not written
            if len(data) < size and len(block) < BLOCK_BYTES:
                yield Damage("truncated tail")
                return
            if kind not in _CRC_OF_KIND or zlib.crc32(data, _CRC_OF_KIND[kind]) != crc:
                yield Damage("corrupt block")
                break
            yield _Chunk(kind, data)
            at += _CHUNK.size + size
        at = 0
