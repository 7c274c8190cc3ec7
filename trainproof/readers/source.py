"""A log as bytes: decompressed, decoded to UTF-8 and bounded, whatever it lies in. Readers see nothing else of the file."""

from __future__ import annotations

import codecs
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Protocol

from trainproof.errors import InputError

HEAD_BYTES = 64 * 1024
CHUNK_BYTES = 1024 * 1024
#: a line longer than this is replaced by an empty one and told as dropped: no logger writes one, and none may fill the memory
MOST_LINE_BYTES = 64 * 1024 * 1024
#: one JSON document must fit into memory
MOST_DOCUMENT_BYTES = 2 * 1024**3
#: logs compress 5 to 50 times; past the first 64 MiB a ratio above this is a bomb
MOST_RATIO = 300
RATIO_FREE_BYTES = 64 * 1024 * 1024

_LFS = b"version https://git-lfs"
_BOMS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


class Stream(Protocol):
    """What readers read from: `read(n)` gives at most n bytes, none at the end."""

    def read(self, size: int = -1, /) -> bytes: ...


class LogInput:
    """One log file, or standard input. `overlong` collects the numbers of the lines that `chunks` replaced by empty ones."""

    def __init__(self, path: str, data: bytes | None = None) -> None:
        self.path = path
        self.overlong: list[int] = []
        self._spool: IO[bytes] | None = None
        if path == "-" or data is not None:
            self._spool = _spooled(sys.stdin.buffer if data is None else None, data)
        self._head: bytes | None = None

    @property
    def head(self) -> bytes:
        """The first 64 KiB. Raises InputError when the log cannot be read or is no log but a pointer to one."""
        if self._head is None:
            self._head = _read_at_least(self.open(), HEAD_BYTES)
            if self._head.startswith(_LFS):
                raise InputError(f"{self.path}: a Git LFS pointer, not the log itself; fetch it with: git lfs pull")
        return self._head

    def open(self) -> Stream:
        """A fresh stream over the whole log, decompressed and as UTF-8 where it is text. Raises InputError."""
        raw = self._raw()
        start = raw.read(6)
        raw.seek(0)
        stream: Stream = _Decompressed(raw, _decompressor(raw, start), self.path) if _is_packed(start) else raw
        return _decoded(stream)

    def _raw(self) -> IO[bytes]:
        if self._spool is not None:
            self._spool.seek(0)
            return self._spool
        path = Path(self.path)
        try:
            mode = path.stat().st_mode
            if stat.S_ISDIR(mode):
                raise InputError(f"{self.path}: a directory, expected a log file")
            if not stat.S_ISREG(mode):
                raise InputError(f"{self.path}: not a regular file; pipe it in and name it - instead")
            return path.open("rb")
        except OSError as error:
            raise InputError(f"{self.path}: {error.strerror or error}; expected a readable log file") from None
        except ValueError:
            raise InputError(f"{self.path!r}: not a path") from None

    def read(self) -> bytes:
        """The whole log in memory, for formats that are one document. Raises InputError above 2 GiB."""
        stream = self.open()
        parts, size = [], 0
        while piece := stream.read(CHUNK_BYTES):
            size += len(piece)
            if size > MOST_DOCUMENT_BYTES:
                raise InputError(f"{self.path}: more than {MOST_DOCUMENT_BYTES} bytes in one document")
            parts.append(piece)
        return b"".join(parts)

    def chunks(self) -> Iterator[bytes]:
        """The log in pieces of about 1 MiB that end at a line end (the last one may not)."""
        stream = self.open()
        self.overlong = []
        rest: list[bytes] = []  # the pieces of a line whose end has not come yet
        size, line, skipping = 0, 1, False
        while piece := stream.read(CHUNK_BYTES):
            cut = piece.rfind(b"\n") + 1
            if cut:
                head = piece[:cut]
                if skipping:  # keep the line, empty, so that numbers stay right
                    head, skipping = head[head.index(b"\n") :], False
                whole = b"".join([*rest, head])
                line += whole.count(b"\n")
                yield whole
                rest, size = [], 0
            if not skipping:
                rest.append(piece[cut:])
                size += len(piece) - cut
                if size > MOST_LINE_BYTES:
                    self.overlong.append(line)
                    rest, size, skipping = [], 0, True
        if size:
            yield b"".join(rest)

    def lines(self) -> Iterator[tuple[int, str]]:
        """(line number from 1, text without its line end); undecodable bytes are replaced."""
        number = 0
        for chunk in self.chunks():
            for line in chunk.removesuffix(b"\n").split(b"\n"):
                number += 1
                yield number, line.decode("utf-8", "replace").rstrip("\r")


def _spooled(stream: Stream | None, data: bytes | None) -> IO[bytes]:
    """Standard input (or bytes) as a file that can be read more than once; past 64 MiB it lies on disk."""
    spool: IO[bytes] = tempfile.SpooledTemporaryFile(RATIO_FREE_BYTES)  # noqa: SIM115  lives as long as the input
    if data is not None:
        spool.write(data)
    while stream is not None and (piece := stream.read(CHUNK_BYTES)):
        spool.write(piece)
    return spool


def _read_at_least(stream: Stream, size: int) -> bytes:
    """Up to `size` bytes, however small the pieces are in which they come."""
    parts: list[bytes] = []
    missing = size
    while missing > 0 and (piece := stream.read(missing)):
        parts.append(piece)
        missing -= len(piece)
    return b"".join(parts)


def _is_packed(start: bytes) -> bool:
    return start.startswith((b"\x1f\x8b", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd"))


def _decompressor(raw: IO[bytes], start: bytes) -> Any:
    if start.startswith(b"\x1f\x8b"):
        import gzip

        return gzip.GzipFile(fileobj=raw)
    if start.startswith(b"\xfd"):
        import lzma

        return lzma.LZMAFile(raw)
    import zstandard

    return zstandard.ZstdDecompressor(max_window_size=2**27).stream_reader(raw, read_across_frames=True, closefd=False)


class _Decompressed:
    """A compressed log, bounded in ratio, whose damage is one InputError."""

    def __init__(self, raw: IO[bytes], unpacked: Any, path: str) -> None:
        self._raw, self._unpacked, self._path = raw, unpacked, path
        self._given = 0

    def read(self, size: int = -1, /) -> bytes:
        try:
            data: bytes = self._unpacked.read(size)
        except EOFError:
            return b""  # a log that is still being written, or was cut: what could be unpacked counts
        except Exception as error:  # noqa: BLE001  gzip, lzma and zstandard each raise their own kinds on damage
            raise InputError(f"{self._path}: damaged compressed file ({error})") from None
        self._given += len(data)
        if self._given > RATIO_FREE_BYTES and self._given > MOST_RATIO * max(self._raw.tell(), 1):
            raise InputError(f"{self._path}: unpacks to more than {MOST_RATIO} times its size; unpack it by hand if it is a log")
        return data


def _decoded(stream: Stream) -> Stream:
    """The stream without a byte-order mark, and as UTF-8 if it was UTF-16 or UTF-32."""
    start = _read_at_least(stream, 256)
    encoding = next((name for mark, name in _BOMS if start.startswith(mark)), None) or _wide_encoding(start)
    if encoding is None:
        return _Joined(start, stream)
    if encoding == "utf-8-sig":
        return _Joined(start[3:], stream)
    return _Transcoded(_Joined(start, stream), encoding)


def _wide_encoding(start: bytes) -> str | None:
    """UTF-16 without a mark shows as text in which every second byte is 0 (a binary file has zeros in rows)."""
    even, odd = start[0:200:2], start[1:200:2]
    if len(odd) < 8:
        return None
    if odd.count(0) >= 0.9 * len(odd) and even.count(0) <= 0.1 * len(even):
        return "utf-16-le"
    if even.count(0) >= 0.9 * len(even) and odd.count(0) <= 0.1 * len(odd):
        return "utf-16-be"
    return None


class _Joined:
    """Bytes that were read ahead, then the rest of the stream."""

    def __init__(self, ahead: bytes, stream: Stream) -> None:
        self._ahead, self._stream = ahead, stream

    def read(self, size: int = -1, /) -> bytes:
        if not self._ahead:
            return self._stream.read(size)
        size = len(self._ahead) if size < 0 else size
        data, self._ahead = self._ahead[:size], self._ahead[size:]
        return data


class _Transcoded:
    """UTF-16 or UTF-32 as UTF-8; what cannot be decoded is replaced."""

    def __init__(self, stream: Stream, encoding: str) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder(encoding)("replace")

    def read(self, size: int = -1, /) -> bytes:
        while data := self._stream.read(size):
            if text := self._decoder.decode(data):
                return text.encode("utf-8", "replace")
        return b""
