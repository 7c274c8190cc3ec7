"""Paths of data in object stores, such as s3://bucket/folder: what is used of pathlib, through fsspec.

A store's own errors are told as OSError, so that they are handled as those of a disk.
"""

from __future__ import annotations

import errno
import io
import os
import posixpath
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import IO, Any

from trainproof.errors import InputError
from trainproof.preflight.extras import needed

_URL = re.compile(r"[a-z][a-z0-9+.-]+://")
#: bytes that are asked of a store at once
READ_BYTES = 1024 * 1024


class Stored:
    """A file or folder in a store. Methods are as those of pathlib.Path; each call asks the store."""

    def __init__(self, scheme: str, pure: PurePosixPath) -> None:
        self._scheme, self._pure = scheme, pure
        self.name, self.stem, self.suffix = pure.name, pure.stem, pure.suffix

    def __str__(self) -> str:
        return f"{self._scheme}{self._pure}"

    def __truediv__(self, name: str | PurePosixPath) -> Stored:
        return Stored(self._scheme, self._pure / name)

    @property
    def parent(self) -> Stored:
        return Stored(self._scheme, self._pure.parent)

    def with_suffix(self, suffix: str) -> Stored:
        return Stored(self._scheme, self._pure.with_suffix(suffix))

    def relative_to(self, folder: Stored) -> PurePosixPath:
        return self._pure.relative_to(folder._pure)

    def normal(self) -> str:
        return f"{self._scheme}{posixpath.normpath(self._pure)}"

    def is_absolute(self) -> bool:
        return True

    def is_dir(self) -> bool:
        with _errors(self):
            return bool(self._ask("isdir"))

    def is_file(self) -> bool:
        with _errors(self):
            return bool(self._ask("isfile"))

    def info(self) -> dict[str, Any]:
        with _errors(self):
            return dict(self._ask("info"))

    def iterdir(self) -> list[Stored]:
        with _errors(self):
            return [self / posixpath.basename(name.rstrip("/")) for name in self._ask("ls", detail=False)]

    def glob(self) -> list[str]:
        """What this path with wildcards names."""
        with _errors(self):
            system, path = _system(self)
            return sorted(self._named(name) for name in system.glob(path))

    def walk(self) -> Iterator[tuple[str, list[str], list[str]]]:
        """As os.walk does."""
        with _errors(self):
            system, path = _system(self)
            for root, folders, names in system.walk(path):
                yield self._named(root), folders, names

    def open(self, mode: str = "rb") -> IO[bytes]:
        with _errors(self):
            return io.BufferedReader(_Reader(self, self._ask("open", mode)), READ_BYTES)

    def read_bytes(self) -> bytes:
        with _errors(self):
            return bytes(self._ask("cat_file"))

    def read_text(self, encoding: str, errors: str) -> str:
        return self.read_bytes().decode(encoding, errors)

    def _named(self, inner: str) -> str:
        """The path that the store calls so; some stores begin all of theirs with a slash."""
        return f"{self._scheme}{inner if self._pure.is_absolute() else inner.lstrip('/')}"

    def _ask(self, what: str, *arguments: Any, **options: Any) -> Any:
        system, path = _system(self)
        return getattr(system, what)(path, *arguments, **options)


AnyPath = Path | Stored


class _Reader(io.RawIOBase):
    """A store's file, whose errors are OSError."""

    def __init__(self, path: Stored, inner: Any) -> None:
        self._path, self._inner = path, inner

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with _errors(self._path):
            data = self._inner.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = 0) -> int:
        with _errors(self._path):
            return int(self._inner.seek(offset, whence))

    def tell(self) -> int:
        return int(self._inner.tell())

    def close(self) -> None:
        self._inner.close()
        super().close()


@contextmanager
def _errors(path: Stored) -> Iterator[None]:
    try:
        yield
    except (OSError, InputError):
        raise
    except Exception as error:  # whatever a store's library raises
        raise OSError(errno.EIO, f"{type(error).__name__}: {str(error)[:100]}", str(path)) from None


def _system(path: Stored) -> tuple[Any, str]:
    """(fsspec's file system, the path in it). Raises InputError where a library is missing, or nobody knows such paths."""
    fsspec = needed("fsspec", f"{path}: object stores", "trainproof[store]")
    try:
        system, inner = fsspec.core.url_to_fs(str(path))
    except ImportError as error:  # it says which package is missing
        raise InputError(f"{path}: {str(error).splitlines()[0]}") from None
    except ValueError as error:
        raise InputError(f"{path}: {str(error).splitlines()[0]}; expected a path that fsspec knows, as s3://") from None
    return system, inner


def is_stored(path: str) -> bool:
    """Whether a path is of a store and not of this machine."""
    return _URL.match(path) is not None


def path_of(path: str) -> AnyPath:
    """The path as one that can be asked."""
    found = _URL.match(path)
    return Stored(found[0], PurePosixPath(path[found.end() :])) if found else Path(path)


def normal(path: AnyPath) -> str:
    """The path without `.` and `..`."""
    return path.normal() if isinstance(path, Stored) else os.path.normpath(path)


def walked(folder: AnyPath) -> Iterator[tuple[str, list[str], list[str]]]:
    """As os.walk does."""
    return folder.walk() if isinstance(folder, Stored) else os.walk(folder)


def lies_there(path: AnyPath) -> bool:
    """Whether it is a file. Of a store the folder is listed once: to ask for each clip would take longer than to read it."""
    try:
        return path.name in _names(path.parent.normal()) if isinstance(path, Stored) else path.is_file()
    except (OSError, ValueError):  # a name that is too long, or has a null byte
        return False


@lru_cache(maxsize=64)
def _names(folder: str) -> frozenset[str]:
    try:
        return frozenset(path.name for path in path_of(folder).iterdir())
    except OSError:
        return frozenset()


def version_of(path: str) -> tuple[int, str]:
    """(bytes of a file, what changes when it is written again)."""
    found = path_of(path)
    if isinstance(found, Stored):
        info = found.info()
        marks = (info.get(name) for name in ("ETag", "etag", "md5", "mtime", "LastModified", "updated", "created"))
        return int(info.get("size") or 0), str(next(filter(None, marks), ""))
    about = found.stat()
    return about.st_size, str(about.st_mtime_ns)
