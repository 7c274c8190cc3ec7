"""The baseline store: one JSON file a name, small enough to review, to be committed beside the code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from trainproof import __version__
from trainproof.comparing.summary import StoredRun
from trainproof.errors import FormatError, InputError, UsageError

FOLDER = "trainproof-baselines"
VERSION = 1
#: a stored baseline of a dozen runs is under a megabyte
MOST_BYTES = 32 * 1024 * 1024
#: how a stored baseline begins, so that it is known by its content
MAGIC = b'{\n  "trainproof_baseline": '

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}\Z")


class StoredBaseline(msgspec.Struct, frozen=True):
    """A named baseline: the version of its form, the trainproof that made it, and its runs (seeds)."""

    trainproof_baseline: int
    made_by: str
    name: str
    runs: tuple[StoredRun, ...]


def path_of(name: str, folder: str | Path = FOLDER) -> Path:
    """Where the baseline lies. Raises UsageError for a name that is no file name."""
    if not _NAME.match(name):
        raise UsageError(f"--name {name!r}: expected letters, digits, dots, dashes and underscores, for example main")
    return Path(folder) / f"{name}.json"


def is_stored(path: str | Path) -> bool:
    """Whether the file is a stored baseline."""
    try:
        with Path(path).open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except (OSError, ValueError):  # also a path with a zero byte
        return False


def load(path: Path) -> StoredBaseline:
    """Raises InputError when there is no such file, FormatError when it is no baseline of a version that is known."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise FormatError(f"{path}: larger than {MOST_BYTES >> 20} MiB, expected a stored baseline")
        text = path.read_bytes()
    except OSError as error:
        raise InputError(
            f"{path}: {error.strerror or error}; make it with `trainproof baseline add RUN --name {path.stem}`"
        ) from None
    try:
        version = msgspec.json.decode(text, type=_Version).trainproof_baseline
        if version != VERSION:
            raise FormatError(f"{path}: a baseline of version {version}, expected {VERSION}; add its runs again")
        stored = msgspec.json.decode(text, type=StoredBaseline)
    except (msgspec.DecodeError, RecursionError) as error:
        raise FormatError(f"{path}: no stored baseline ({error})") from None
    for run in stored.runs:
        _check(run, path)
    return stored


class _Version(msgspec.Struct):
    trainproof_baseline: int


def _check(run: StoredRun, path: Path) -> None:
    """Raises FormatError when the rows of a curve are not in order: a file that was edited by hand."""
    if run.verdict not in ("PASS", "WARN"):
        raise FormatError(f"{path}: a baseline with the verdict {run.verdict!r}, expected PASS or WARN")
    for name, curve in run.curves.items():
        last = -(2**63)
        for row in curve.rows:
            if row.first > row.last or row.first <= last or row.last >= 2**62:
                raise FormatError(f"{path}: the rows of {name} are not in order at step {row.first}")
            last = row.last


def text_of(stored: StoredBaseline) -> str:
    """The file: indented JSON, each row of a curve on a line of its own."""
    document = msgspec.json.format(msgspec.json.encode(stored), indent=2).decode("utf-8", "replace")
    return re.sub(r"\[\s+(-?[\d.e+-]+(?:,\s+-?[\d.e+-]+){5})\s+\]", _on_one_line, document) + "\n"


def _on_one_line(row: re.Match[str]) -> str:
    return "[" + ", ".join(row[1].replace(",", " ").split()) + "]"


def with_runs(old: StoredBaseline | None, name: str, runs: list[StoredRun]) -> StoredBaseline:
    """The baseline with further runs. Raises UsageError when one of them is already in it."""
    kept = old.runs if old is not None else ()
    known = {run.digest: run.source for run in kept}
    for run in runs:
        if run.digest in known:
            raise UsageError(
                f"{run.source}: the same numbers are in baseline {name} already (from {known[run.digest]})"
            )
        known[run.digest] = run.source
    return StoredBaseline(VERSION, __version__, name, (*kept, *runs))


def stored_names(folder: str | Path = FOLDER) -> Iterator[str]:
    """The names of the baselines in a folder, sorted."""
    yield from sorted(path.stem for path in Path(folder).glob("*.json") if is_stored(path))
