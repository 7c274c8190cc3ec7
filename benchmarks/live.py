"""What judging a run while it burns costs: a guardian inside the training loop, and a watch from outside of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.logs import records

GUARDED = 100_000
WATCHED = 1_000_000
LOOKS = 40
#: of a training step of 50 ms, the 0.1 % that a guardian may cost, in ms
ALLOWED_MS = 0.001 * 50


def guarded() -> None:
    """A healthy run of GUARDED records through a guardian, one at a time."""
    from trainproof.guardian import Guardian

    guardian = Guardian(on_finding=())
    for record in records(GUARDED):
        step = int(record.pop("step"))
        guardian.record(step, record)
    if guardian.findings:
        raise AssertionError(f"a healthy run was warned of: {guardian.findings}")


def produced() -> None:
    """The same records without the guardian."""
    for record in records(GUARDED):
        int(record.pop("step"))


def cost(rounds: int = 3) -> float:
    """The processor seconds that the guardian adds to such a run: the least of some rounds, for other processes only add."""
    turns = [(_spent(produced), _spent(guarded)) for _ in range(rounds)]
    return min(together for _, together in turns) - min(alone for alone, _ in turns)


def _spent(action: Callable[[], object]) -> float:
    before = time.process_time()
    action()
    return time.process_time() - before


def bytes_watched(log: Path, growing: Path) -> tuple[int, int]:
    """Watch a log that grows to the size of `log` in LOOKS looks: the bytes read, and the bytes that there are."""
    from trainproof.watch_command import Watch, WatchOptions

    data, watch = log.read_bytes(), Watch(WatchOptions((str(growing),)), lambda: 0.0)
    for look in range(LOOKS):
        with growing.open("ab") as file:
            file.write(data[look * len(data) // LOOKS : (look + 1) * len(data) // LOOKS])
        watch.look()
    [run] = watch.runs
    if run.guardian.records != WATCHED:
        raise AssertionError(f"{run.guardian.records} records of {WATCHED} were seen")
    read = watch.bytes_read
    watch.close()
    return read, len(data)
