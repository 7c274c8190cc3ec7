"""Family TP6: in which order the data came. TP603 and TP605, on what it is made of, are in `mixture`."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from trainproof import stats
from trainproof.frame import Frame, Series
from trainproof.rules import mixture  # noqa: F401  registers TP603 and TP605
from trainproof.rules.cycles import flattened, period
from trainproof.rules.registry import FAIL, INFO, SUPERVISED, WARN, CannotTell, Sighting, rule, sighting
from trainproof.rules.repeats import first_repeat, has_few_digits
from trainproof.rules.staircase import epoch_edges
from trainproof.rules.states import finite, holds_since
from trainproof.stats import Bools, Floats
from trainproof.thresholds import DataOrderThresholds
from trainproof.verdict import Severity


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
    >= 2 / sqrt(n - 2 p), r <= 0.1 somewhere before p, three periods whose mean explains half of the squares within them, and phase
    medians that differ by 5 % of the level. By 20 %, or by 10 % with the epoch as the period: WARN while it holds to the end; less: INFO.

    False positives
    A mean that restarts with each epoch has the epoch's period: passed over. Noise does not reach 3.6 standard errors at p and come
    back at 2 p.

    What to try
    Log the lengths of a batch beside its loss.
    """
    loss = finite(frame, "loss", t.period_min_records)
    counts = sorted({*stats.renewals(len(loss), t.period_min_records).tolist(), len(loss)})
    last = period(loss.value[-t.period_window :], t)
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
    distance = int(stats.median(np.diff(loss.step[-t.period_window :])))
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
    return stats.median(np.diff(edges[:-1])) if len(edges) > 2 else 0.0


def _amplitude(window: Floats, t: DataOrderThresholds) -> float:
    """The amplitude of the window's period, 0 without one."""
    found = period(window, t)
    return 0.0 if found is None else found.amplitude


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
        first, lag = first_repeat(loss.value, t) or (int(np.argmax(_repeats(loss.value, lag, t))), lag)
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
    if len(x) < 2 * k:
        return None
    equal = np.flatnonzero(x[:-1] == x[-1])
    last = x[-k:].tolist()
    if not len(equal) or len(set(last)) < k - 1 or any(has_few_digits(v, t) for v in last):
        return None
    for at in equal[-t.repeat_tried :].tolist():
        if at >= k - 1 and (x[at - k + 1 : at + 1] == x[-k:]).all():
            return int(len(x) - 1 - at)
    return None


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
    flat: dict[int, Floats] = {}  # each epoch is compared with the one before and the one after
    for k in np.flatnonzero((sizes[:-1] == sizes[1:]) & (sizes[1:] >= t.order_min_records)).tolist():
        m = min(int(sizes[k]), t.order_most)
        for j in (k, k + 1):
            if j not in flat:
                flat[j] = flattened(loss.value[edges[j] : edges[j] + m])
        r = _correlation(flat.pop(k), flat[k + 1])
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
