"""TFRecord framing: u64 length, its masked CRC-32C, the data, their masked CRC-32C (all little-endian)."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from trainproof.frame import Ints
from trainproof.readers.source import Stream

HEADER = struct.Struct("<QI")
FOOTER_BYTES = 4
#: no event is larger: images and graphs of a few megabytes are, and are passed over
MOST_RECORD_BYTES = 256 * 1024 * 1024
#: places where a file may be found broken before the rest of it is given up
MOST_DAMAGES = 100
PIECE_BYTES = 4 * 1024 * 1024

#: bytes that one step of `crc32c` takes at once
_SEGMENT = 512
_MASK = 0xA282EAD8
_POLYNOMIAL = 0x82F63B78
#: fewer checksums than this at once are cheaper by rows than by columns
_FEW = 64

Bytes = NDArray[np.uint8]
Words = NDArray[np.uint32]


class Block(NamedTuple):
    """Some whole records: the bytes they lie in, where the data of each begins and how long they are, (n,) each."""

    data: bytes
    begins: Ints
    sizes: Ints


class Damage(NamedTuple):
    """A place at which the file is broken or ends too early."""

    why: str


def _position_tables() -> Words:
    """(_SEGMENT, 256): what a byte that is followed by k more bytes adds to the CRC."""
    tables = np.zeros((_SEGMENT, 256), np.uint32)
    crc: Words = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        crc = (crc >> np.uint32(1)) ^ (crc & np.uint32(1)) * np.uint32(_POLYNOMIAL)
    tables[0] = crc
    for k in range(1, _SEGMENT):
        tables[k] = (tables[k - 1] >> np.uint32(8)) ^ crc[tables[k - 1] & 0xFF]
    return tables


_TABLES = _position_tables()


def crc32c(columns: Bytes) -> Words:
    """The Castagnoli CRC-32 (RFC 3720) of n texts of one length at once.

    columns: (length, n), one text a column. The CRC is linear, so each byte's share is looked up by how many bytes
    follow it. The CRC of b"123456789" is 0xE3069283.
    """
    state = np.full(columns.shape[1], 0xFFFFFFFF, np.uint32)
    for begin in range(0, len(columns), _SEGMENT):
        state = _advance(state, columns[begin : begin + _SEGMENT])
    return ~state


def _advance(state: Words, part: Bytes) -> Words:
    """The CRC's state after the bytes of `part`: the state itself is folded into the first four of them."""
    size = len(part)
    part = part.copy()
    for i in range(min(4, size)):
        part[i] ^= (state >> np.uint32(8 * i)).astype(np.uint8)
    state = state >> np.uint32(8 * size) if size < 4 else np.zeros_like(state)
    if part.shape[1] < _FEW:
        shares: Words = np.bitwise_xor.reduce(_TABLES[np.arange(size - 1, -1, -1)[:, None], part], axis=0)
        return state ^ shares
    for i, column in enumerate(part):
        state ^= _TABLES[size - 1 - i].take(column)
    return state


def masked(crc: Words) -> Words:
    """The CRC as TFRecord stores it."""
    return ((crc >> np.uint32(15)) | (crc << np.uint32(17))) + np.uint32(_MASK)


def columns_at(data: bytes, begins: Ints, size: int) -> Bytes:
    """The `size` bytes from each of the n `begins`, as (size, n)."""
    window = np.frombuffer(data, np.uint8)
    if len(begins) == 1:  # records of many megabytes come one by one, and their indices would be eight times as large
        return window[begins[0] : begins[0] + size, None]
    return np.ascontiguousarray(sliding_window_view(window, size)[begins].T)


def stored_crc(data: bytes, at: Ints) -> Words:
    """The four bytes at each of the n positions, as (n,) numbers."""
    words: Words = np.ascontiguousarray(columns_at(data, at, FOOTER_BYTES).T).view("<u4").ravel()
    return words


def blocks(stream: Stream) -> Iterator[Block | Damage]:
    """All whole records, some thousand at a time, and the places between which they lie.

    The CRC of each length is checked here, since a wrong length loses what follows; then the next sound header is
    looked for. The CRC of the data is the caller's to check. Memory is bounded by the file and by MOST_RECORD_BYTES.
    """
    data, lost, damages, wanted = b"", False, 0, 0
    while piece := stream.read(max(PIECE_BYTES, wanted - len(data))):
        data += piece
        at = 0
        while True:
            if lost:
                at = _next_header(data, at)
                if at < 0:
                    data = data[-(HEADER.size - 1) :]
                    break
            walk = _walk(data, at)
            if walk.begins:
                begins = np.array(walk.begins, np.int64)
                yield Block(data, begins, np.diff(begins, append=walk.at + HEADER.size) - HEADER.size - FOOTER_BYTES)
            lost, wanted = not walk.sound, walk.wanted
            if walk.sound:
                data = data[walk.at :]
                break
            damages += 1
            yield Damage(
                "corrupt record" if damages < MOST_DAMAGES else "too many corrupt records; the rest was not read"
            )
            if damages == MOST_DAMAGES:
                return
            # the record before may itself have been cut short, with the next header inside it
            at = walk.begins[-1] if walk.begins else walk.at + 1
    if data and not lost:
        yield Damage("truncated tail")


class _Walk(NamedTuple):
    """Where whole records begin, and where the walk ended: at a damage, or for want of bytes (`wanted`, where it is known)."""

    begins: list[int]
    at: int
    sound: bool
    wanted: int = 0


def _walk(data: bytes, at: int) -> _Walk:
    """The whole records from `at` on."""
    begins: list[int] = []
    append, known, end = begins.append, _strides, len(data)
    while at + HEADER.size <= end:
        header = data[at : at + HEADER.size]
        stride = known.get(header) or _stride(header)
        if not stride:
            return _Walk(begins, at, sound=False)
        if at + stride > end:
            return _Walk(begins, at, sound=True, wanted=stride)
        append(at + HEADER.size)
        at += stride
    return _Walk(begins, at, sound=True)


_strides: dict[bytes, int] = {}


def _stride(header: bytes) -> int:
    """The bytes from a sound header to the next one; 0 for one whose length has not its CRC, or is not bearable.

    Lengths repeat from event to event, so each is looked at once.
    """
    size, crc = HEADER.unpack(header)
    if not _is_sound(size, crc):
        return 0
    if len(_strides) > 65536:
        _strides.clear()
    _strides[header] = HEADER.size + size + FOOTER_BYTES
    return _strides[header]


def _is_sound(size: int, crc: int) -> bool:
    """Whether a length has its CRC and is bearable."""
    if size > MOST_RECORD_BYTES:
        return False
    column = np.frombuffer(size.to_bytes(8, "little"), np.uint8)[:, None]
    return int(masked(crc32c(column))[0]) == crc


def is_header(data: bytes) -> bool:
    """Whether `data` begins with a length and its CRC."""
    return len(data) >= HEADER.size and _is_sound(*HEADER.unpack_from(data))


def _next_header(data: bytes, at: int) -> int:
    """The position of the next sound header of a record that is not empty, or -1."""
    window = np.frombuffer(data, np.uint8)[at:]
    n = len(window) - HEADER.size + 1
    if n <= 0:
        return -1
    plausible = (window[:n] | window[1 : 1 + n] | window[2 : 2 + n]) > 0
    plausible &= window[3 : 3 + n] <= MOST_RECORD_BYTES >> 24
    for i in range(4, 8):
        plausible &= window[i : i + n] == 0
    starts = at + np.flatnonzero(plausible)
    if not len(starts):
        return -1
    sound = masked(crc32c(columns_at(data, starts, 8))) == stored_crc(data, starts + 8)
    return int(starts[sound][0]) if sound.any() else -1
