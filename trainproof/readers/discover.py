"""From what the user named to runs: files, globs, directories, standard input."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from trainproof.errors import FormatError, InputError, TrainproofError
from trainproof.facts import Facts
from trainproof.frame import Frame, Source
from trainproof.readers.base import Reader, claimant, is_console, reader_for, recognise, spreads
from trainproof.readers.beside import facts_beside
from trainproof.readers.builder import FrameBuilder
from trainproof.readers.folders import run_files
from trainproof.readers.outputs import OneRun, checkpoint_states, held_out_events
from trainproof.readers.source import MOST_LINE_BYTES, LogInput
from trainproof.readers.values import clean_name

#: how far into a text that is met in a folder records are looked for: it may be anything
MET_BYTES = 4 * 1024 * 1024
#: folders that hold no logs of the user's
PASSED_FOLDERS = frozenset({".git", ".venv", "node_modules", "__pycache__", ".trainproof", "site-packages", ".trash"})


class Log(NamedTuple):
    """What came of one log: its runs, or none and the `problem`.

    `named` is the input that led to it: a path as the user typed it, or a match of a glob.
    """

    named: str
    path: str
    frames: list[Frame]
    problem: TrainproofError | None = None


class Found(NamedTuple):
    """One log to read: the path shown, its files (several where a format spreads a run over them), and its reader."""

    path: str
    files: tuple[LogInput, ...]
    reader: Reader
    together: OneRun | None = None  # with which other logs it may be one run


def read_logs(
    paths: Sequence[str],
    *,
    format_name: str | None = None,
    mapping: Mapping[str, str] | None = None,
    facts: Facts | None = None,
) -> Iterator[Log]:
    """Each log that the inputs hold, once, in their order. Raises UsageError for an unknown format."""
    for named, found in found_logs(paths, format_name):
        if isinstance(found, TrainproofError):
            yield problem_log(named, found)
        elif (log := read_found(named, found, mapping, facts)) is not None:
            yield log


def found_logs(paths: Sequence[str], format_name: str | None = None) -> Iterator[tuple[str, Found | TrainproofError]]:
    """(input, log that is in it, not yet read), each log once; (input, problem) where there is none."""
    forced = reader_for(format_name) if format_name else None
    seen: set[str] = set()
    for named in _without_globs(paths):
        try:
            for found in find_logs(named, forced):
                key = named if named == "-" else os.path.realpath(found.files[0].path)
                if key not in seen:
                    seen.add(key)
                    yield named, found
        except (InputError, FormatError) as error:
            yield named, error


def problem_log(named: str, problem: TrainproofError) -> Log:
    """What came of an input without a log."""
    return Log(named, clean_name(named), [], problem)


def read_found(named: str, found: Found, mapping: Mapping[str, str] | None, facts: Facts | None) -> Log | None:
    """The runs of a log; None where they are of a run that another log had already."""
    log = _read(named, found, mapping, facts)
    return None if found.together is not None and found.together.has(log.frames) else log


def files_named(paths: Sequence[str]) -> list[str]:
    """Every file that the inputs hold, in the order in which logs are looked for in them."""
    named = _without_globs(paths)
    folders = (([path], None) if path == "-" or not os.path.isdir(path) else ([], path) for path in named)
    return [
        name
        for own, top in folders
        for name in (own if top is None else (os.path.join(root, f) for root, files, _ in _folders(top) for f in files))
    ]


def _without_globs(paths: Sequence[str]) -> Iterator[str]:
    """The inputs, each glob replaced by its matches, as the shell would; one without matches stays."""
    for path in paths:
        if glob.has_magic(path) and not os.path.lexists(path):
            yield from sorted(glob.glob(path, recursive=True)) or [path]
        else:
            yield path


def find_logs(named: str, forced: Reader | None) -> Iterator[Found]:
    """The logs that one input names, in order. Raises InputError or FormatError when there are none."""
    if named != "-" and os.path.isdir(named):
        empty = True
        for found in _below(named, forced):
            empty = False
            yield found
        if empty:
            raise FormatError(f"{named}: no training log below this directory; name the file if it is one")
        return
    log = LogInput(named)
    if log.head:  # raises what is wrong with the file, whatever its format
        yield Found(named, (log,), forced or recognise(log))


def _below(folder: str, forced: Reader | None) -> Iterator[Found]:
    """Every log below a folder. A file that no reader claims (not the forced one, if there is one) is passed over."""
    taken: set[str] = set()
    for root, names, below in _folders(folder):
        claimed = run_files(root, names, below)
        if claimed is not None:
            below.clear()
            yield from _within(root, claimed, forced)
            continue
        states, events = checkpoint_states(root, names, below), held_out_events(root, names, below)
        taken.update(os.path.join(root, name) for name in (*states, *events))
        run = OneRun()
        for state in states:
            yield from (found._replace(together=run) for found in _within(root, [state], forced))
        yield from _within(root, [*(n for n in names if os.path.join(root, n) not in taken), *events], forced)


def _within(folder: str, names: Sequence[str], forced: Reader | None) -> Iterator[Found]:
    """The logs among the files of one folder; those of a format that spreads a run over several files are one."""
    joined: dict[str, tuple[Reader, list[LogInput]]] = {}
    printed: list[Found] = []
    run = OneRun()
    for name in names:
        log = LogInput(os.path.join(folder, name))
        reader = _claimant(log, forced)
        if reader is None:
            continue
        if spreads(reader):
            joined.setdefault(reader.name, (reader, []))[1].append(log)
        elif is_console(reader):  # each node may have printed the same run, one more of it than the other
            printed.append(Found(log.path, (log,), reader, run))
        else:
            yield Found(log.path, (log,), reader)
    yield from sorted(printed, key=lambda found: -os.path.getsize(found.path))
    for reader, files in joined.values():
        yield Found(files[0].path if len(files) == 1 else folder, tuple(files), reader)


def _folders(top: str) -> Iterator[tuple[str, list[str], list[str]]]:
    """Each folder below `top`, its files, and the names of the folders in it, sorted; who empties these is not led there.

    Linked folders come last and each once: no loop of links traps it.
    """
    waiting = [top]
    linked: list[str] = []
    seen: set[str] = set()
    while waiting or linked:
        folder = waiting.pop() if waiting else linked.pop(0)
        real = os.path.realpath(folder)
        if real in seen:
            continue
        seen.add(real)
        files, below = _listed(folder)
        yield folder, files, below
        paths = [os.path.join(folder, name) for name in below]
        linked += [path for path in paths if os.path.islink(path)]
        waiting += [path for path in reversed(paths) if not os.path.islink(path)]


def _listed(folder: str) -> tuple[list[str], list[str]]:
    """The names of the files and of the folders in a folder, sorted; none when it cannot be read."""
    try:
        with os.scandir(folder) as entries:
            kinds = {entry.name: entry.is_dir() for entry in entries}
    except OSError:
        return [], []
    files = sorted(name for name, is_folder in kinds.items() if not is_folder)
    below = sorted(name for name, is_folder in kinds.items() if is_folder and name not in PASSED_FOLDERS)
    return files, below


def _claimant(log: LogInput, forced: Reader | None) -> Reader | None:
    """The reader that recognises a file met in a folder; anything unreadable is none of ours."""
    try:
        if forced is not None:
            return forced if forced.sniff(log.head) > 0 else None
        return claimant(log, MET_BYTES)
    except TrainproofError:
        return None


def _read(named: str, found: Found, mapping: Mapping[str, str] | None, facts: Facts | None) -> Log:
    """The runs of one log."""
    path = clean_name(found.path)
    out = FrameBuilder(mapping)
    try:
        _read_files(found, out)
        beside = Facts() if named == "-" else facts_beside(Path(found.files[0].path))
        frames = out.build(Source(path, found.reader.name), facts, beside)
    except TrainproofError as error:
        return Log(named, path, [], error)
    return Log(
        named,
        path,
        frames,
        None if frames else FormatError(f"{path}: no numeric records in it, expected a training log"),
    )


def _read_files(found: Found, out: FrameBuilder) -> None:
    try:
        if spreads(found.reader):
            found.reader.read_run(found.files, out)
        else:
            found.reader.read(found.files[0], out)
        for line in (line for log in found.files for line in log.overlong()):
            out.drop(line, f"a line of more than {MOST_LINE_BYTES >> 20} MiB")
    except OSError as error:
        raise InputError(f"{found.path}: {error.strerror or error}; expected a readable log file") from None
    finally:
        for log in found.files:
            log.close()
