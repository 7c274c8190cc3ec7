"""A share of the work as a file, and files as one: for any scheduler that can run a command on several machines.

A partial is a NumPy archive without pickles: places, tables and a JSON header. Merged, it gives the same bytes as one process does.
"""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import msgspec
import numpy as np

from trainproof.errors import InputError, UsageError
from trainproof.preflight.found import Example, Partial
from trainproof.preflight.inputs import Plan
from trainproof.preflight.spill import joined

VERSION = 2


class Header(msgspec.Struct, frozen=True):
    """What a partial is of. `done` are the pieces of the plan that are in it."""

    version: int
    paths: tuple[str, ...]
    plan: Plan
    done: tuple[int, ...]
    rows: int
    counters: dict[str, dict[str, int]]
    examples: dict[str, list[tuple[int, float | None, str]]]


def share_of(plan: Plan, shard: str) -> list[int]:
    """The pieces of shard "i/n", i from 1. Raises UsageError."""
    index, _, count = shard.partition("/")
    if not (index.isdecimal() and count.isdecimal() and 1 <= int(index) <= int(count)):
        raise UsageError(f"--shard {shard}: expected i/n, such as 1/4 to 4/4")
    return list(range(int(index) - 1, len(plan.pieces), int(count)))


def packed(paths: tuple[str, ...], plan: Plan, done: Sequence[int], part: Partial) -> bytes:
    """A partial as the bytes of its file."""
    examples = {
        code: [(e.place, None if e.value != e.value else e.value, e.excerpt) for e in found]
        for code, found in part.examples.items()
    }
    header = Header(
        VERSION, paths, plan, tuple(done), part.rows, {n: dict(c) for n, c in part.counters.items()}, examples
    )
    arrays: dict[str, Any] = {f"places/{code}": np.array(places, np.int64) for code, places in part.places.items()}
    for name, columns in part.tables.items():
        arrays |= {f"table/{name}/{column}": joined(pieces) for column, pieces in columns.items()}
    archive = io.BytesIO()
    text = json.dumps(msgspec.to_builtins(header))  # in ASCII: half a surrogate pair in an excerpt survives
    np.savez_compressed(archive, header=np.frombuffer(text.encode(), np.uint8), **arrays)
    return archive.getvalue()


def load(path: str) -> tuple[Header, Partial]:
    """Read the file of a partial. Raises InputError for what is none."""
    with _opened(path) as file:
        return _read(file, path)


def unpacked(content: bytes, path: str) -> tuple[Header, Partial]:
    """The partial that `packed` made bytes of. path: as errors name it. Raises InputError for what is none."""
    return _read(io.BytesIO(content), path)


def load_all(paths: Sequence[str]) -> tuple[tuple[str, ...], Plan, Iterator[Partial]]:
    """(the inputs, the plan, all parts, each read when it is its turn). Raises InputError when they are not of one plan, or do not make it
    whole."""
    first = _header(paths[0])
    done = set(first.done)
    for path in paths[1:]:
        header = _header(path)
        if header.plan != first.plan or header.paths != first.paths:
            raise InputError(f"{path}: of other data or options than {paths[0]}")
        if not done.isdisjoint(header.done):
            raise InputError(f"{path}: has pieces that another partial has too; name each shard once")
        done.update(header.done)
    missing = len(first.plan.pieces) - len(done)
    if missing:
        raise InputError(f"{missing} of {len(first.plan.pieces)} pieces are in none of the partials; name all shards")
    return first.paths, first.plan, (load(path)[1] for path in paths)


def _header(path: str) -> Header:
    with _opened(path) as file, _archive(file, path) as (header, _):
        return header


def _opened(path: str) -> IO[bytes]:
    try:
        return Path(path).open("rb")
    except OSError as error:
        what = "no such file" if isinstance(error, FileNotFoundError) else f"cannot be read ({error.strerror})"
        raise InputError(f"{path}: {what}; expected a partial of `trainproof data --shard`") from None


@contextmanager
def _archive(file: IO[bytes], path: str) -> Iterator[tuple[Header, Any]]:
    """The header of a partial, and its arrays, which are read when they are asked for."""
    try:
        with np.load(file, allow_pickle=False) as archive:
            header = msgspec.convert(json.loads(archive["header"].tobytes()), Header)
            if header.version != VERSION:
                raise InputError(f"{path}: a partial of version {header.version}, expected {VERSION}")
            yield header, archive
    except (OSError, TypeError, ValueError, KeyError, EOFError, RecursionError, zipfile.BadZipFile, zlib.error):
        raise InputError(
            f"{path}: no partial; expected a file that `trainproof data --shard I/N --partial FILE` wrote"
        ) from None


def _read(file: IO[bytes], path: str) -> tuple[Header, Partial]:
    with _archive(file, path) as (header, archive):
        part = Partial(header.plan.options.keep)
        for name in archive.files:
            kind, _, rest = name.partition("/")
            if kind == "places":
                part.places[rest] = array("q", archive[name].astype(np.int64).tobytes())
            elif kind == "table":
                table, _, column = rest.partition("/")
                part.tables.setdefault(table, {})[column] = [archive[name]]
    part.rows = header.rows
    part.counters = {name: Counter(counts) for name, counts in header.counters.items()}
    part.examples = {
        code: [Example(place, float("nan") if value is None else value, excerpt) for place, value, excerpt in found]
        for code, found in header.examples.items()
    }
    return header, part
