"""MLflow's SQLite database: its encodings undone, several runs, and databases that are hostile, damaged or in use."""

from __future__ import annotations

import io
import lzma
import math
import random
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.readers.logs import points
from trainproof.errors import FormatError, InputError, TrainproofError
from trainproof.frame import Frame
from trainproof.readers import mlflow_db
from trainproof.readers.builder import FrameBuilder
from trainproof.readers.discover import Log, read_logs
from trainproof.readers.mlflow_db import MLflowDatabaseReader
from trainproof.readers.source import LogInput

START = 1_700_000_000_000
TABLES = """
CREATE TABLE runs (run_uuid TEXT PRIMARY KEY, name TEXT, status TEXT, lifecycle_stage TEXT);
CREATE TABLE "params" ("key" TEXT, value TEXT, run_uuid TEXT, PRIMARY KEY ("key", run_uuid));
CREATE TABLE tags ("key" TEXT, value TEXT, run_uuid TEXT, PRIMARY KEY ("key", run_uuid));
CREATE TABLE "metrics" ("key" TEXT NOT NULL, value FLOAT NOT NULL, timestamp BIGINT NOT NULL, run_uuid TEXT NOT NULL,
    step BIGINT DEFAULT '0' NOT NULL, is_nan BOOLEAN DEFAULT '0' NOT NULL,
    PRIMARY KEY ("key", timestamp, step, run_uuid, value, is_nan));
"""


def stored(value: float) -> tuple[float, int]:
    """A value and the mark is_nan as MLflow stores them."""
    if math.isinf(value):
        return math.copysign(sys.float_info.max, value), 0
    return (0.0, 1) if math.isnan(value) else (value, 0)


def log_metric(database: sqlite3.Connection, run: str, key: str, *values: float, stride: int = 1) -> None:
    for i, number in enumerate(values):
        value, is_nan = stored(number)
        row = (key, value, START + 1000 * i, run, stride * i, is_nan)
        database.execute("INSERT INTO metrics VALUES (?, ?, ?, ?, ?, ?)", row)


def add_run(database: sqlite3.Connection, run: str, name: str, status: str = "FINISHED", stage: str = "active") -> None:
    database.execute("INSERT INTO runs VALUES (?, ?, ?, ?)", (run, name, status, stage))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Three runs, two of the same name, and a deleted one."""
    file = tmp_path / "mlflow.db"
    with closing(sqlite3.connect(file)) as database:
        database.executescript(TABLES)
        for run, name, status in (
            ("aaaaaaaaaa", "sft", "FINISHED"),
            ("bbbbbbbbbb", "sft", "FAILED"),
            ("cccccccccc", "dpo", "RUNNING"),
        ):
            add_run(database, run, name, status)
            log_metric(database, run, "train/loss", 3.0, 2.0, math.nan, math.inf, -math.inf)
            log_metric(database, run, "lr", 0.1, 0.1)
        add_run(database, "dddddddddd", "gone", stage="deleted")
        log_metric(database, "dddddddddd", "loss", 1.0)
        add_run(database, "eeeeeeeeee", "without metrics")
        database.executemany(
            "INSERT INTO params VALUES (?, ?, ?)",
            [("max_steps", "300", "aaaaaaaaaa"), ("seed", "7", "bbbbbbbbbb"), ("seed", "8", "dddddddddd")],
        )
        database.execute("INSERT INTO tags VALUES ('num_labels', '4', 'cccccccccc')")
        database.commit()
    return file


def read_one(path: Path) -> Log:
    (log,) = read_logs([str(path)])
    return log


def test_the_runs_of_a_database(path: Path) -> None:
    log = read_one(path)
    assert log.problem is None
    assert [frame.source.name for frame in log.frames] == ["sft (aaaaaaaa)", "sft (bbbbbbbb)", "dpo"]
    first, second, _ = log.frames
    assert points(first, "loss") == [(0, 3.0, 1), (1, 2.0, 2), (2, "nan", 3), (3, math.inf, 4), (4, -math.inf, 5)]
    assert points(second, "lr") == [(0, 0.1, 13), (1, 0.1, 14)]
    assert [dict(frame.facts) for frame in log.frames] == [
        {"total_steps": 300, "status": "FINISHED"},
        {"seed": 7, "status": "FAILED"},
        {"num_classes": 4, "status": "RUNNING"},
    ]
    assert [frame.ended for frame in log.frames] == [True, False, False]
    assert first["time"].value.tolist() == [0, 1, 2, 3, 4]


def same(frames: list[Frame], others: list[Frame]) -> bool:
    """By repr, for NaN differs from itself."""
    return [[(name, repr(points(frame, name))) for name in frame] for frame in frames] == [
        [(name, repr(points(frame, name))) for name in frame] for frame in others
    ]


def test_compressed_and_piped_in(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = read_one(path).frames
    packed = path.with_suffix(".db.xz")
    packed.write_bytes(lzma.compress(path.read_bytes()))
    assert same(read_one(packed).frames, plain)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes())))
    (log,) = read_logs(["-"])
    assert same(log.frames, plain)


def test_reading_leaves_the_folder_as_it_was(path: Path) -> None:
    before = path.read_bytes()
    read_one(path)
    assert [file.name for file in path.parent.iterdir()] == ["mlflow.db"]
    assert path.read_bytes() == before


def test_a_write_ahead_log_is_read_while_it_is_written_and_none_is_made(path: Path) -> None:
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        log_metric(writer, "cccccccccc", "acc", 0.5, 0.75)
        writer.commit()
        assert points(read_one(path).frames[2], "acc") == [(0, 0.5, 23), (1, 0.75, 24)]
    assert [file.name for file in path.parent.iterdir()] == ["mlflow.db"]
    assert points(read_one(path).frames[2], "acc") == [(0, 0.5, 23), (1, 0.75, 24)]
    assert [file.name for file in path.parent.iterdir()] == ["mlflow.db"]


def test_a_locked_database_is_told_in_one_line(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mlflow_db, "LOCK_SECONDS", 0.0)
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        problem = read_one(path).problem
    assert isinstance(problem, InputError)
    assert (
        str(problem) == f"{path}: locked by a program that writes to it; try again when that is done, or judge a copy"
    )


def test_a_database_of_another_program(tmp_path: Path) -> None:
    file = tmp_path / "other.db"
    with closing(sqlite3.connect(file)) as database:
        database.execute("CREATE TABLE trials (number INTEGER)")
    problem = read_one(file).problem
    assert isinstance(problem, FormatError)
    assert "an SQLite database without MLflow's table of metrics" in str(problem)


def test_a_database_without_metrics(tmp_path: Path) -> None:
    file = tmp_path / "mlflow.db"
    with closing(sqlite3.connect(file)) as database:
        database.executescript(TABLES)
    assert "no metrics of a run" in str(read_one(file).problem)


def test_the_tables_of_the_first_versions(tmp_path: Path) -> None:
    file = tmp_path / "mlflow.db"
    with closing(sqlite3.connect(file)) as database:
        database.execute("CREATE TABLE metrics (key TEXT, value FLOAT, timestamp BIGINT, run_uuid TEXT)")
        database.executemany(
            "INSERT INTO metrics VALUES ('loss', ?, ?, 'abc')", [(3.0, START), (2.0, START + 1), (1.0, START + 2)]
        )
        database.commit()
    (frame,) = read_one(file).frames
    assert frame.source.name == "abc"
    assert points(frame, "loss") == [(1, 3.0, 1), (2, 2.0, 2), (3, 1.0, 3)]


ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT 'loss' AS key, i AS value, i AS timestamp, 'a' AS run_uuid FROM n"
COLUMNS = "key TEXT, timestamp BIGINT, run_uuid TEXT"
HOSTILE = {
    "a view without end": f"CREATE VIEW metrics AS {ENDLESS}",
    "a computed column": f"CREATE TABLE metrics ({COLUMNS}, value AS (length(zeroblob(900000000))))",
    "a virtual table": "CREATE VIRTUAL TABLE metrics USING fts5(key, value, timestamp, run_uuid)",
    "no rowid": f"CREATE TABLE metrics ({COLUMNS}, value FLOAT, PRIMARY KEY (key, timestamp)) WITHOUT ROWID",
}


@pytest.mark.parametrize("script", HOSTILE.values(), ids=HOSTILE)
def test_what_a_hostile_database_has_instead_of_the_table(tmp_path: Path, script: str) -> None:
    file = tmp_path / "mlflow.db"
    with closing(sqlite3.connect(file)) as database:
        database.executescript(script)
    problem = read_one(file).problem
    assert isinstance(problem, TrainproofError)
    assert "\n" not in str(problem)


def test_odd_cells_cost_their_row(path: Path) -> None:
    rows = [
        ("odd", "fast", START, "cccccccccc", 0, 0),
        ("odd", b"\xff\xfe", START, "cccccccccc", 1, 0),
        ("odd", 0.5, START, "cccccccccc", 2**62 + 2, 0),
        ("odd", 0.5, "long ago", "cccccccccc", 3, 0),
        ("odd", "0.25", START, "cccccccccc", 4, 0),
    ]
    with closing(sqlite3.connect(path)) as database:
        database.executemany("INSERT INTO metrics VALUES (?, ?, ?, ?, ?, ?)", rows)
        database.execute("INSERT INTO params VALUES ('seed', CAST(x'fffe' AS TEXT), 'cccccccccc')")
        database.commit()
    log = read_one(path)
    assert points(log.frames[2], "odd") == [(4, 0.25, 27)]
    assert [line.line for line in log.frames[0].dropped] == [23, 24, 25, 26]


def test_a_query_that_takes_too_long_is_ended(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mlflow_db, "FREE_STEPS", 0)
    monkeypatch.setattr(mlflow_db, "STEPS_A_BYTE", 0)
    monkeypatch.setattr(mlflow_db, "STEPS_A_LOOK", 50)
    assert "takes longer to read than any database of its size" in str(read_one(path).problem)


def mutations(data: bytes, count: int) -> Iterator[bytes]:
    random.seed(5)
    for i in range(count):
        if i % 4 == 0:
            yield data[: random.randrange(100, len(data))]
            continue
        damaged = bytearray(data)
        for _ in range(random.choice((1, 8, 200))):
            damaged[random.randrange(16, len(damaged))] = random.randrange(256)
        yield bytes(damaged)


def test_damage_is_told_in_one_line_or_costs_rows(path: Path) -> None:
    told = set()
    for data in mutations(path.read_bytes(), 150):
        try:
            MLflowDatabaseReader().read(LogInput("mlflow.db", data), out := FrameBuilder())
        except TrainproofError as error:
            told.add(str(error))
        else:
            assert out._runs
    assert any("cannot be read as an SQLite database" in line for line in told)
    assert all("\n" not in line for line in told)
