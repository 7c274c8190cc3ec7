"""Zip archives as torch writes them: records that are stored, each once, none over another. Nothing is ever unpacked to disk."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Iterable
from typing import BinaryIO, NamedTuple

from trainproof.errors import InputError

#: bytes of an archive's directory: torch writes about 100 a record
MOST_DIRECTORY = 64 << 20
_END, _END64 = b"PK\x05\x06", b"PK\x06\x06"
_LOCAL = struct.Struct("<4s22xHH")  # signature, ..., length of the name, length of the extra field


class Record(NamedTuple):
    """One record of an archive: where its bytes are in the file, how many, and their CRC-32."""

    offset: int
    size: int
    crc: int


class Window(io.RawIOBase):
    """A part of a file, read as a file of its own: archives in archives."""

    def __init__(self, file: BinaryIO, start: int, size: int) -> None:
        self._file, self._start, self._size, self._at = file, start, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise OSError("before the beginning")
        self._at = base + offset
        return self._at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # every caller gives a memoryview
        count = max(0, min(len(buffer), self._size - self._at))
        self._file.seek(self._start + self._at)
        data = self._file.read(count)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


def records(file: BinaryIO, start: int, size: int) -> dict[str, Record]:
    """The records of the archive in `size` bytes of a file from `start`, by name; offsets are those in the file.

    Raises InputError (without a path) for an archive that is cut, whose directory lies, or that torch does not write: compressed or
    overlapping records, a name twice, names that lead out of a folder.
    """
    window = Window(file, start, size)
    _check_directory(window, size)
    try:
        with zipfile.ZipFile(io.BufferedReader(window)) as archive:
            entries = archive.infolist()
    except (zipfile.BadZipFile, ValueError, struct.error, OSError, OverflowError, NotImplementedError, UnicodeError):
        raise InputError("a cut or broken zip archive: its directory cannot be read") from None
    found: dict[str, Record] = {}
    for entry in entries:
        if entry.filename in found:
            raise InputError(f"an archive with the record {entry.filename!r} twice; refused")
        found[entry.filename] = _record(window, entry, start, size)
    _check_apart(found.values())
    return found


def _check_directory(window: Window, size: int) -> None:
    """Raises InputError for an archive without the end of its directory, or with a directory over the bound."""
    tail_size = min(size, (1 << 16) + 22 + 76)
    window.seek(size - tail_size)
    tail = window.read(tail_size) or b""
    at = tail.rfind(_END)
    if at < 0 or len(tail) - at < 22:
        raise InputError("a cut zip archive: the directory at its end is missing")
    directory = struct.unpack_from("<I", tail, at + 12)[0]
    at64 = tail.rfind(_END64, 0, at)
    if directory == 0xFFFFFFFF and at64 >= 0 and len(tail) - at64 >= 56:
        directory = struct.unpack_from("<Q", tail, at64 + 40)[0]
    if directory > min(size, MOST_DIRECTORY):
        raise InputError("a zip archive whose directory is larger than the archive, or than any checkpoint's; refused")


def _record(window: Window, entry: zipfile.ZipInfo, start: int, size: int) -> Record:
    name = entry.filename
    if name.startswith("/") or "\\" in name or ".." in name.split("/") or ":" in name.split("/")[0]:
        raise InputError(f"an archive with the record {name[:80]!r}, whose name leads out of its folder; refused")
    if entry.compress_type != zipfile.ZIP_STORED or entry.compress_size != entry.file_size:
        raise InputError(
            f"an archive with the compressed record {name[:80]!r}; torch stores records as they are; refused"
        )
    window.seek(entry.header_offset)
    head = window.read(30) or b""
    if len(head) < 30 or not head.startswith(b"PK\x03\x04"):
        raise InputError(f"a broken archive: there is no record where its directory says that {name[:80]!r} is")
    _, name_size, extra_size = _LOCAL.unpack(head)
    offset = entry.header_offset + 30 + name_size + extra_size
    if offset + entry.file_size > size:
        raise InputError(f"a cut archive: the record {name[:80]!r} ends after the file does")
    return Record(start + offset, entry.file_size, entry.CRC)


def _check_apart(found: Iterable[Record]) -> None:
    end = 0
    for record in sorted(found):
        if record.offset < end:
            raise InputError("an archive with records that lie over each other; refused")
        end = record.offset + record.size
