"""Windows that trail each record: their medians, and the baseline that rules compare a record with."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import numpy as np

from trainproof.stats.arrays import MAD_TO_SIGMA, ROWS, Floats, Ints, middle

R = TypeVar("R")
BASELINE_WINDOW = 64
BASELINE_MINIMUM = 20
#: between these of 64 sorted values lies a stretch that is no wider than their scale, unless few differ
_MIDDLE = (24, 40)
#: every record has a baseline of its own up to here; past it the baseline is renewed every BASELINE_STRIDE records, which a log
#: of that length cannot tell apart and which keeps a million records affordable
BASELINE_EXACT = 2048
BASELINE_STRIDE = 32
_SORTED = 65536  # values sorted at a time: 512 KiB stay in the processor's cache
#: values sorted in all from which on several threads share the work: numpy lets go of the interpreter while it sorts
_SHARED = 16 * _SORTED
_THREADS = 4


class Baseline(NamedTuple):
    """Where a series stood just before each record: median M, scale S and 95th percentile, shape (n,), NaN where too few came before."""

    median: Floats
    scale: Floats
    high: Floats


def processors() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def median5(x: Floats) -> Floats:
    """The median of the last 5 values, shape (n,); NaN for the first 4. A minimum/maximum network: exact, without sorting."""
    out = np.full(len(x), np.nan)
    for start in range(0, len(x) - 4, ROWS):  # pieces that stay in the processor's cache
        piece = x[start : start + ROWS + 4]
        small, large, last = np.minimum(piece[:-1], piece[1:]), np.maximum(piece[:-1], piece[1:]), piece[4:]
        low, high = np.maximum(small[:-3], small[2:-1]), np.minimum(large[:-3], large[2:-1])
        middle = np.minimum(np.maximum(last, low), high)
        np.maximum(np.minimum(last, low), middle, out=out[start + 4 : start + len(piece)])
    return out


def windows(x: Floats, width: int, made: Callable[[int, Floats], R], stride: int = 1) -> list[R]:
    """made(index of the first row, sorted windows), piece by piece: row r holds x[r * stride : r * stride + width], sorted."""
    if len(x) < width:
        return []
    x = np.ascontiguousarray(x, dtype=np.float64)
    rows = (len(x) - width) // stride + 1
    # several times as quick to make as by sliding_window_view
    view = np.ndarray((rows, width), np.float64, x, 0, (stride * x.itemsize, x.itemsize))
    size = max(1, _SORTED // width)

    def piece(start: int) -> R:
        return made(start, np.sort(view[start : start + size], axis=1))

    starts = range(0, len(view), size)
    if len(view) * width < _SHARED:
        return [piece(start) for start in starts]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(min(processors(), _THREADS)) as threads:
        return list(threads.map(piece, starts))


def row_median(rows: Floats) -> Floats:
    """The median of each row of rows sorted along axis 1; of an even number, the mean of the two middle values."""
    width = rows.shape[1]
    return rows[:, width // 2] if width % 2 else middle(rows[:, width // 2 - 1], rows[:, width // 2])


def condensed(x: Floats, width: int) -> Floats:
    """The medians of consecutive stretches of `width` records; the remainder is left out at the end. Long series are looked at so."""
    return row_median(np.sort(x[: len(x) // width * width].reshape(-1, width), axis=1))


def trailing_median(x: Floats, width: int, stride: int = 1) -> tuple[Ints, Floats]:
    """(index of the last record, median) of the windows of `width` records that end at width-1, width-1+stride, ..."""
    parts = windows(x, width, lambda _, rows: row_median(rows), stride)
    values = np.concatenate(parts) if parts else np.empty(0)
    return np.arange(len(values), dtype=np.int64) * stride + (width - 1), values


def trailing_minimum(x: Floats, width: int) -> Floats:
    """The minimum of the last `width` values, shape (n,); -inf for the first width-1 (nothing has held that long yet)."""
    out = x.copy()
    done = 1
    while done < width:
        shift = min(done, width - done)
        out[shift:] = np.minimum(out[shift:], out[:-shift]) if shift < len(out) else out[shift:]
        done += shift
    out[: width - 1] = -np.inf
    return out


def baseline(x: Floats, lag: int = 5) -> Baseline:
    """M and S of the 64 (at least 20) records that end `lag` records before each record.

    S = max(1.4826 MAD, 0.02 |M|, print quantum), so that a constant stretch or a coarsely printed one has a scale. The lag keeps the
    last 5 records, which rules compare with M, out of it. Source: CATALOGUE of rules, shared machinery; the floor of 2 % and the
    quantum are measured on public logs (bfloat16 losses have a MAD of 0).
    """
    n, first = len(x), BASELINE_MINIMUM - 1 + lag  # the first record that has a baseline
    base = Baseline(np.empty(n), np.empty(n), np.empty(n))
    for column in base:
        column[:first] = np.nan
    exact = min(n, max(BASELINE_EXACT, BASELINE_WINDOW - 1 + lag))
    if n > first:
        before = np.full(BASELINE_WINDOW - BASELINE_MINIMUM, np.inf)  # the first windows are not full
        head = Baseline(*(column[:exact] for column in base))
        _fill(np.concatenate((before, x[: exact - lag])), 1, first, BASELINE_MINIMUM, head)
    if n > exact:
        start = exact - (BASELINE_WINDOW - 1 + lag)
        _fill(x[start : n - lag], BASELINE_STRIDE, exact, BASELINE_WINDOW, base)
    return base


def _fill(x: Floats, stride: int, first: int, width: int, base: Baseline) -> None:
    """Write the baselines of the windows of `x`, `stride` apart, into records `first` on; each one serves `stride` records.

    The first window holds `width` values, behind infinities, each that follows one more, until they are full.
    """
    n = len(base.median)

    def write(start: int, rows: Floats) -> None:
        widths = np.minimum(width + start + np.arange(len(rows)), BASELINE_WINDOW)
        at = first + start * stride
        stop = min(n, at + len(rows) * stride)
        for column, values in zip(base, _described(rows, widths), strict=True):
            column[at:stop] = np.repeat(values, stride)[: stop - at] if stride > 1 else values

    windows(x, BASELINE_WINDOW, write, stride)


def prefixes(x: Floats, widths: Ints) -> Floats:
    """The first widths[r] values of x, sorted, in row r, and +inf behind them (and for NaN); shape (len(widths), widths.max())."""
    most = int(widths.max())
    return np.sort(np.where(np.arange(most) < widths[:, np.newaxis], np.fmin(x[:most], np.inf), np.inf), axis=1)


def prefix_median(rows: Floats, widths: Ints) -> Floats:
    """The median of the first widths[r] values of each sorted row (one width: of all rows)."""
    at = np.arange(len(rows))
    high = rows[at, widths // 2]
    return np.where(widths % 2 == 1, high, middle(rows[at, (widths - 1) // 2], high))


def _described(rows: Floats, widths: Ints) -> Baseline:
    """M, S and the 95th percentile of the first widths[r] values of each sorted row; what is behind them is +inf."""
    median = prefix_median(rows, widths)
    with np.errstate(over="ignore", invalid="ignore"):
        mad = prefix_median(np.sort(np.abs(rows - median[:, np.newaxis]), axis=1), widths)
        scale = np.maximum(MAD_TO_SIGMA * mad, 0.02 * np.abs(median))
        middle = rows[:, _MIDDLE[1]] - rows[:, _MIDDLE[0]]
        coarse = np.flatnonzero(~((middle > 0) & (middle <= scale)))  # elsewhere no quantum is larger than the scale
        if len(coarse):
            gaps = np.diff(rows[coarse], axis=1)
            quantum = np.where(gaps > 0, gaps, np.inf).min(axis=1)
            scale[coarse] = np.maximum(scale[coarse], np.where(np.isinf(quantum), 0.0, quantum))
    return Baseline(median, scale, rows[np.arange(len(rows)), np.ceil(0.95 * widths).astype(np.int64) - 1])
