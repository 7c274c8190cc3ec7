"""Family TP6: in which order the data came. TP603 and TP605, on what it is made of, are in `mixture`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from trainproof import stats
from trainproof.frame import Frame, Series
from trainproof.rules import mixture  # noqa: F401  registers TP603 and TP605
from trainproof.rules.registry import FAIL, INFO, SUPERVISED, WARN, CannotTell, Sighting, rule, sighting
from trainproof.rules.staircase import epoch_edges
from trainproof.rules.states import finite, holds_since
from trainproof.stats import Bools, Floats
from trainproof.thresholds import DataOrderThresholds
from trainproof.verdict import Severity


class Period(NamedTuple):
    """A period of `lag` records: its autocorrelation r, and the range of its phase medians over the level."""

    lag: int
    r: float
    amplitude: float


@rule(
    "TP601",
    "periodic-loss",
    severity=WARN,
    needs=("loss",),
    objectives=SUPERVISED,
    min_records=15,
    fix="Shuffle whole batches after grouping by length, enlarge the shuffle buffer, and shuffle anew in every epoch.",
)
def periodic_loss(frame: Frame, t: DataOrderThresholds) -> Iterator[Sighting]:
    """The loss repeats itself: the data comes in a fixed cycle.

    What it does
    Looks for a period in the autocorrelation of the last 600 losses, trend removed and outliers clipped.

    Why it matters
    Batches in a cycle (of lengths, of sources, of one unshuffled pass) give biased consecutive steps, and hide spikes and trends.

    Formula
    At the common judging points: a lag p with r(p) >= 0.6 (0.75 under 60 records) and >= 3.6 / sqrt(n - p), r(2 p) >= 0.45 and
    >= 2 / sqrt(n - 2 p), r <= 0.1
    somewhere before p, three periods, and phase medians that differ by 5 % of the level. By 20 %, or by 10 % with the epoch as the period: WARN while it holds to
    the end; less: INFO.

    False positives
    A mean that restarts with each epoch has the epoch's period: passed over. Noise does not reach 3.6 standard errors at p and come
    back at 2 p.

    What to try
    Log the lengths of a batch beside its loss.
    """
    loss = finite(frame, "loss", t.period_min_records)
    counts = sorted({*stats.renewals(len(loss), t.period_min_records).tolist(), len(loss)})
    last = _period(loss.value[-t.period_window :], t)
    if last is None:
        return
    epoch = _epoch_length(frame, loss)
    is_epoch = abs(last.lag - epoch) <= t.period_epoch * epoch
    if is_epoch and stats.is_running_mean(loss.value[: int(epoch)]):
        return
    limit = t.period_amplitude_epoch if is_epoch else t.period_amplitude_warn
    severity: Severity = WARN if last.amplitude >= limit else INFO
    least = limit if severity is WARN else t.period_amplitude
    flagged = holds_since(counts, lambda n: _amplitude(loss.value[max(0, n - t.period_window) : n], t) >= least)
    distance = int(np.median(np.diff(loss.step[-t.period_window :])))
    yield sighting(
        severity,
        f"the loss repeats every {last.lag} records ({last.lag * distance} steps{', an epoch' if is_epoch else ''}): autocorrelation "
        f"{last.r:.2f}, phases apart by {last.amplitude:.0%} of its level.",
        loss,
        first=max(0, len(loss) - t.period_window),
        last=len(loss) - 1,
        flagged=(flagged or len(loss)) - 1,
        threshold={"r": t.period_r, "amplitude": least},
    )


def _epoch_length(frame: Frame, loss: Series) -> float:
    """The usual number of records of an epoch; 0 when epochs are not known or there were not two."""
    try:
        edges = epoch_edges(frame, loss)
    except CannotTell:
        return 0.0
    return float(np.median(np.diff(edges[:-1]))) if len(edges) > 2 else 0.0


def _amplitude(window: Floats, t: DataOrderThresholds) -> float:
    """The amplitude of the window's period, 0 without one."""
    period = _period(window, t)
    return 0.0 if period is None else period.amplitude


def _period(window: Floats, t: DataOrderThresholds) -> Period | None:
    """The shortest period of the window that passes the test, or None."""
    n = len(window)
    level = float(np.median(window))
    x = _flattened(window)
    r = _autocorrelation(x, n // t.period_repeats * 2)
    lags = np.arange(len(r))
    floor = np.minimum.accumulate(r)
    peak = np.zeros(len(r), bool)
    peak[2:-1] = (r[2:-1] >= r[1:-2]) & (r[2:-1] >= r[3:])
    least = t.period_r_few if n < t.period_few else t.period_r
    enough = r >= np.maximum(least, t.period_se / np.sqrt(np.maximum(n - lags, 1)))
    for lag in np.flatnonzero(peak & enough & (floor <= t.period_trough) & (lags * t.period_repeats <= n)).tolist():
        if r[2 * lag] >= max(t.period_r_twice, t.period_se_twice / math.sqrt(n - 2 * lag)):
            folded = np.array([float(np.median(x[phase::lag])) for phase in range(lag)])
            amplitude = float(folded.max() - folded.min()) / abs(level) if level else math.inf
            if amplitude >= t.period_amplitude:
                return Period(lag, float(r[lag]), amplitude)
    return None


def _flattened(window: Floats) -> Floats:
    """The window without its slow trend (a parabola through it) and with outliers clipped at 4 scales; zero where it cannot be."""
    n = len(window)
    middle = stats.median(window)
    mad = stats.MAD_TO_SIGMA * stats.median(np.abs(window - middle))
    if not 0 < mad < math.inf:
        return np.zeros(n)
    x = np.clip((window - middle) / mad, -4, 4)
    at = np.linspace(-1, 1, n)
    for basis in (np.ones(n), at, at * at - (at * at).mean()):
        x = x - basis * ((x * basis).sum() / (basis * basis).sum())
    return x * mad


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


@rule(
    "TP604",
    "repeated-sequence",
    severity=FAIL,
    needs=("loss",),
    min_records=20,
    fix="Check that optimizer.step() changes the weights (frozen parameters, rate 0, a step that is always skipped), and shuffle each epoch.",
)
def repeated_sequence(frame: Frame, t: DataOrderThresholds) -> Iterator[Sighting]:
    """A stretch of losses comes back digit for digit: nothing changed between the two passes over the same data.

    What it does
    Looks where the latest losses occurred before, and whether those around them agree too.

    Why it matters
    The same batches can only give the same losses when the weights have not moved.

    Formula
    5 consecutive losses of 6 significant digits or more, at least 4 of them different, exactly equal to those p records before: FAIL.
    Epochs whose losses correlate at 0.9 position by position without being equal: INFO, the order is not reshuffled.

    False positives
    Losses printed with few digits repeat by chance: not counted. A single value that is repeated is TP406's or TP505's.

    What to try
    Compare one parameter before and after a step.
    """
    loss = finite(frame, "loss", t.repeat_min_records)
    lag = next((lag for n in _ends(len(loss)) if (lag := _lag_of(loss.value[:n], t))), None)
    if lag is not None:
        same = _repeats(loss.value, lag, t)
        first = int(np.argmax(same))
        flagged = first + t.repeat_records - 1
        yield sighting(
            FAIL,
            f"{t.repeat_records} losses from step {loss.step[first]} on are exactly those {lag} records before: the weights are not changing.",
            loss,
            first=first - lag,
            last=len(loss) - 1,
            flagged=flagged,
            cite=[first - lag, first, flagged - lag, flagged],
            threshold={"records": t.repeat_records, "digits": t.repeat_digits},
        )
        return
    yield from _same_order(frame, loss, t)


def _ends(n: int) -> list[int]:
    """The record counts at which the latest losses are looked up: the end, and each eighth of the run."""
    return sorted({n * k // 8 for k in range(1, 9)})


def _lag_of(x: Floats, t: DataOrderThresholds) -> int | None:
    """How many records ago the last 5 values stood already, exactly; None when they did not, or are no full-precision losses."""
    k = t.repeat_records
    if len(x) < 2 * k or len(set(x[-k:].tolist())) < k - 1 or any(_short(v, t) for v in x[-k:].tolist()):
        return None
    for at in np.flatnonzero(x[:-1] == x[-1]).tolist()[-t.repeat_tried :]:
        if at >= k - 1 and (x[at - k + 1 : at + 1] == x[-k:]).all():
            return int(len(x) - 1 - at)
    return None


def _short(value: float, t: DataOrderThresholds) -> bool:
    """Whether a value has fewer significant digits than chance repeats."""
    return float(f"{value:.{t.repeat_digits - 2}e}") == value


def _repeats(x: Floats, lag: int, t: DataOrderThresholds) -> Bools:
    """Where a stretch of enough exact repeats at this lag begins, shape (n,)."""
    out = np.zeros(len(x), bool)
    same = np.concatenate((np.zeros(lag, bool), x[lag:] == x[:-lag]))
    for start, stop in stats.runs_of(same):
        varied = len(set(x[start : start + t.repeat_records].tolist())) >= t.repeat_records - 1
        if stop - start >= t.repeat_records and varied:
            out[start] = True
    return out


def _same_order(frame: Frame, loss: Series, t: DataOrderThresholds) -> Iterator[Sighting]:
    """Epochs whose losses agree position by position."""
    try:
        edges = epoch_edges(frame, loss)
    except CannotTell:
        return
    sizes = np.diff(edges)
    for k in np.flatnonzero((sizes[:-1] == sizes[1:]) & (sizes[1:] >= t.order_min_records)).tolist():
        m = min(int(sizes[k]), t.order_most)
        a, b = (_flattened(loss.value[edges[j] : edges[j] + m]) for j in (k, k + 1))
        r = _correlation(a, b)
        if r >= t.order_r:
            yield sighting(
                INFO,
                f"the losses of two epochs agree position by position (correlation {r:.2f} over {m} records from step {loss.step[edges[k + 1]]}): "
                "the data is not shuffled anew.",
                loss,
                first=int(edges[k]),
                last=int(edges[k + 1]) + m - 1,
                threshold={"r": t.order_r},
            )
            return


def _correlation(a: Floats, b: Floats) -> float:
    scale = math.sqrt(float((a * a).sum()) * float((b * b).sum()))
    return round(float((a * b).sum()) / scale, 6) if 0 < scale < math.inf else 0.0
