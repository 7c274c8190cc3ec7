"""python -m benchmarks.run: measure, print a table of ratios, exit 1 when one is over its limit.

Each pair of runs alternates, and medians are compared, so that a machine that slows down slows both. Run it on a quiet machine.
"""

from __future__ import annotations

import json
import re
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks.logs import (
    MEGATRON_LINE,
    MEGATRON_SCAN,
    SPEEDRUN_LINE,
    SPEEDRUN_SCAN,
    write_console,
    write_events,
    write_jsonl,
    write_trainer_state,
)

MILLION = 1_000_000
STATE_RECORDS = 300_000
COLD_RECORDS = 200
CONSOLE_MEGABYTES = 100
LENGTH = struct.Struct("<Q")
SMALL_RUNS, SMALL_RECORDS = 1000, 200
ROUNDS = 5
COLD_ROUNDS = 15

#: prints the peak of its own resident memory in bytes; VmHWM, since ru_maxrss may count the parent's
PEAK = """
import re, sys
from trainproof.api import judge
judge(sys.argv[1])
print(1024 * int(re.search(r"VmHWM:\\s*(\\d+) kB", open("/proc/self/status").read())[1]))
"""


class Ratio(NamedTuple):
    """One line of the table: what was measured, against what, and the most that is allowed."""

    what: str
    against: str
    measured: float
    base: float
    limit: float
    unit: str = "s"

    @property
    def value(self) -> float:
        return self.measured / self.base


def seconds(action: Callable[[], object]) -> float:
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def alternate(rounds: int, *actions: Callable[[], object]) -> list[float]:
    """The median seconds of each action, run in turn; the first turn warms caches and does not count."""
    turns = [[seconds(action) for action in actions] for _ in range(rounds + 1)]
    return [median(column) for column in zip(*turns[1:], strict=True)]


def jsonl(folder: Path) -> list[Ratio]:
    """A million JSONL records against polars, in time and memory."""
    import polars

    from trainproof.api import judge, read

    path = write_jsonl(folder / "million.jsonl", MILLION)
    base, reading, judging = alternate(
        ROUNDS, lambda: polars.read_ndjson(path), lambda: read(path), lambda: judge(path)
    )
    peak = float(subprocess.run([sys.executable, "-c", PEAK, path], capture_output=True, text=True, check=True).stdout)
    return [
        Ratio("1,000,000 JSONL records: read", "polars.read_ndjson", reading, base, 1.3),
        Ratio("1,000,000 JSONL records: read and judge", "polars.read_ndjson", judging, base, 2.5),
        Ratio(
            "1,000,000 JSONL records: peak memory", "file size", peak / 2**20, path.stat().st_size / 2**20, 2.0, "MiB"
        ),
    ]


def trainer_state(folder: Path) -> list[Ratio]:
    """A large trainer_state.json against the standard library's parser."""
    from trainproof.api import judge, read

    path = write_trainer_state(folder / "trainer_state.json", STATE_RECORDS)

    def load() -> object:
        with path.open() as state:
            return json.load(state)

    base, reading, judging = alternate(ROUNDS, load, lambda: read(path), lambda: judge(path))
    return [
        Ratio("300,000-entry trainer_state.json: read", "json.load", reading, base, 1.0),
        Ratio("300,000-entry trainer_state.json: read and judge", "json.load", judging, base, 1.5),
    ]


def small_runs(folder: Path) -> list[Ratio]:
    """A directory of many small runs, judged in one process and as the command line does it, against the standard library's parser on
    the same files."""
    from trainproof.api import judge, judge_logs
    from trainproof.judge import Settings
    from trainproof.many import processes

    runs = folder / "runs"
    paths = [runs / f"run-{i:04d}" / "trainer_state.json" for i in range(SMALL_RUNS)]
    for i, path in enumerate(paths):
        path.parent.mkdir(parents=True)
        write_trainer_state(path, SMALL_RECORDS, seed=i)

    def load() -> None:
        for path in paths:
            with path.open() as state:
                json.load(state)

    def share() -> None:
        judge_logs([str(runs)], Settings(), processes=processes())

    base, judging, sharing = alternate(3, load, lambda: judge(runs), share)
    return [
        Ratio("1,000 runs of 200 records: by one process", "json.load of each", judging, base, 12.0),
        Ratio("1,000 runs of 200 records: as the command line", "json.load of each", sharing, base, 12.0),
    ]


def console(folder: Path) -> list[Ratio]:
    """Console output against one regular expression of its record lines, run over the same bytes."""
    from trainproof.api import read

    rows = []
    for name, line, pattern, chatter in (
        ("short lines", SPEEDRUN_LINE, SPEEDRUN_SCAN, 0),
        ("long lines", MEGATRON_LINE, MEGATRON_SCAN, 0),
        ("other lines between", MEGATRON_LINE, MEGATRON_SCAN, 3),
    ):
        path = write_console(folder / "console.log", line, CONSOLE_MEGABYTES, chatter)
        scan = re.compile(pattern)

        def search(path: Path = path, scan: re.Pattern[bytes] = scan) -> None:
            for _ in scan.finditer(path.read_bytes()):
                pass

        base, reading = alternate(3, search, partial(read, path))
        rows.append(Ratio(f"100 MB of console output, {name}: read", "re.finditer", reading, base, 4.0))
    return rows


def event_files(folder: Path) -> list[Ratio]:
    """A TensorBoard event file against a walk over its records that looks at nothing but their lengths."""
    from trainproof.api import read

    path = write_events(folder / "events.out.tfevents.1.host", MILLION)

    def walk() -> None:
        data, at = path.read_bytes(), 0
        while at < len(data):
            at += 16 + LENGTH.unpack_from(data, at)[0]

    base, reading = alternate(ROUNDS, walk, lambda: read(path))
    return [Ratio("3,000,000 events of a TensorBoard file: read", "a bare TFRecord walk", reading, base, 3.0)]


def growth(folder: Path) -> list[Ratio]:
    """Ten times the records may cost hardly more than ten times the time."""
    from trainproof.api import judge

    paths = [write_jsonl(folder / f"growth{n}.jsonl", n) for n in (10**4, 10**5, 10**6)]
    tens, hundreds, millions = alternate(3, *(lambda path=path: judge(path) for path in paths))
    return [
        Ratio("read and judge: 10^5 records", "10^4 records", hundreds, tens, 13.0),
        Ratio("read and judge: 10^6 records", "10^5 records", millions, hundreds, 13.0),
    ]


def cold(folder: Path) -> list[Ratio]:
    """A verdict from a fresh process, against a process that only imports numpy."""
    path = write_jsonl(folder / "short.jsonl", COLD_RECORDS)
    verdict = [sys.executable, "-m", "trainproof", "epoch", str(path)]

    def runs(*command: str) -> Callable[[], object]:
        return lambda: subprocess.run(command, cwd=folder, capture_output=True)

    base, plain, html = alternate(
        COLD_ROUNDS, runs(sys.executable, "-c", "import numpy"), runs(*verdict, "--no-html"), runs(*verdict)
    )
    return [
        Ratio("cold verdict on 200 records, --no-html", "import numpy", plain, base, 2.2),
        Ratio("cold verdict on 200 records, with HTML", "import numpy", html, base, 3.0),
    ]


def comparison(folder: Path) -> list[Ratio]:
    """Two runs of a million records, compared as the command line does it: read, judged, matched, against reading both."""
    from trainproof.api import read
    from trainproof.comparing.compare import compare_run
    from trainproof.comparing.load import Reading, load_both

    run, base = (write_jsonl(folder / f"seed{seed}.jsonl", MILLION, seed) for seed in (1, 2))

    def compare() -> None:
        own, baselines = load_both(str(run), [str(base)], Reading())
        compare_run(own.frame, baselines, Reading().settings, own=own.report)

    reading, comparing = alternate(ROUNDS, lambda: (read(run), read(base)), compare)
    return [Ratio("two logs of 1,000,000 records: compare", "reading both", comparing, reading, 1.2)]


def live(folder: Path) -> list[Ratio]:
    """A guardian inside of a training loop, and a watch from outside of it."""
    from benchmarks.live import ALLOWED_MS, GUARDED, WATCHED, bytes_watched, cost

    read, size = bytes_watched(write_jsonl(folder / "watched.jsonl", WATCHED), folder / "growing.jsonl")
    return [
        Ratio(
            "a guardian, a record of 100,000",
            "0.1 % of 50 ms",
            1e3 * cost() / GUARDED,
            ALLOWED_MS,
            1.0,
            "ms",
        ),
        Ratio("watch: bytes read of 1,000,000 records", "file size", read / 2**20, size / 2**20, 1.0, "MiB"),
    ]


def main() -> int:
    print(f"{'what':50} {'against':20} {'measured':>13} {'base':>13} {'ratio':>6} {'limit':>6}")
    over = 0
    with tempfile.TemporaryDirectory() as folder:
        for part in (cold, jsonl, comparison, trainer_state, small_runs, console, event_files, growth, live):
            for row in part(Path(folder)):
                bad = row.value > row.limit
                over += bad
                numbers = f"{row.measured:9.3f} {row.unit:>3} {row.base:9.3f} {row.unit:>3}"
                print(
                    f"{row.what:50} {row.against:20} {numbers} {row.value:6.2f} {row.limit:6.2f}{' OVER' if bad else ''}"
                )
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
