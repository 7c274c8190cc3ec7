"""Where a series stands, updated in constant time a record: which rules may have something new to say of its level.

A screen never decides: it may ask for a rule in vain, but not fail to ask. What it keeps is what the rule itself computes over the whole
series; tests/live/test_levels.py holds the two together.
"""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from trainproof import stats
from trainproof.live.asked import Asked
from trainproof.live.standing import Severities
from trainproof.rules.divergence import stride_of
from trainproof.rules.loss import uniform_limit
from trainproof.thresholds import GradientThresholds, Thresholds

#: a screen asks a little before the rule's own bar: sums in another order differ in their last digits
SLACK = 1 - 1e-9
WARN, FAIL = 1, 2
#: e to a higher power is no float
LARGEST_EXPONENT = 700.0


class Base(NamedTuple):
    """Median M, scale S and 95th percentile of the 64 records before: `stats.Baseline` for one record."""

    median: float
    scale: float
    high: float


class RollingBaseline:
    """`stats.baseline` of a growing series, one record at a time; `base` is None where too few came before."""

    def __init__(self, lag: int = 5) -> None:
        self._lag = lag
        self._window: deque[float] = deque(maxlen=stats.BASELINE_WINDOW + lag)
        self._count = 0
        self._renewed_at = stats.BASELINE_MINIMUM + lag  # the count with which the next one is taken
        self.base: Base | None = None

    def push(self, x: float) -> bool:
        """Whether the baseline of `x`, which comes next, is another one than that of the value before."""
        self._window.append(x)
        self._count += 1
        if self._count < self._renewed_at:
            return False
        self._renewed_at += 1 if self._count <= stats.BASELINE_EXACT else stats.BASELINE_STRIDE
        self.base = _described(sorted(list(self._window)[: -self._lag]))
        return True


def middle(ordered: list[float]) -> float:
    """The median of sorted values."""
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else ordered[half - 1] / 2 + ordered[half] / 2


def _described(row: list[float]) -> Base:
    median = middle(row)
    mad = middle(sorted([abs(x - median) for x in row]))
    scale = max(stats.MAD_TO_SIGMA * mad, 0.02 * abs(median))
    if not 0 < row[5 * len(row) // 8] - row[3 * len(row) // 8] <= scale:  # else some values lie nearer than that
        scale = max(scale, min([b - a for a, b in pairwise(row) if b > a], default=0.0))
    return Base(median, scale, row[math.ceil(0.95 * len(row)) - 1])


#: records by which a spike may be flagged after its screen saw it
FLAGGED_LATER = 5


class Band:
    """Two bounds, and the records of the three last values that do not lie between them: the median of 5 does, unless all three are among
    these five."""

    def __init__(self) -> None:
        self.low, self.high = math.inf, -math.inf
        self.outside: deque[int] = deque((-5, -5, -5), maxlen=3)

    def move(self, low: float, high: float, latest: Iterable[float], count: int) -> None:
        """Other bounds; `latest` are the values up to record `count`, five if there are as many."""
        self.low, self.high = low, high
        self.outside.extend((-5, -5, -5))
        values = list(latest)
        self.outside.extend(
            count - back for back in range(len(values) - 1, -1, -1) if not low < values[-1 - back] < high
        )


def _below(x: float) -> float:
    """A little less than x."""
    return SLACK * x if x > 0 else x / SLACK


class _Width:
    """The loss smoothed over `width` records, and its best level so far: what TP203 compares."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.stride = stride_of(width)
        self.best = math.inf
        self.near = math.inf  # no level below it is away from the best one
        self.next = width  # the count of records at which the next level is taken


class LossScreen:
    """TP107, TP201, TP202, TP203, TP206, TP208, TP209 and TP210 for one loss. `uniform` and `early` are limits of TP209 and TP206 in nats,
    `lost` the records after which TP202 fails."""

    def __init__(self, thresholds: Thresholds, standing: Severities) -> None:
        t = self._t = thresholds.loss
        self._absurd, self._standing = thresholds.numerics.absurd_loss, standing
        self._uniform, self._early = uniform_limit(0.0, t), t.early_loss
        self.lost = t.unrecovered_fail_records
        self._values = array("d")
        self._scheduled = stats.scheduled_counts()
        self._count = 0
        self._start = math.inf  # median of the first 3
        self._positive = True
        self._noise = math.inf
        self._baseline = RollingBaseline()
        self._widths = [_Width(width) for width in t.diverged_widths]
        self._next_level = 0  # the count of records at which the next level of more than 5 is taken
        self._episode: tuple[int, float] | None = None  # the record and the level M of a spike that has not come back
        self._above = self._lowest = 0.0  # Page-Hinkley: the sum, and its minimum
        self._shift_until = 0
        self._worse = 0  # records in a row worse than a uniform guess
        self._band = Band()  # where neither a value nor the median of 5 has anything to say

    def limit(self, uniform: float, early: float) -> None:
        """What the run has declared by now."""
        self._uniform, self._early = uniform, early
        self._bound()

    def see(self, x: float, ask: set[str], now: set[str]) -> None:
        """Add the rules to ask after one more finite loss to `ask`, and those that may speak at this very record to `now`."""
        self._values.append(x)
        count = self._count = self._count + 1
        if count < stats.SCHEDULE_START or count in self._scheduled or x <= 0:
            self._learn(x)
        if self._baseline.push(x):
            self._bound()
        band = self._band
        calm = band.low < x < band.high
        if not calm:
            band.outside.append(count)
        if not calm or band.outside[0] > count - 5 or count >= self._next_level or self._worse or self._episode:
            self._look(x, ask, now)
        if self._baseline.base is not None:
            self._see_shift(x, self._baseline.base, ask)

    def _look(self, x: float, ask: set[str], now: set[str]) -> None:
        """All that is not a matter of course."""
        if x == 0:
            ask.add("TP208")
        if abs(x) > self._absurd:
            ask.add("TP107")
        if self._count < 5:
            return
        m5 = sorted(self._values[-5:])[2]
        self._worse = self._worse + 1 if m5 > self._uniform else 0
        if self._worse >= self._t.uniform_records:
            ask.add("TP209")
        if m5 < self._early:
            ask.add("TP206")
        if self._baseline.base is not None:
            self._see_spike(x, m5, self._baseline.base, ask, now)
        self._see_levels(m5, ask)

    def _learn(self, x: float) -> None:
        if x <= 0:
            self._positive = False
        if self._count == 3:
            self._start = self._widths[0].best = middle(sorted(self._values))
        if self._count < stats.SCHEDULE_START or self._count in self._scheduled:
            values = np.array(self._values)
            self._noise = stats.difference_noise(np.log(values) if self._positive else values)
        for width in self._widths:
            width.near = self._near(width)
        self._bound()

    def _bound(self) -> None:
        """Where nothing has to be looked at now: below every spike and every level that is away from the best, above the best of 5."""
        t, base, five = self._t, self._baseline.base, self._widths[0]
        if base is None:
            return
        size = abs(base.median)
        spike = max(base.high, base.median + max(t.spike_z * base.scale, (t.spike_ratio - 1) * size))
        fast = base.median + max(t.fast_z * base.scale, (t.fast_ratio - 1) * size)
        high = min(self._uniform, five.near, spike, fast, self._absurd)
        self._band.move(max(self._early, five.best, 0.0), _below(high), self._values[-5:], self._count)

    def _near(self, width: _Width) -> float:
        """The lowest level that TP203 may take for away from the best one."""
        t, best = self._t, width.best
        bar = self._bar(width)
        return _below(
            max(
                best + t.diverged_regained_warn * max(self._start - best, 0.0),
                best * math.exp(min(bar, LARGEST_EXPONENT)) if self._positive else best + bar,
                t.diverged_ratio_warn * best if best > 0 else -math.inf,
            )
        )

    def _bar(self, width: _Width) -> float:
        """How far a level has to be from the best one: of logarithms, where all values are positive."""
        return SLACK * self._t.diverged_se * stats.MEDIAN_SE / math.sqrt(width.width) * self._noise

    def _see_spike(self, x: float, m5: float, base: Base, ask: set[str], now: set[str]) -> None:
        """Where TP201 begins an episode, and where TP202 has waited long enough for its end."""
        t, (median, scale, high) = self._t, base
        if x <= median and m5 <= high and self._episode is None:
            return
        rise, least = m5 - median, (t.spike_ratio - 1) * abs(median)
        above = m5 > high and rise >= t.spike_z * scale and rise >= least
        if above and (median <= 0 or math.log(m5 / median) >= SLACK * t.spike_log_z * scale / median):
            ask.update(("TP201", "TP401"))
            if self._episode is None:
                self._episode = (self._count, median)
        elif x > median and x - median >= max(t.fast_z * scale, (t.fast_ratio - 1) * abs(median)):
            ask.add("TP201")
        if self._episode is not None:
            since, left = self._episode
            length = self._count - since + 1
            if m5 <= left + (t.recovered_ratio - 1) * abs(left):
                self._episode = None
            elif length >= t.unrecovered_warn_records:
                ask.add("TP202")
                if 0 <= length - self.lost < FLAGGED_LATER:
                    now.add("TP202")

    def _see_shift(self, x: float, base: Base, ask: set[str]) -> None:
        """Where TP210's sum fires, and until it knows as many records after the change as before it."""
        t = self._t
        z, clip = (x - base.median) / base.scale if base.scale > 0 else 0.0, t.shift_clip
        self._above += (clip if z > clip else -clip if z < -clip else z) - t.shift_delta
        if self._above < self._lowest:
            self._lowest = self._above
        elif self._above - self._lowest > SLACK * t.shift_lambda:
            self._above = self._lowest = 0.0
            self._shift_until = self._count + t.shift_side
        if self._count <= self._shift_until:
            ask.add("TP210")

    def _see_levels(self, m5: float, ask: set[str]) -> None:
        """Where a level stands above its best one as far as TP203 wants it for a severity that it has not yet given."""
        for width in self._widths:
            if self._count < width.next:
                continue
            width.next = self._count + width.stride
            level = m5 if width.width == 5 else middle(sorted(self._values[-width.width :]))
            if level <= width.best:
                width.best = level
                width.near = self._near(width)
                self._bound()
            elif level >= width.near and self._is_away(level, width):
                ask.add("TP203")
        self._next_level = min(width.next for width in self._widths[1:])

    def climbs(self) -> bool:
        """Whether the latest 3 are, by their median, above all of the seven before them: no spike that comes back."""
        return self._count >= 10 and middle(sorted(self._values[-3:])) > max(self._values[-10:-3])

    def is_away(self) -> bool:
        """Whether the median of the latest 5 is as far above the best one as a FAIL of TP203 wants it, whatever the noise."""
        t, best = self._t, self._widths[0].best
        if self._count < 5:
            return False
        rise = middle(sorted(self._values[-5:])) - best
        far = best <= 0 or rise >= (t.diverged_ratio - 1) * best
        return far and rise > 0 and rise >= t.diverged_regained * max(self._start - best, 0.0)

    def _is_away(self, level: float, width: _Width) -> bool:
        t, best, stands = self._t, width.best, self._standing.get("TP203", 0)
        if stands >= FAIL or (best > 0 and level < (t.diverged_ratio if stands else t.diverged_ratio_warn) * best):
            return False
        rise, share = level - best, t.diverged_regained if stands else t.diverged_regained_warn
        if rise < share * max(self._start - best, 0.0):
            return False
        return (math.log(level / best) if self._positive else rise) >= self._bar(width)


class NormScreen:
    """TP401, TP402, TP403 and TP406 for the gradient norm."""

    def __init__(self, t: GradientThresholds, standing: Severities) -> None:
        self._t, self._standing = t, standing
        self._five: deque[float] = deque(maxlen=5)
        self._reference: list[float] = []
        self._limit = t.vanishing_norm
        self._baseline = RollingBaseline()
        self._last = math.nan
        self._count = self._same = self._zeros = self._low = 0
        self._lasts = False  # whether one of these goes on
        self._band = Band()  # where neither a norm that is new nor the median of 5 has anything to say

    def see(self, _: int, x: float, asked: Asked) -> None:
        """One more finite gradient norm."""
        self._five.append(x)
        count = self._count = self._count + 1
        if self._baseline.push(x):
            self._bound()
        band = self._band
        calm = band.low < x < band.high and x != self._last
        if not calm:
            band.outside.append(count)
        if not calm or band.outside[0] > count - 5 or self._lasts:
            self._look(x, asked.often)
        self._last = x

    def _look(self, x: float, ask: set[str]) -> None:
        """All that is not a matter of course."""
        t = self._t
        self._same = self._same + 1 if x == self._last else 0
        self._zeros = self._zeros + 1 if x == 0 else 0
        self._learn(x)
        if x and self._same >= t.stale_records - 1:
            ask.add("TP406")
        if self._zeros >= t.zero_records:
            ask.add("TP402")
        if len(self._five) == 5:
            self._see_level(sorted(self._five)[2], ask)
        self._lasts = self._same + self._zeros + self._low > 0

    def _see_level(self, m5: float, ask: set[str]) -> None:
        t, base = self._t, self._baseline.base
        ratio = t.explosion_ratio if self._standing.get("TP401", 0) >= WARN else t.explosion_ratio_warn
        if base is not None and m5 >= ratio * base.median > 0:
            ask.add("TP401")
        self._low = self._low + 1 if m5 <= self._limit else 0
        if self._low >= t.vanishing_records:
            ask.add("TP403")

    def _bound(self) -> None:
        """Between the norm that vanishes and the one that explodes."""
        base = self._baseline.base
        if base is not None and len(self._reference) == self._t.vanishing_reference[1]:
            self._band.move(self._limit, self._t.explosion_ratio_warn * base.median, self._five, self._count)

    def _learn(self, x: float) -> None:
        """The level of the first records, which TP403 compares with."""
        begin, end = self._t.vanishing_reference
        if len(self._reference) < end:
            self._reference.append(x)
            if len(self._reference) == end:
                level = middle(sorted(self._reference[begin:]))
                self._limit = max(self._limit, self._t.vanishing_share * level)
