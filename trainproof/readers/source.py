"""A log as bytes: decompressed, decoded to UTF-8 and bounded, whatever it lies in. Readers see nothing else of the file."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from trainproof.errors import InputError

HEAD_BYTES = 64 * 1024
CHUNK_BYTES = 1024 * 1024


class LogInput:
    """One log file (or standard input, or bytes in memory). `head` is its first 64 KiB, decoded."""

    def __init__(self, path: str, data: bytes | None = None) -> None:
        self.path = path
        self._data = data

    @property
    def head(self) -> bytes:
        with self.open() as stream:
            return stream.read(HEAD_BYTES)

    def open(self) -> BinaryIO:
        """A fresh stream over the whole log, decompressed and as UTF-8 where it is text. Raises InputError."""
        if self._data is not None:
            return io.BytesIO(self._data)
        try:
            return Path(self.path).open("rb")
        except OSError as error:
            raise InputError(f"{self.path}: {error.strerror}") from None

    def read(self) -> bytes:
        """The whole log in memory: for formats that are one JSON document. Raises InputError above the bound."""
        with self.open() as stream:
            return stream.read()

    def chunks(self) -> Iterator[bytes]:
        """The log in pieces of about 1 MiB that end at a line end (the last one may not)."""
        with self.open() as stream:
            rest = b""
            while piece := stream.read(CHUNK_BYTES):
                cut = piece.rfind(b"\n") + 1
                if cut:
                    yield rest + piece[:cut]
                    rest = piece[cut:]
                else:
                    rest += piece
            if rest:
                yield rest

    def lines(self) -> Iterator[tuple[int, str]]:
        """(line number from 1, text without its line end); undecodable bytes are replaced."""
        number = 0
        for chunk in self.chunks():
            for line in chunk.split(b"\n") if not chunk.endswith(b"\n") else chunk[:-1].split(b"\n"):
                number += 1
                yield number, line.decode("utf-8", "replace").rstrip("\r")
