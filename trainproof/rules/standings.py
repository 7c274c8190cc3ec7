"""What the comparison rules share: from matched records to a figure of the report and, where the run is outside, a sighting."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from trainproof import stats
from trainproof.comparing.comparison import Comparison
from trainproof.comparing.levels import Gap, Standing, standing
from trainproof.comparing.matching import LARGEST, Pairs
from trainproof.rules.registry import INFO, CannotTell, Sighting
from trainproof.thresholds import ComparisonThresholds
from trainproof.verdict import Evidence, Figure, Severity, number

Seen = Iterator[Sighting | Figure]


class Against(NamedTuple):
    """The run against one baseline: its number, the pairs that were looked at, the two levels, and how far they are apart."""

    baseline: int
    pairs: Pairs
    run: float
    base: float
    gap: Gap
    relative: bool = True  # the gap is a logarithm; else a share of the baseline's range


class Outcome(NamedTuple):
    """The run against all baselines in one figure."""

    metric: str
    what: str
    each: list[Against]
    standing: Standing

    @property
    def run(self) -> float:
        return stats.median([one.run for one in self.each])

    @property
    def low(self) -> float:
        return min(one.base for one in self.each)

    @property
    def high(self) -> float:
        return max(one.base for one in self.each)

    def share(self, value: float) -> float:
        """A distance in the unit of the gaps as a share."""
        return math.expm1(min(value, LARGEST)) if self.each[0].relative else value


def against_all(
    seen: Comparison, metric: str, least: int, look: Callable[[int, Pairs], Against], *, equal_ones: bool = False
) -> list[Against]:
    """`look` at the pairs of each baseline that has at least `least` of them. Raises CannotTell when none has.

    equal_ones: fewer will do where all of them are equal: there is no noise to tell.
    """
    usable = seen.usable(metric, least)
    if not usable and equal_ones:
        usable = [(i, pairs) for i, pairs in seen.usable(metric) if np.array_equal(pairs.run, pairs.base)]
    if usable and not any(pairs.measurable for _, pairs in usable):
        raise CannotTell(f"{metric} of the baseline is neither positive nor has it a range")
    if not usable:
        most = max(map(len, seen.matched(metric)), default=0)
        raise CannotTell(f"{most} matched records of {metric}, needs {least}")
    return [look(i, pairs) for i, pairs in usable if pairs.measurable]


def outcome(
    metric: str, what: str, each: list[Against], warn: float, t: ComparisonThresholds, fail: float | None = None
) -> Outcome:
    return Outcome(metric, what, each, standing([one.gap for one in each], warn, t, fail))


def told(
    code: str,
    seen: Comparison,
    found: Outcome,
    t: ComparisonThresholds,
    *,
    worse: str = "above",
    severity: Severity | None = None,
    mirrored: bool = False,
) -> Seen:
    """The figure, and a sighting when the run is worse by more than noise and limit. Raises CannotTell when noise hides too much.

    worse: which side of the baselines is the worse one. mirrored: the gaps were turned round, since either side is.
    """
    yield figure(code, found, mirrored)
    severity = found.standing.severity if severity is None else severity
    if severity is INFO:
        if found.standing.noise > t.noisy:
            raise CannotTell(f"too noisy to tell: a difference of {found.share(found.standing.noise):.0%} could hide")
        return
    pairs = found.each[0].pairs
    yield Sighting(
        severity,
        f"{found.what} {found.run:.4g} is {_apart(found, worse)} {worse} {_baselines(found)} over {len(pairs)} matched records; "
        f"noise explains {found.share(found.standing.noise):.1%}.",
        ends(seen, found),
        _limits(found.standing),
        int(pairs.step[0]),
        int(pairs.step[-1]),
        int(pairs.step[-1]),
    )


def _limits(s: Standing) -> dict[str, float]:
    """The limits that this comparison was held to, in the unit of the gaps."""
    limits = {"warn": s.warn, "fail": s.fail, "noise": s.noise}
    return {name: round(limit, 6) for name, limit in limits.items() if math.isfinite(limit)}


def figure(code: str, found: Outcome, mirrored: bool) -> Figure:
    """The figure as the report carries it."""
    s = found.standing
    return Figure(
        rule=code,
        name=found.what,
        run=number(found.run),
        low=number(found.low),
        high=number(found.high),
        change=number(found.share(-s.centre if mirrored else s.centre)),
        resolves=number(found.share(s.resolves)) if s.noise > 0 else None,
        matched=min(len(one.pairs) for one in found.each),
    )


def ends(seen: Comparison, found: Outcome) -> tuple[Evidence, ...]:
    """The first and the last pair that were looked at, of each of the first two baselines."""
    cited: list[Evidence] = []
    for one in found.each[:2]:
        for index in dict.fromkeys((0, len(one.pairs) - 1)):
            cited += seen.cite(found.metric, one.baseline, one.pairs, index)
    return tuple(dict.fromkeys(cited))


def _apart(found: Outcome, worse: str) -> str:
    centre = abs(found.standing.centre)
    share = abs(found.share(-centre if worse == "below" else centre))  # half as large is 50 % below
    return f"{share:.1%}" if found.each[0].relative else f"{share:.1%} of its range"


def _baselines(found: Outcome) -> str:
    if len(found.each) == 1:
        return f"the baseline's {found.each[0].base:.4g}"
    return f"the middle of {len(found.each)} baselines ({found.low:.4g} to {found.high:.4g})"
