"""TFRecord framing: u64 length, its masked CRC-32C, the data, their masked CRC-32C (all little-endian)."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from trainproof.readers.source import Stream

HEADER = struct.Struct("<QI")
FOOTER_BYTES = 4
#: no event is larger: images and graphs of a few megabytes are, and are passed over
MOST_RECORD_BYTES = 256 * 1024 * 1024
_MASK = 0xA282EAD8
_PIECE = 1024 * 1024


def _crc_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return tuple(table)


_TABLE = _crc_table()


def crc32c(data: bytes) -> int:
    """The Castagnoli CRC-32 (RFC 3720): crc32c(b"123456789") == 0xE3069283."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def masked_crc32c(data: bytes) -> int:
    """The CRC as TFRecord stores it."""
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + _MASK) & 0xFFFFFFFF


class Damage(NamedTuple):
    """Why the walk ended before the end of the file."""

    why: str


def records(stream: Stream) -> Iterator[bytes | Damage]:
    """The data of each record; a last Damage when the file does not end after a whole record.

    The CRC of each length is checked, since a wrong length loses everything after it. The data's own CRC is left to the caller: in
    plain Python it costs more than all the rest, and a damaged event shows in its fields.
    """
    buffer, at = b"", 0
    while True:
        while len(buffer) - at < HEADER.size:
            piece = stream.read(_PIECE)
            if not piece:
                if len(buffer) > at:
                    yield Damage("truncated tail")
                return
            buffer, at = buffer[at:] + piece, 0
        length, crc = HEADER.unpack_from(buffer, at)
        if length > MOST_RECORD_BYTES or not _length_is_sound(buffer[at : at + 8], crc):
            yield Damage("corrupt record length")
            return
        size = HEADER.size + length + FOOTER_BYTES
        if len(buffer) - at < size:
            parts, have = [buffer[at:]], len(buffer) - at
            while have < size:
                piece = stream.read(max(_PIECE, size - have))
                if not piece:
                    yield Damage("truncated tail")
                    return
                parts.append(piece)
                have += len(piece)
            buffer, at = b"".join(parts), 0
        yield buffer[at + HEADER.size : at + HEADER.size + length]
        at += size


_sound: dict[bytes, int] = {}


def _length_is_sound(length: bytes, crc: int) -> bool:
    """Lengths repeat from event to event, so the CRC of each is computed once."""
    known = _sound.get(length)
    if known is None:
        if len(_sound) > 65536:
            _sound.clear()
        known = _sound[length] = masked_crc32c(length)
    return known == crc
