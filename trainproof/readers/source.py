"""A log as bytes: decompressed, as UTF-8 and bounded, whatever it lies in. Readers see nothing else of the file."""

from __future__ import annotations

import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import numpy as np

from trainproof.errors import InputError
from trainproof.readers.streams import MOST_UNPACKED_BYTES, PIECE_BYTES, RATIO_FREE_BYTES, Stream, opened

__all__ = ["HEAD_BYTES", "MOST_LINE_BYTES", "LogInput", "Stream"]

HEAD_BYTES = 64 * 1024
#: bytes handed on at once: small enough for what is decoded from them to stay in the processor's cache
CHUNK_BYTES = 256 * 1024
#: bytes that are searched for line ends at once, so that what is compared stays in the cache too
COUNTED_BYTES = 64 * 1024
#: a longer line is replaced by an empty one and told as dropped: no logger writes one, and none may fill the memory
MOST_LINE_BYTES = 64 * 1024 * 1024
#: one JSON document must fit into memory
MOST_DOCUMENT_BYTES = 2 * 1024**3

_LFS = b"version https://git-lfs"


class LogInput:
    """One log file, standard input (path "-"), or `data` given in memory.

    It holds one stream at a time: `open` ends the one before.
    """

    def __init__(self, path: str, data: bytes | None = None) -> None:
        self.path = path
        self._overlong: list[int] = []  # offsets of the lines that `chunks` replaced by empty ones
        self._spool = _spooled(path, data) if path == "-" or data is not None else None
        self._file: IO[bytes] | None = None
        self._head: bytes | None = None

    @property
    def head(self) -> bytes:
        """The first 64 KiB. Raises InputError when the log cannot be read, is empty, or is a pointer to a log."""
        if self._head is None:
            head = self.open().read(HEAD_BYTES)
            self._end()
            if not head:
                raise InputError(f"{self.path}: empty, expected a training log")
            if head.startswith(_LFS):
                raise InputError(f"{self.path}: a Git LFS pointer, not the log; run `git lfs pull`")
            self._head = head
        return self._head

    def open(self) -> Stream:
        """A fresh stream over the whole log, decompressed and as UTF-8 where it is text. Raises InputError."""
        self._end()
        if self._spool is not None:
            self._spool.seek(0)
            return opened(self._spool, self.path)
        self._file = self.regular()
        return opened(self._file, self.path)

    def regular(self) -> IO[bytes]:
        """The open file. Raises InputError for a path that is missing, not readable, or no file."""
        return _regular_file(self.path)

    def close(self) -> None:
        """Let go of the file, and of what was kept of standard input."""
        self._end()
        if self._spool is not None:
            self._spool.close()

    def _end(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def read(self) -> bytes:
        """The whole log in memory, for formats that are one document. Raises InputError above 2 GiB."""
        stream = self.open()
        parts, size = [], 0
        while piece := stream.read(PIECE_BYTES):
            size += len(piece)
            if size > MOST_DOCUMENT_BYTES:
                raise InputError(
                    f"{self.path}: more than {MOST_DOCUMENT_BYTES >> 30} GiB in one document, expected a log"
                )
            parts.append(piece)
        self._end()
        return b"".join(parts)

    def chunks(self) -> Iterator[bytes]:
        """The log in pieces of about 256 KiB that end at a line end (the last one may not).

        A line of more than 64 MiB is replaced by an empty one, so that line numbers stay right, and noted in
        `overlong`; it is never in memory as a whole.
        """
        stream = self.open()
        self._overlong = []
        rest: list[bytes] = []  # the pieces of a line whose end has not come yet
        size, offset, skipping = 0, 0, False
        while piece := stream.read(CHUNK_BYTES):
            cut = piece.rfind(b"\n") + 1
            if cut:
                start = piece.index(b"\n") if skipping else 0
                yield b"".join([*rest, memoryview(piece)[start:cut]])
                rest, size, skipping = [], 0, False
            offset += len(piece)
            if not skipping:
                rest.append(piece[cut:])
                size += len(piece) - cut
                if size > MOST_LINE_BYTES:
                    self._overlong.append(offset - size)
                    rest, size, skipping = [], 0, True
        self._end()
        if size:
            yield b"".join(rest)

    def overlong(self) -> list[int]:
        """The numbers of the lines that `chunks` or `lines` replaced by empty ones. Reads the log again where there are any."""
        if not self._overlong:
            return []
        stream, line, done, numbers = self.open(), 1, 0, []
        for offset in self._overlong:
            while done < offset:
                piece = stream.read(min(CHUNK_BYTES, offset - done))
                line, done = line + count_lines(piece), done + len(piece)
            numbers.append(line)
        self._end()
        return numbers

    def lines(self) -> Iterator[tuple[int, str]]:
        """(line number from 1, text without its line end); undecodable bytes are replaced."""
        number = 0
        for chunk in self.chunks():
            for line in chunk.removesuffix(b"\n").split(b"\n"):
                number += 1
                yield number, line.decode("utf-8", "replace").rstrip("\r")


def _regular_file(path: str) -> IO[bytes]:
    """The open file. Raises InputError for a path that is missing, not readable, or no file."""
    try:
        mode = Path(path).stat().st_mode
        if stat.S_ISDIR(mode):
            raise InputError(f"{path}: a directory, expected a log file")
        if not stat.S_ISREG(mode):
            raise InputError(f"{path}: not a regular file; pipe it in and name it - instead")
        return Path(path).open("rb")
    except FileNotFoundError:
        raise InputError(
            f"{path}: no such file or directory; expected the path of a file, or of a folder with files"
        ) from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}; expected a readable log file") from None
    except ValueError:
        raise InputError(f"{path!r}: not a path, expected a log file") from None


def count_lines(data: bytes) -> int:
    """How many line ends there are in `data` (several times as fast as bytes.count)."""
    whole = np.frombuffer(data, np.uint8)
    starts = range(0, len(whole), COUNTED_BYTES)
    return sum(int(np.count_nonzero(whole[start : start + COUNTED_BYTES] == ord("\n"))) for start in starts)


def _spooled(path: str, data: bytes | None) -> IO[bytes]:
    """Standard input (or `data`) as a file that can be read more than once; past 64 MiB it lies on disk."""
    if data is not None:
        import io

        return io.BytesIO(data)
    import tempfile

    if sys.stdin is None:
        raise InputError(f"{path}: standard input is closed, expected a log in it")
    spool: IO[bytes] = tempfile.SpooledTemporaryFile(RATIO_FREE_BYTES)  # noqa: SIM115  lives as long as the input
    while piece := sys.stdin.buffer.read(PIECE_BYTES):
        if spool.tell() + len(piece) > MOST_UNPACKED_BYTES:
            spool.close()
            raise InputError(f"{path}: more than {MOST_UNPACKED_BYTES >> 30} GiB, expected a log")
        spool.write(piece)
    return spool
