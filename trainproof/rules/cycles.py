"""Whether a series comes in cycles: a period in its autocorrelation. TP601 tells of it; TP203 does not take a phase for a departure."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from trainproof import stats
from trainproof.stats import Floats
from trainproof.thresholds import DataOrderThresholds


class Period(NamedTuple):
    """A period of `lag` records: its autocorrelation r, and the range of its phase medians over the level."""

    lag: int
    r: float
    amplitude: float


def period(window: Floats, t: DataOrderThresholds) -> Period | None:
    """The shortest period of the window that passes the test, or None."""
    n = len(window)
    level = stats.median(window)
    x = flattened(window)
    r = _autocorrelation(x, n // t.period_repeats * 2)
    lags = np.arange(len(r))
    floor = np.minimum.accumulate(r)
    peak = np.zeros(len(r), bool)
    peak[2:-1] = (r[2:-1] >= r[1:-2]) & (r[2:-1] >= r[3:])
    least = t.period_r_few if n < t.period_few else t.period_r
    enough = r >= np.maximum(least, t.period_se / np.sqrt(np.maximum(n - lags, 1)))
    for lag in np.flatnonzero(peak & enough & (floor <= t.period_trough) & (lags * t.period_repeats <= n)).tolist():
        if _explained(window, lag) >= t.period_explained and r[2 * lag] >= max(
            t.period_r_twice, t.period_se_twice / math.sqrt(n - 2 * lag)
        ):
            folded = np.array([stats.median(x[phase::lag]) for phase in range(lag)])
            amplitude = float(folded.max() - folded.min()) / abs(level) if level else math.inf
            if amplitude >= t.period_amplitude:
                return Period(lag, float(r[lag]), amplitude)
    return None


def _explained(window: Floats, lag: int) -> float:
    """The share of the squares within cycles that their mean cycle accounts for: 1 / cycles by chance, or for a single step."""
    cycles = window[len(window) % lag :].reshape(-1, lag)
    inside = cycles - cycles.mean(axis=1, keepdims=True)
    total = float((inside * inside).sum())
    return len(cycles) * float((inside.mean(axis=0) ** 2).sum()) / total if 0 < total < math.inf else 0.0


def flattened(window: Floats) -> Floats:
    """The window without its slow trend (a parabola through it) and with outliers clipped at 4 scales; zero where it cannot be."""
    n = len(window)
    middle = stats.median(window)
    mad = stats.MAD_TO_SIGMA * stats.median(np.abs(window - middle))
    if not 0 < mad < math.inf:
        return np.zeros(n)
    x = np.minimum(np.maximum((window - middle) / mad, -4), 4)  # np.clip takes eight times as long over so few
    for basis, norm in _parabola(n):
        x = x - basis * ((x * basis).sum() / norm)
    return x * mad


@lru_cache(maxsize=64)
def _parabola(n: int) -> tuple[tuple[Floats, float], ...]:
    """Orthogonal polynomials of degree 0, 1 and 2 on n even points, each with the sum of its squares."""
    at = np.linspace(-1, 1, n)
    return tuple((basis, float((basis * basis).sum())) for basis in (np.ones(n), at, at * at - (at * at).mean()))


def _autocorrelation(x: Floats, most: int) -> Floats:
    """The correlation of x with itself at lags 0..most, each over the pairs that overlap; rounded, so that no machine differs."""
    n = len(x)
    most = min(most, n - 2)
    spectrum = np.fft.rfft(x, 2 * n)
    products = np.fft.irfft(np.abs(spectrum) ** 2)[: most + 1]
    squares = np.concatenate(([0.0], np.cumsum(x * x)))
    lags = np.arange(most + 1)
    scale = np.sqrt((squares[n - lags]) * (squares[n] - squares[lags]))
    r: Floats = np.round(np.divide(products, scale, out=np.zeros(most + 1), where=scale > 0), 6)
    return r
