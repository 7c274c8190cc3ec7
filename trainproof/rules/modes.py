"""TP927: does the loss fall into separate modes, and do they come in order?"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from trainproof import stats
from trainproof.frame import Frame
from trainproof.rules.registry import INFO, SUPERVISED, WARN, Sighting, rule, sighting
from trainproof.rules.states import finite, holds_since
from trainproof.stats import Floats, Ints
from trainproof.thresholds import PipelineThresholds
from trainproof.verdict import Severity


class Modes(NamedTuple):
    """Separate levels of a window: their centres and shares from low to high, the number of stretches, and the Z of the runs test."""

    centre: tuple[float, ...]
    share: tuple[float, ...]
    runs: int
    z: float


@rule(
    "TP927",
    "multimodal-loss",
    severity=WARN,
    needs=("loss",),
    objectives=SUPERVISED,
    min_records=200,
    fix="Mix lengths and sources within a batch, or shuffle the order of the buckets' batches; log the bucket beside the loss.",
)
def multimodal_loss(frame: Frame, t: PipelineThresholds) -> Iterator[Sighting]:
    """The loss jumps between separate levels, and consecutive steps stay on one: batches come from one kind of data at a time.

    What it does
    Splits the last 200 losses into two or three levels, and asks whether their order is one of chance.

    Why it matters
    Consecutive steps that all see one length or source are biased together: the run swings between them, and their levels look like
    spikes, cliffs and recoveries.

    Formula
    At the common judging points: two levels that leave 12 % of the variance, or three that leave 5 %, each with 10 % of the records, and a
    fifth of the way from level to level empty. Fewer stretches of one level than chance (Wald-Wolfowitz Z < -4), 8 or more of them: WARN; otherwise INFO.

    False positives
    Smooth distributions leave 25 % (uniform) and 36 % (normal) after the best cut in two, 11 % and 19 % after that in three, and a tenth of
    the way empty. No stretch may be 40 % of the window: a shift of level is TP210's.

    What to try
    Plot the loss against the batch's length.
    """
    loss = finite(frame, "loss", t.modes_window)
    width = t.modes_window
    found = modes_of(loss.value[-width:], t)
    if found is None or found.runs < t.modes_runs:
        return
    clumped = found.z < -t.modes_z
    severity: Severity = WARN if clumped else INFO
    counts = [int(n) for n in stats.schedule(len(loss)) if n >= width]

    def holds(count: int) -> bool:
        seen = modes_of(loss.value[count - width : count], t)
        return seen is not None and seen.runs >= t.modes_runs and (not clumped or seen.z < -t.modes_z)

    since = holds_since(counts, holds) or len(loss)
    levels = ", ".join(f"{centre:.3g} ({share:.0%})" for centre, share in zip(found.centre, found.share, strict=True))
    order = "consecutive records stay on one level" if clumped else "in no particular order"
    yield sighting(
        severity,
        f"the last {width} losses fall into {len(found.centre)} separate levels: {levels}; {order} ({found.runs} stretches, Z {found.z:.1f}). "
        "Consistent with batches made of one kind of data (length, source) at a time.",
        loss,
        first=since - width,
        last=len(loss) - 1,
        flagged=since - 1,
        threshold={"z": t.modes_z, "left": t.modes_left[0]},
    )


def modes_of(x: Floats, t: PipelineThresholds) -> Modes | None:
    """The two or three separate levels of the window, outliers drawn in; or None."""
    ordered = np.sort(x)
    low, high = ordered[len(x) // 4], ordered[3 * len(x) // 4]
    ordered = np.clip(ordered, low - t.modes_outlier * (high - low), high + t.modes_outlier * (high - low))
    spread = float(ordered[-1] - ordered[0])
    if not 0 < spread < math.inf:
        return None
    y = (ordered - ordered[0]) / spread
    for cuts, most in ((_cut_in_three(y), t.modes_left[1]), (_cut_in_two(y), t.modes_left[0])):
        edges = [0, *cuts, len(y)]
        pieces = [y[a:b] for a, b in zip(edges, edges[1:], strict=False)]
        if min(map(len, pieces)) < t.modes_share * len(y) or _left(pieces) > most * _left([y]) or not _apart(pieces, t):
            continue
        label = np.searchsorted(ordered[cuts], x, side="right")
        edge = np.flatnonzero(np.concatenate(([True], label[1:] != label[:-1], [True])))
        if np.diff(edge).max() > t.modes_longest * len(x):
            continue
        runs = len(edge) - 1
        centre = tuple(stats.median(ordered[a:b]) for a, b in zip(edges, edges[1:], strict=False))
        return Modes(centre, tuple(len(p) / len(y) for p in pieces), runs, _runs_z(label, runs))
    return None


def _left(pieces: list[Floats]) -> float:
    """The sum of squares about the pieces' means."""
    return float(sum(((p - p.mean()) ** 2).sum() for p in pieces))


def _apart(pieces: list[Floats], t: PipelineThresholds) -> bool:
    """Whether a good part of the way from one piece's middle to the next one's is empty but for a twentieth of either."""
    for low, high in zip(pieces, pieces[1:], strict=False):
        empty = float(np.quantile(high, 0.05) - np.quantile(low, 0.95))
        if empty < t.modes_gap * float(stats.median(high) - stats.median(low)):
            return False
    return True


def _cut_in_two(y: Floats) -> list[int]:
    """Where to cut sorted y in two for the least sum of squares."""
    total = np.concatenate(([0.0], np.cumsum(y)))
    k = np.arange(1, len(y))
    gain = total[k] ** 2 / k + (total[-1] - total[k]) ** 2 / (len(y) - k)
    return [int(k[np.argmax(gain)])]


def _cut_in_three(y: Floats) -> list[int]:
    """The same in three: all pairs of cuts, shape (n, n)."""
    total = np.concatenate(([0.0], np.cumsum(y)))
    n = len(y)
    i, j = np.triu_indices(n - 1, 1)
    i, j = i + 1, j + 1
    gain = total[i] ** 2 / i + (total[j] - total[i]) ** 2 / (j - i) + (total[-1] - total[j]) ** 2 / (n - j)
    best = int(np.argmax(gain))
    return [int(i[best]), int(j[best])]


def _runs_z(label: Ints, runs: int) -> float:
    """The runs test for several kinds (Wald and Wolfowitz 1940; moments by Barton and David 1957)."""
    n = len(label)
    counts = np.bincount(label).astype(np.float64)
    squares, cubes = float((counts**2).sum()), float((counts**3).sum())
    mean = n + 1 - squares / n
    variance = (squares * (squares + n * (n + 1)) - 2 * n * cubes - n**3) / (n * n * (n - 1))
    return 0.0 if variance <= 0 else (runs - mean) / math.sqrt(variance)
