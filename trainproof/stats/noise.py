"""How much a series moves about its level, and how far its neighbours agree."""

from __future__ import annotations

import math
from bisect import insort
from typing import NamedTuple

import numpy as np

from trainproof.stats.arrays import MAD_TO_SIGMA, SHORT, THINNED, Floats, Ints, median, thinned
from trainproof.stats.schedule import SCHEDULE_START, renewals
from trainproof.stats.windows import prefix_median, prefixes

#: standard deviation of the noise over the median absolute difference of neighbours
STEP_TO_SIGMA = MAD_TO_SIGMA / math.sqrt(2)
#: differences from which on a correlation of neighbours can be told from none
SERIAL_MINIMUM = 32


class Renewed(NamedTuple):
    """A statistic that was renewed at these record counts, shape (k,) each; between them it stays as it is."""

    counts: Ints
    values: Floats

    def each(self, size: int, first: int = 0, stride: int = 1) -> Floats:
        """Its value at the records (from 0) first, first + stride, ..., shape (size,); +inf before the first count."""
        begins = np.clip(-((first + 1 - self.counts) // stride), 0, size)
        return np.repeat(np.append(np.inf, self.values), np.diff(np.concatenate(([0], begins, [size]))))


def difference_noise(x: Floats) -> float:
    """The robust standard deviation of x about its local level, from successive differences; 0 for fewer than 2 values.

    Differences of neighbours cancel a trend; their standard deviation is sqrt(2) times that of the noise (von Neumann 1941).
    """
    if len(x) < 2:
        return 0.0
    apart = max(1, -(-(len(x) - 1) // THINNED))
    return STEP_TO_SIGMA * median(np.abs(x[1::apart] - x[:-1:apart]))


def noise_so_far(x: Floats, first: int = 9) -> Floats:
    """`difference_noise` of the records up to each record, shape (n,); +inf before the `first` record has come.

    Renewed at every record up to 50 and then on the common schedule.
    """
    return noise_renewed(x, first).each(len(x))


def noise_renewed(x: Floats, first: int = 9) -> Renewed:
    """`noise_so_far`, as it was renewed."""
    steps = np.abs(np.diff(x))
    counts = renewals(len(x), first)
    if len(steps) < SHORT and bool(np.isfinite(steps).all()):
        return Renewed(counts, STEP_TO_SIGMA * np.array(_growing_medians(steps.tolist(), (counts - 1).tolist())))
    early = counts[counts <= SCHEDULE_START] - 1
    medians = prefix_median(prefixes(steps, early), early).tolist() if len(early) else []
    medians += [median(thinned(steps[: count - 1])) for count in counts[len(early) :].tolist()]
    return Renewed(counts, STEP_TO_SIGMA * np.array(medians))


def _growing_medians(values: list[float], widths: list[int]) -> list[float]:
    """The medians of the first `widths` values each, widths ascending: of few values quicker than by arrays."""
    medians: list[float] = []
    ordered: list[float] = []
    for width in widths:
        for value in values[len(ordered) : width]:
            insort(ordered, value)
        high = ordered[width // 2]
        medians.append(high if width % 2 else ordered[width // 2 - 1] / 2 + high / 2)
    return medians


def serial_correlation(x: Floats, most: int = THINNED) -> float:
    """The correlation r of neighbours in x, whatever its trend, from its last `most` values; 0 when it cannot be told from none.

    Of an AR(1) series the differences have the correlation -(1 - r) / 2 at lag 1. They are cut off at 3 robust standard deviations,
    so that jumps and outliers do not count. The standard error of r, where there is no correlation, is 2 sqrt(1 / 2n) (Bartlett
    1946); only 3 of them count as one, and no fewer than 32 differences. At most 0.99.
    """
    step = np.diff(x[-most:])
    cut = 3 * MAD_TO_SIGMA * median(np.abs(step)) if len(step) else 0.0
    step = np.clip(step, -cut, cut)
    whole = math.fsum(step * step)
    if len(step) < SERIAL_MINIMUM or whole == 0:
        return 0.0
    r = 1 + 2 * math.fsum(step[1:] * step[:-1]) / whole
    return min(r, 0.99) if r > 3 * math.sqrt(2 / len(step)) else 0.0


def student_limit(z: float, df: float) -> float:
    """The limit of Student's t with `df` degrees of freedom that is passed as rarely as `z` is by a normal law.

    Cornish-Fisher expansion (Abramowitz and Stegun 26.7.5), good to a few percent from 4 degrees on; fewer count as 4.
    """
    v = max(df, 4.0)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / v + second / v**2 + third / v**3
