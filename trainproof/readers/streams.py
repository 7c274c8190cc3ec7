"""Byte streams under a log: bounded decompression, and UTF-16 and UTF-32 as UTF-8. Content decides, never the name."""

from __future__ import annotations

import codecs
from typing import IO, Any, Protocol

from trainproof.errors import InputError

PIECE_BYTES = 1024 * 1024
#: no log is larger: 100 million records of 160 bytes
MOST_UNPACKED_BYTES = 16 * 1024**3
#: logs compress 5 to 50 times; past the first 64 MiB a ratio above this is a bomb
MOST_RATIO = 300
RATIO_FREE_BYTES = 64 * 1024 * 1024
#: a decompressor may not ask for a larger dictionary (`xz -9` uses 64 MiB, `zstd --ultra --long=27` uses 128 MiB)
MOST_DICTIONARY_BYTES = 128 * 1024 * 1024

_GZIP, _XZ, _ZSTD = b"\x1f\x8b\x08", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd"
#: how many of the first bytes are looked at to tell the encoding
_PROBED_BYTES = 256
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
#: encoding -> bytes a character, and which of them is not 0 in a text of ASCII characters
_WIDE = {"utf-32-le": (4, 0), "utf-32-be": (4, 3), "utf-16-le": (2, 0), "utf-16-be": (2, 1)}


class Stream(Protocol):
    """What readers read from: `read(n)` gives n bytes, fewer at the end (or of a transcoded text), none past it."""

    def read(self, size: int, /) -> bytes: ...


def opened(raw: IO[bytes], path: str) -> Stream:
    """The bytes of a log, decompressed, without byte-order mark, and as UTF-8 if they were UTF-16 or UTF-32."""
    start = raw.read(6)
    raw.seek(0)
    unpacked = _unpacker(raw, start)
    stream: Stream = raw if unpacked is None else _Decompressed(raw, unpacked, path)
    ahead = stream.read(_PROBED_BYTES)
    mark, encoding = _encoding(ahead)
    if encoding == "utf-8":
        return _Joined(ahead[len(mark) :], stream)
    return _Transcoded(_Joined(ahead, stream), encoding)


def is_plain(start: bytes) -> bool:
    """Whether the bytes of a log that begins with `start` are read as they are."""
    packed = start.startswith((_GZIP, _XZ, _ZSTD))
    return not packed and _encoding(start[:_PROBED_BYTES]) == (b"", "utf-8")


def _unpacker(raw: IO[bytes], start: bytes) -> Any:
    """The decompressor that the first bytes ask for, or None."""
    if start.startswith(_GZIP):
        import gzip

        return gzip.GzipFile(fileobj=raw, mode="rb")
    if start.startswith(_XZ):
        return _Xz(raw)
    if start.startswith(_ZSTD):
        import zstandard

        unpacker = zstandard.ZstdDecompressor(max_window_size=MOST_DICTIONARY_BYTES)
        return unpacker.stream_reader(raw, read_across_frames=True, closefd=False)
    return None


class _Xz:
    """An .xz file of one or more streams; lzma.LZMAFile does not bound the memory that a file may ask for."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw = raw
        self._unpacker = self._fresh()

    def _fresh(self) -> Any:
        import lzma

        return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MOST_DICTIONARY_BYTES + 1024 * 1024)

    def read1(self, size: int) -> bytes:
        while True:
            packed = b""
            if self._unpacker.eof:
                packed = (self._unpacker.unused_data or self._raw.read(PIECE_BYTES)).lstrip(
                    b"\0"
                )  # padding between streams
                if not packed:
                    return b""
                self._unpacker = self._fresh()
            elif self._unpacker.needs_input:
                packed = self._raw.read(PIECE_BYTES)
                if not packed:
                    raise EOFError
            data: bytes = self._unpacker.decompress(packed, size)
            if data:
                return data


class _Decompressed:
    """A compressed log, bounded in size and ratio. One that was cut, or still grows, ends early."""

    def __init__(self, raw: IO[bytes], unpacked: Any, path: str) -> None:
        self._raw, self._unpacked, self._path = raw, unpacked, path
        self._given = 0

    def read(self, size: int, /) -> bytes:
        parts: list[bytes] = []
        missing = size
        while missing > 0 and (data := self._read1(missing)):
            parts.append(data)
            missing -= len(data)
        self._given += size - missing
        if self._given > RATIO_FREE_BYTES and self._given > MOST_RATIO * self._raw.tell():
            raise InputError(
                f"{self._path}: unpacks to more than {MOST_RATIO} times its size; unpack it yourself if it is a log"
            )
        if self._given > MOST_UNPACKED_BYTES:
            raise InputError(f"{self._path}: unpacks to more than {MOST_UNPACKED_BYTES >> 30} GiB, expected a log")
        return b"".join(parts)

    def _read1(self, size: int) -> bytes:
        try:
            data: bytes = self._unpacked.read1(size)
        except EOFError:
            return b""
        except Exception as error:  # gzip, zlib, lzma and zstandard each raise their own kinds on damage
            raise InputError(f"{self._path}: damaged compressed file ({error})") from None
        return data


def _encoding(start: bytes) -> tuple[bytes, str]:
    """The byte-order mark and the encoding of what begins with `start`; UTF-8 for all that is not UTF-16 or UTF-32."""
    for mark, encoding in _MARKS:
        if start.startswith(mark) and "\0" not in start[: len(start) // 4 * 4].decode(encoding, "replace"):
            return mark, encoding
    return b"", next((encoding for encoding, layout in _WIDE.items() if _looks_wide(start, *layout)), "utf-8")


def _looks_wide(start: bytes, width: int, low: int) -> bool:
    """UTF-16 and UTF-32 without a mark: text in which 1 of 2 or 3 of 4 bytes are 0 (binary files: zeros in rows)."""
    characters = len(start) // width
    if characters < 8:
        return False
    places = [start[i : characters * width : width] for i in range(width)]
    zeros = [place.count(0) / characters for place in places]
    return zeros[low] == 0 and all(share >= 0.9 for i, share in enumerate(zeros) if i != low)


class _Joined:
    """Bytes that were read ahead, then the rest of the stream."""

    def __init__(self, ahead: bytes, stream: Stream) -> None:
        self._ahead, self._stream = ahead, stream

    def read(self, size: int, /) -> bytes:
        if not self._ahead:
            return self._stream.read(size)
        data, self._ahead = self._ahead[:size], self._ahead[size:]
        return data + self._stream.read(size - len(data)) if len(data) < size else data


class _Transcoded:
    """UTF-16 or UTF-32 as UTF-8; what cannot be decoded is replaced."""

    def __init__(self, stream: Stream, encoding: str) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder(encoding)("replace")

    def read(self, size: int, /) -> bytes:
        while data := self._stream.read(size):
            if text := self._decoder.decode(data):
                return text.encode("utf-8", "replace")
        return b""
