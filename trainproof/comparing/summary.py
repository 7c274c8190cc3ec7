"""A run in a few hundred numbers: quantile curves of its metrics, and what they were made from."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import msgspec
import numpy as np

from trainproof.facts import FactValue
from trainproof.frame import Frame, Series

#: rows a metric: a run of no more records is kept record by record
MOST_ROWS = 100
#: metrics kept, those that are compared first
MOST_METRICS = 24
#: significant digits kept: a summary is read by people
DIGITS = 6
QUANTILES = (0.1, 0.5, 0.9)

_FIRST = (
    "loss",
    "eval/loss",
    "lr",
    "grad_norm",
    "reward",
    "throughput",
    "step_time",
    "memory",
    "tokens",
    "samples",
    "epoch",
)


class Row(NamedTuple):
    """A stretch of records: its first and last step, the number of finite records, and the quantiles of their values."""

    first: int
    last: int
    records: int
    low: float
    median: float
    high: float


class StoredCurve(msgspec.Struct, frozen=True):
    """A metric as quantiles over stretches of its records; `original` is the logger's own name of it."""

    original: str | None
    rows: tuple[Row, ...]


class StoredRun(msgspec.Struct, frozen=True):
    """One baseline run. `digest` is the SHA-256 of the numbers that were read, whatever file they lay in."""

    source: str
    format: str
    run: str | None
    digest: str
    objective: str
    verdict: str
    records: int
    first_step: int
    last_step: int
    facts: dict[str, FactValue]
    settings: dict[str, FactValue]
    curves: dict[str, StoredCurve]


def summarise(frame: Frame, verdict: str, settings: dict[str, FactValue]) -> StoredRun:
    """The summary of a run that was judged."""
    names = [name for name in _FIRST if name in frame]
    names += [name for name in frame if name not in names and name.startswith(("eval/", "test/", "loss/"))]
    curves = {}
    for name in names[:MOST_METRICS]:
        if rows := _rows(frame[name].finite):
            curves[name] = StoredCurve(frame.original_names.get(name), rows)
    return StoredRun(
        source=frame.source.path,
        format=frame.source.format,
        run=frame.source.name,
        digest=digest(frame),
        objective=frame.objective,
        verdict=verdict,
        records=frame.records,
        first_step=frame.first_step or 0,
        last_step=frame.last_step or 0,
        facts=dict(frame.facts),
        settings=settings,
        curves=curves,
    )


def digest(frame: Frame) -> str:
    """SHA-256 over the names, steps and values of all metrics, by name: the same numbers in another format have the same one."""
    seen = hashlib.sha256()
    for name in sorted(frame):
        series = frame[name]
        seen.update(name.encode("utf-8", "backslashreplace") + b"\0")
        seen.update(series.step.astype("<i8").tobytes() + series.value.astype("<f8").tobytes())
    return seen.hexdigest()


def _rows(series: Series) -> tuple[Row, ...]:
    """Equally long stretches of the finite records; each stretch begins where the one before ended."""
    bounds = np.linspace(0, len(series), min(MOST_ROWS, len(series)) + 1).astype(np.int64).tolist()
    return tuple(_row(series, lo, hi) for lo, hi in zip(bounds[:-1], bounds[1:], strict=True))


def _row(series: Series, lo: int, hi: int) -> Row:
    value = np.sort(series.value[lo:hi])
    low, median, high = (rounded(float(np.quantile(value, q))) for q in QUANTILES)
    return Row(int(series.step[lo]), int(series.step[hi - 1]), hi - lo, low, median, high)


def rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
