"""Logs that are written bit by bit, and a watch that looks when the test says so."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tests.live.feeding import Row, Said, rows, said
from tools import synthetic
from trainproof.frame import Frame
from trainproof.watch_command import Watch, WatchOptions
from trainproof.watching.run import Run


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def frame(kind: str, n: int, sigma: float = 0.1, seed: int = 0) -> Frame:
    return synthetic.as_frame(getattr(synthetic, kind)(n, sigma, seed))


def jsonl(run: Frame) -> bytes:
    return b"".join(map(line_of, rows(run)))


def line_of(row: Row) -> bytes:
    """A record as a line of JSONL."""
    step, values = row
    named = {name.replace("eval/", "eval_"): value for name, value in values.items()}
    return json.dumps({"step": step, **named}).encode() + b"\n"


def csv(run: Frame) -> bytes:
    names = list(run)
    lines = [",".join(["step", *(name.replace("eval/", "eval_") for name in names)])]
    for step in run["loss"].step.tolist():
        values = [run[name].at(step) for name in names]
        lines.append(",".join([str(step), *("" if value is None else repr(value) for value in values)]))
    return "\n".join(lines).encode() + b"\n"


def chunks(data: bytes, seed: int, most: int) -> Iterator[bytes]:
    """The data in pieces of random sizes."""
    random = np.random.default_rng(seed)
    at = 0
    while at < len(data):
        size = int(random.integers(1, most))
        yield data[at : at + size]
        at += size


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def watch(*paths: Path, clock: Clock | None = None, **options: object) -> Watch:
    return Watch(WatchOptions(tuple(map(str, paths)), **options), clock or Clock())  # type: ignore[arg-type]


def only_run(seen: Watch) -> Run:
    [run] = seen.runs
    return run


def points(run: Run) -> int:
    """How many values of metrics have come."""
    return sum(len(series) for series in run.guardian.log.frames()[-1].values())


def values_in(data: bytes) -> int:
    """How many values of metrics there are in JSONL: whole lines, the step not counted."""
    return sum(len(json.loads(line)) - 1 for line in data[: data.rfind(b"\n")].splitlines())


def standing(run: Run) -> list[Said]:
    return sorted(map(said, run.findings))
