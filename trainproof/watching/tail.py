"""The bytes that are appended to a file, each read once, whatever becomes of the file meanwhile.

Only the inode, the size and the bytes themselves are believed: modification times lie on network file systems.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple

PIECE_BYTES = 1024 * 1024
#: bytes before the place where reading stopped that have to be the same when it goes on: else the file was written anew
REMEMBERED_BYTES = 32


class Piece(NamedTuple):
    """Some bytes; `anew` when they are the first of a file that took the place of the one before."""

    data: bytes
    anew: bool = False


class Tail:
    """Follows the file at `path`, which need not exist yet. `bytes_read` counts what was read of it."""

    def __init__(self, path: str) -> None:
        self.bytes_read = 0
        self._named = Path(path)
        self._file: IO[bytes] | None = None
        self._offset = 0
        self._before = b""  # the last bytes that were read
        self._anew = False

    def poll(self) -> list[Piece]:
        """What has been appended since the last call. A file that cannot be read for now gives nothing."""
        try:
            return self._poll()
        except OSError:  # it vanished, or its server did
            self.close()
            return []

    def close(self) -> None:
        """Let go of the file; the next `poll` opens it where this one stopped."""
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
            self._file = None

    def _poll(self) -> list[Piece]:
        found: list[Piece] = []
        if self._file is not None and not self._is_current(self._file):
            found += self._rest(self._file)  # of a log that was moved away: nothing of it may be lost
            self._start_anew()
        if self._file is None:
            if not self._named.is_file():
                return found
            self._file = self._named.open("rb")  # it stays open: a log that is moved away is read to its end
        if self._was_rewritten(self._file):
            self._offset, self._before, self._anew = 0, b"", True
        return found + self._rest(self._file)

    def _start_anew(self) -> None:
        self.close()
        self._offset, self._before, self._anew = 0, b"", True

    def _is_current(self, file: IO[bytes]) -> bool:
        """Whether the open file is still the one under its name; a name that leads nowhere may be about to be given again."""
        try:
            named, own = self._named.stat(), os.fstat(file.fileno())
        except FileNotFoundError:
            return True
        return (named.st_dev, named.st_ino) == (own.st_dev, own.st_ino)

    def _was_rewritten(self, file: IO[bytes]) -> bool:
        """Whether the file is shorter than what was read of it, or holds something else there."""
        size = os.fstat(file.fileno()).st_size
        if size <= self._offset:
            return size < self._offset
        file.seek(self._offset - len(self._before))
        return file.read(len(self._before)) != self._before

    def _rest(self, file: IO[bytes]) -> list[Piece]:
        found = []
        file.seek(self._offset)
        while data := file.read(PIECE_BYTES):
            self._offset += len(data)
            self.bytes_read += len(data)
            self._before = (self._before + data)[-REMEMBERED_BYTES:]
            found.append(Piece(data, self._anew))
            self._anew = False
        return found
