"""From what the user named to runs: files, globs, directories, standard input."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from trainproof.errors import FormatError, InputError, TrainproofError
from trainproof.facts import Facts
from trainproof.frame import Frame, Source
from trainproof.readers.base import Reader, reader_for, recognise, sniff
from trainproof.readers.beside import facts_beside
from trainproof.readers.builder import FrameBuilder
from trainproof.readers.source import LogInput

#: formats whose files in one folder together are one run
JOINED_FORMATS = frozenset({"tensorboard"})
#: folders that hold no logs of the user's
_PASSED_FOLDERS = frozenset({".git", ".venv", "node_modules", "__pycache__", ".trainproof", "site-packages"})


class Found(NamedTuple):
    """One log to read: the path shown, its files (several where a format spreads a run over them), and its reader."""

    path: str
    files: tuple[str, ...]
    reader: Reader
    named: bool  # by the user, rather than found in a directory


class Unread(NamedTuple):
    """An input that could not be read, and why, in one line."""

    path: str
    why: str
    named: bool


def read_path(
    path: str, *, format_name: str | None = None, mapping: Mapping[str, str] | None = None, facts: Facts | None = None
) -> list[Frame]:
    """Every run of one input. Raises InputError or FormatError when there is nothing to read in it."""
    frames: list[Frame] = []
    problems: list[Unread] = []
    for result in read_inputs([path], format_name=format_name, mapping=mapping, facts=facts):
        if isinstance(result, Unread):
            problems.append(result)
        else:
            frames += result
    if not frames:
        raise FormatError(problems[0].why if problems else f"{path}: no training log in it")
    return frames


def read_inputs(
    paths: list[str],
    *,
    format_name: str | None = None,
    mapping: Mapping[str, str] | None = None,
    facts: Facts | None = None,
) -> Iterator[list[Frame] | Unread]:
    """The runs of each log that the inputs hold, and what could not be read. Raises UsageError for an unknown format or name."""
    forced = reader_for(format_name) if format_name else None
    seen: set[str] = set()
    for path in paths:
        for found in find(path, forced):
            if isinstance(found, Unread):
                yield found
                continue
            key = found.path if found.path == "-" else os.path.realpath(found.files[0])
            if key not in seen:
                seen.add(key)
                yield _read(found, mapping, facts)


def find(path: str, forced: Reader | None = None) -> Iterator[Found | Unread]:
    """The logs that one input names, in order."""
    if path == "-":
        log = LogInput("-")
        yield from _named_log(log, forced)
        return
    if os.path.isdir(path):
        found = list(_in_folder(path, forced))
        yield from found or [Unread(path, f"{path}: no training log below this directory", True)]
        return
    if not os.path.lexists(path) and glob.has_magic(path):
        matches = sorted(glob.glob(path, recursive=True))
        if not matches:
            yield Unread(path, f"{path}: no file matches", True)
        for match in matches:
            yield from find(match, forced)
        return
    yield from _named_log(LogInput(path), forced)


def _named_log(log: LogInput, forced: Reader | None) -> Iterator[Found | Unread]:
    try:
        log.head  # noqa: B018  raises what is wrong with the file, whatever its format
        _opened[log.path] = log
        yield Found(log.path, (log.path,), forced or recognise(log), True)
    except (InputError, FormatError) as error:
        yield Unread(log.path, str(error), True)


_opened: dict[str, LogInput] = {}


def _in_folder(folder: str, forced: Reader | None) -> Iterator[Found | Unread]:
    """Every log below a folder, sorted by path; links to folders are not followed, so loops cannot trap it."""
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in _PASSED_FOLDERS)
        joined: dict[str, list[str]] = {}
        readers: dict[str, Reader] = {}
        for name in sorted(names):
            path = os.path.join(root, name)
            reader = forced or _claimed_by(path)
            if reader is None:
                continue
            if reader.name in JOINED_FORMATS:
                joined.setdefault(reader.name, []).append(path)
                readers[reader.name] = reader
            else:
                yield Found(path, (path,), reader, False)
        for format_name, files in joined.items():
            yield Found(files[0] if len(files) == 1 else root, tuple(files), readers[format_name], False)


def _claimed_by(path: str) -> Reader | None:
    """The reader that recognises a file met in a folder; anything unreadable is none of ours."""
    try:
        return sniff(LogInput(path).head)
    except TrainproofError:
        return None


def _read(found: Found, mapping: Mapping[str, str] | None, facts: Facts | None) -> list[Frame] | Unread:
    """The runs of one log."""
    out = FrameBuilder(mapping)
    try:
        for file in found.files:
            log = _opened.pop(file, None) or LogInput(file)
            found.reader.read(log, out)
            for line in log.overlong:
                out.drop(line, "a line of more than 64 MiB")
        beside = facts_beside(Path(found.files[0])) if found.path != "-" else Facts()
        known = (facts or Facts()).merged(out.facts).merged(beside)
        return out.build(Source(found.path, found.reader.name), known)
    except (InputError, FormatError) as error:
        return Unread(found.path, str(error), found.named)
