"""How far a run stands from its baselines, in units of the noise of both and of the spread of seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from trainproof import stats
from trainproof.comparing.matching import Pairs
from trainproof.frame import Floats
from trainproof.thresholds import ComparisonThresholds
from trainproof.verdict import Severity


class Gap(NamedTuple):
    """How far the run stands above one baseline: log units (or shares of the baseline's range), standard error, degrees of freedom.

    A standard error of NaN says that the points are too few to tell their noise.
    """

    value: float
    se: float
    df: float


class Standing(NamedTuple):
    """The run against all baselines: centre of the gaps, what noise allows, and the limits beyond it."""

    centre: float
    noise: float
    warn: float
    fail: float
    seeds: int

    @property
    def severity(self) -> Severity:
        """FAIL or WARN when the run is worse (a positive centre) by more than noise and limit, else INFO."""
        excess = self.centre - self.noise
        return Severity.FAIL if excess > self.fail else Severity.WARN if excess > self.warn else Severity.INFO

    @property
    def resolves(self) -> float:
        """The smallest difference that would have been told, in the unit of the centre."""
        return self.warn + self.noise


def noise_of(ratio: Floats, width: int, t: ComparisonThresholds, share: float = 0.5) -> tuple[float, float]:
    """(standard error of the median of `width` neighbouring ratios, its degrees of freedom), from the last `share` of the ratios.

    sigma is the larger of what successive differences and the MAD of the last fifth say: the first does not see that a ratio has two
    levels, the second takes a drift for noise. Where neighbours are correlated (smoothed losses), differences show only
    sqrt(1 - r) of sigma, and a level averages sqrt((1 + r) / (1 - r)) less. Too few ratios: NaN.
    """
    if len(ratio) < t.noise_records:
        return math.nan, 0.0
    tail = ratio[-max(t.noise_records, 2 * width, int(share * len(ratio))) :]
    end = tail[-max(t.noise_records, width, int(t.end_share * len(ratio))) :]
    r = stats.serial_correlation(tail)
    deviation = stats.MAD_TO_SIGMA * stats.median(np.abs(end - stats.median(end)))
    sigma = max(deviation, stats.difference_noise(tail) / math.sqrt(1 - r))
    wider = math.sqrt((1 + r) / (1 - r))
    return stats.MEDIAN_SE * sigma * wider / math.sqrt(width), t.mad_efficiency * len(tail) / wider**2


def level_gap(ratio: Floats, width: int, t: ComparisonThresholds, *, quantum: float = 0.0, share: float = 0.5) -> Gap:
    """The median of the last `width` log ratios with its noise. quantum: what rounding in print may have moved it by."""
    se, df = noise_of(ratio, width, t, share)
    return Gap(stats.median(ratio[-width:]), math.hypot(se, quantum / t.noise_se), df)


def print_steps(pairs: Pairs) -> float:
    """What rounding may have moved the log ratio by: half a printed step of each side over its level; 0 where there is no ratio."""
    steps = 0.0
    if pairs.scale is not None:
        return steps
    for value in (pairs.run, pairs.base):
        level = stats.median(np.abs(stats.thinned(value)))
        steps += stats.print_quantum(value) / (2 * level) if level > 0 else 0.0
    return steps


def standing(gaps: Sequence[Gap], warn: float, t: ComparisonThresholds, fail: float | None = None) -> Standing:
    """The run against all baselines.

    warn, fail: the limits for one baseline; fail defaults to `clearly` times warn, and infinity switches it off. The seed spread is
    the variance of the gaps beyond their noise, moderated towards the one that the limit of a single baseline stands for (as Smyth
    2004 moderates variances): s^2 = (p s0^2 + (k - 1) s^2) / (p + k - 1). The limit for k baselines is that of one more draw:
    t(p + k - 1) s sqrt(1 + 1 / k), which for one baseline is `warn` itself.
    """
    k = len(gaps)
    values = [one.value for one in gaps]
    centre = math.fsum(values) / k
    noises = [one for one in gaps if not math.isnan(one.se)]
    pair = math.fsum(one.se**2 for one in noises) / len(noises) if noises else 0.0
    se = math.sqrt(pair * (k + 1) / (2 * k))
    df = math.fsum(one.df for one in noises)
    noise = stats.student_limit(t.noise_se, df) * se if se > 0 else 0.0
    spread = math.fsum((value - centre) ** 2 for value in values) - (k - 1) * pair / 2
    prior = t.seed_prior
    assumed = warn / (stats.student_limit(t.seed_z, prior) * math.sqrt(2))
    moderated = math.sqrt((prior * assumed**2 + max(0.0, spread)) / (prior + k - 1))
    limit = stats.student_limit(t.seed_z, prior + k - 1) * moderated * math.sqrt(1 + 1 / k)
    limit = warn if k == 1 else limit
    return Standing(centre, noise, limit, (t.clearly if fail is None else fail / warn) * limit, k)
