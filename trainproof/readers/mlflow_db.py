"""MLflow's database in SQLite (`mlflow.db`), opened for reading only: every run that was not deleted, under its name.

MLflow writes a NaN as 0 with the mark `is_nan`, and an infinity as the largest double; both are undone. `line` is the
row's rowid in the table `metrics`. The file is input like any other: no view, trigger or generated column of it is run,
and what it may cost is bounded.
"""

from __future__ import annotations

import math
import sqlite3
import sys
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import numpy as np

from trainproof.errors import FormatError, InputError
from trainproof.readers.beside import declare_setting
from trainproof.readers.builder import FrameBuilder
from trainproof.readers.mlflow import declare_state
from trainproof.readers.mlflow_points import Points, give_run
from trainproof.readers.source import LogInput
from trainproof.readers.values import as_float, as_step, clean_name

MAGIC = b"SQLite format 3\0"
#: how long a writer may hold the database before we give up
LOCK_SECONDS = 2.0
#: no name or parameter of MLflow's is longer (8,000 characters at most)
MOST_CELL_BYTES = 1_000_000
#: steps of SQLite's virtual machine: a scan takes fewer than one for each byte of the file
STEPS_A_BYTE, FREE_STEPS = 10, 10_000_000
STEPS_A_LOOK = 100_000
#: characters of SQLite's own message, which may quote the database
MOST_TOLD = 200
#: parameters and tags of all runs that are looked at
MOST_SETTINGS = 1_000_000
#: place in the header of a database, and what stands there when it is written through a write-ahead log
_JOURNAL_AT, _WRITE_AHEAD = 18, 2

_METRIC_COLUMNS = ("key", "value", "timestamp", "run_uuid")


class _Series(NamedTuple):
    """The points of one metric of one run, as they are collected."""

    times: array[int]
    values: array[float]
    steps: array[int]
    lines: array[int]

    def points(self) -> Points:
        return Points(
            np.frombuffer(self.times, np.int64),
            np.frombuffer(self.values, np.float64),
            np.frombuffer(self.steps, np.int64),
            np.frombuffer(self.lines, np.int64),
        )


class MLflowDatabaseReader:
    name = "mlflow-db"
    description = "MLflow: `mlflow.db`, the runs in its SQLite database"

    def sniff(self, head: bytes) -> float:
        return 0.9 if head.startswith(MAGIC) else 0.0

    def read(self, log: LogInput, out: FrameBuilder) -> None:
        try:
            with closing(_connected(log)) as database:
                _bound(database)
                _Reading(database, log.path, out).run()
        except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter where an error quotes a damaged schema
            raise InputError(f"{log.path}: {_told(error)}") from None


def _told(error: sqlite3.Error | UnicodeDecodeError) -> str:
    """One line about what went wrong."""
    what = " ".join(str(error).split())[:MOST_TOLD] if isinstance(error, sqlite3.Error) else "damaged schema"
    if "locked" in what:
        return "locked by a program that writes to it; try again when that is done, or judge a copy"
    if what == "interrupted":
        return "takes longer to read than any database of its size; expected one that MLflow wrote"
    return f"cannot be read as an SQLite database ({what}); expected one that MLflow wrote"


def _connected(log: LogInput) -> sqlite3.Connection:
    """The database, as it lies on disk or, where it is compressed or piped in, in memory. Raises sqlite3.Error, InputError."""
    path = Path(log.path)
    if log.path != "-" and path.is_file() and (header := _header(path)).startswith(MAGIC):
        ahead = header[_JOURNAL_AT] == _WRITE_AHEAD and not _is_written(path)
        mode = (
            "immutable=1" if ahead else "mode=ro"
        )  # to read a write-ahead log that is not there, SQLite would make one
        return sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True, timeout=LOCK_SECONDS)
    data = bytearray(log.read())
    data[_JOURNAL_AT : _JOURNAL_AT + 2] = b"\1\1"  # in memory there is no write-ahead log
    database = sqlite3.connect(":memory:")
    database.deserialize(bytes(data))
    return database


def _header(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_JOURNAL_AT + 2)


def _is_written(path: Path) -> bool:
    """Whether there is a write-ahead log with its index beside the database."""
    return all(path.with_name(path.name + end).is_file() for end in ("-wal", "-shm"))


def _bound(database: sqlite3.Connection) -> None:
    """Trust nothing in the database, and let reading it take no more steps than a database of its size can need."""
    size: int = database.execute("PRAGMA page_count").fetchone()[0] * database.execute("PRAGMA page_size").fetchone()[0]
    left = (FREE_STEPS + STEPS_A_BYTE * size) // STEPS_A_LOOK

    def look() -> bool:
        nonlocal left
        left -= 1
        return left < 0

    database.set_progress_handler(look, STEPS_A_LOOK)
    database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_CELL_BYTES)
    database.text_factory = lambda text: text.decode("utf-8", "replace")
    database.execute("PRAGMA trusted_schema = OFF")
    database.execute("PRAGMA cell_size_check = ON")
    database.execute("PRAGMA query_only = ON")


class _Reading:
    """One pass over a database."""

    def __init__(self, database: sqlite3.Connection, path: str, out: FrameBuilder) -> None:
        self._database, self._path, self._out = database, path, out

    def run(self) -> None:
        """Raises FormatError when it is not MLflow's, or has no metrics."""
        if not self._has("metrics", _METRIC_COLUMNS):
            raise FormatError(
                f"{self._path}: an SQLite database without MLflow's table of metrics, expected an mlflow.db"
            )
        series = self._series()
        runs = self._runs()
        names = self._names(runs, series)
        for run, name in names.items():
            give_run({metric: points.points() for metric, points in series[run].items()}, self._out.run(name))
            declare_state(runs.get(run, _NO_RUN).status, self._out.run(name), "runs.status")
        if not names:
            raise FormatError(f"{self._path}: no metrics of a run that was not deleted, expected some in an mlflow.db")
        for table in ("params", "tags"):
            self._declare(table, names)

    def _has(self, table: str, columns: tuple[str, ...]) -> bool:
        """Whether there is an ordinary table with these columns, none of them computed."""
        found = self._database.execute("SELECT type, sql FROM sqlite_master WHERE name = ?", (table,)).fetchall()
        if len(found) != 1 or found[0][0] != "table" or not str(found[0][1]).upper().startswith("CREATE TABLE"):
            return False
        return {*columns} <= self._columns(table)

    def _columns(self, table: str) -> set[str]:
        return {row[1] for row in self._database.execute(f"PRAGMA table_info({table})")}

    def _series(self) -> dict[str, dict[str, _Series]]:
        """run -> metric -> points, in the order of the rows."""
        runs: dict[str, dict[str, _Series]] = defaultdict(lambda: defaultdict(_empty))
        for rowid, run, key, value, time, step in self._rows():
            series = runs[str(run)][clean_name(str(key))]
            series.times.append(time)
            series.values.append(value)
            series.steps.append(step)
            series.lines.append(rowid)
        return runs

    def _rows(self) -> Iterator[tuple[int, object, object, float, int, int]]:
        """The rows of the table of metrics that can be used; damage ends them early."""
        known = self._columns("metrics")
        step, is_nan = ("step" if "step" in known else "0"), ("is_nan" if "is_nan" in known else "0")
        rows = self._database.execute(
            f"SELECT rowid, run_uuid, key, value, timestamp, {step}, {is_nan} FROM metrics NOT INDEXED"  # noqa: S608  of two constants
        )
        rowid = 0
        try:
            for rowid, run, key, stored, stamp, number, nan in rows:
                value, time, at = _undone(stored, nan), as_step(stamp), as_step(number)
                if value is None or time is None or at is None:
                    self._out.drop(rowid, "a row without a number, a time or a step")
                else:
                    yield rowid, run, key, value, time, at
        except sqlite3.DatabaseError as error:
            if not rowid or isinstance(error, sqlite3.OperationalError):
                raise
            self._out.drop(rowid + 1, f"the database is damaged from here on ({error})")

    def _runs(self) -> dict[str, _Run]:
        columns = ("run_uuid", "name", "status", "lifecycle_stage")
        if not self._has("runs", columns):
            return {}
        rows = self._database.execute(f"SELECT {', '.join(columns)} FROM runs NOT INDEXED")  # noqa: S608  of constants
        return {str(uuid): _Run(str(name or ""), str(status), stage == "deleted") for uuid, name, status, stage in rows}

    def _names(self, runs: dict[str, _Run], series: dict[str, dict[str, _Series]]) -> dict[str, str]:
        """run -> the name it is told by: its own, with the beginning of its number where several have that name."""
        kept = {run: runs.get(run, _NO_RUN).name or run for run in series if not runs.get(run, _NO_RUN).deleted}
        times = Counter(kept.values())
        return {run: clean_name(name if times[name] == 1 else f"{name} ({run[:8]})") for run, name in kept.items()}

    def _declare(self, table: str, names: dict[str, str]) -> None:
        """Parameters or tags as facts."""
        if not self._has(table, ("run_uuid", "key", "value")):
            return
        rows = self._database.execute(f"SELECT run_uuid, key, value FROM {table} NOT INDEXED LIMIT {MOST_SETTINGS}")  # noqa: S608
        for run, key, value in rows:
            if str(run) in names:
                declare_setting(self._out.run(names[str(run)]).facts, str(key), value, f"{table}.{key}")


class _Run(NamedTuple):
    """What the table of runs says of one."""

    name: str
    status: str
    deleted: bool


_NO_RUN = _Run("", "", False)


def _empty() -> _Series:
    return _Series(array("q"), array("d"), array("q"), array("q"))


def _undone(value: object, is_nan: object) -> float | None:
    """The number that was logged."""
    if is_nan:
        return math.nan
    number = as_float(value)
    if number is not None and abs(number) == sys.float_info.max:
        return math.copysign(math.inf, number)
    return number
