"""Screens of the learning rate and of the loss scaler: states that last, jumps, and the records at which a rule on them may speak."""

from __future__ import annotations

import math

from trainproof.live.asked import Asked
from trainproof.thresholds import NumericsThresholds, Thresholds


class RateScreen:
    """TP301 and TP305: how long the learning rate has been 0, or next to nothing of its peak; TP702: it rises again; TP925: it still rises.

    `top` is the peak of the stretches before; the run has `total` planned steps, and a warm-up of so many.
    """

    def __init__(self, t: Thresholds, top: float = 0.0) -> None:
        self._t = t.learning_rate
        self._resume, self._pipeline = t.resume, t.pipeline
        self.top = top
        self._total: float | None = None
        self._warmup: float | None = None
        self._last = self._warm = math.inf  # the last rate, and the one at the end of the declared warm-up
        self._peak = 0.0
        self._last_step: int | None = None
        self._count = self._streak = 0
        self._zeros = self._zero_steps = 0.0
        #: level -> the step and the record at which the rate came down to it
        self._low: dict[float, tuple[int, int]] = {}

    def declare(self, total: float | None, warmup: float | None) -> None:
        """The steps that are planned, and those of the warm-up."""
        self._total, self._warmup = total, warmup

    def see(self, step: int, rate: float, asked: Asked) -> None:
        """One more finite learning rate."""
        self._count += 1
        if rate > self._last:
            self._see_rise(rate, asked.now)
        if rate > self._peak:
            self._peak = rate
            if rate > self.top:
                self.top = rate
        self._last = rate
        if rate == 0:
            self._see_zero(step, self._total, asked)
        else:
            self._streak = 0
        if self._low or rate <= self._t.exhausted_level * self._peak:
            for level in (self._t.exhausted_level, self._t.exhausted_level_warn):
                if rate > level * self._peak:
                    self._low.pop(level, None)
                elif self._has_lasted(level, step, self._total):
                    asked.now.add("TP305")
        self._last_step = step
        if self._warmup:
            self._see_warmup(step, rate, self._warmup, asked)

    def _see_warmup(self, step: int, rate: float, declared: float, asked: Asked) -> None:
        if step <= declared:
            self._warm = rate
        elif step > self._pipeline.warmup_times * declared and rate > (1 + self._pipeline.warmup_above) * self._warm:
            asked.often.add("TP925")

    def _see_rise(self, rate: float, now: set[str]) -> None:
        t, last = self._resume, self._last
        if (
            rate >= t.rebound_times * last
            and last < t.rebound_below * self.top
            and rate - last >= t.rebound_least * self.top
        ):
            now.add("TP702")

    def _see_zero(self, step: int, total: float | None, asked: Asked) -> None:
        self._streak += 1
        if self._streak >= self._t.zero_records:
            asked.often.add("TP301")
        moved = 0 if self._last_step is None else step - self._last_step
        records, steps = self._zeros, self._zero_steps
        self._zeros, self._zero_steps = records + 1, steps + moved
        if total:
            passed = steps < self._t.zero_share * total <= self._zero_steps
        else:
            passed = records < self._t.zero_share * self._count <= self._zeros
        if passed:
            asked.now.add("TP301")

    def _has_lasted(self, level: float, step: int, total: float | None) -> bool:
        """Whether the rate has, at this very record, been low for as long as TP305 wants it."""
        since, record = self._low.setdefault(level, (step, self._count))
        enough = since + self._t.exhausted_hold * total if total else math.inf
        crossed = self._last_step is not None and self._last_step < enough <= step
        return crossed or self._count - record == self._t.exhausted_records - 1


class ScalerScreen:
    """TP102, TP105, TP106 (and TP201, which they corroborate): the loss scale falls or lies low, a step was skipped."""

    def __init__(self, t: NumericsThresholds, rules: frozenset[str]) -> None:
        self._t, self._rules = t, rules
        self._scale = self._skipped = math.inf
        self._anew = False  # the count of skipped steps has fallen: it is no running total
        self._low = 0

    def see_scale(self, _: int, value: float, asked: Asked) -> None:
        """One more loss scale."""
        now, often = asked
        self._low = self._low + 1 if value <= self._t.scale_low else 0
        if value < self._scale != math.inf:
            now.update(self._rules)
        elif self._low >= self._t.scale_low_records:
            often.add("TP106")
        self._scale = value if math.isfinite(value) else self._scale

    def see_skipped(self, _: int, value: float, asked: Asked) -> None:
        """One more count of skipped steps; a running total that stood still is no event."""
        self._anew |= value < self._skipped != math.inf
        if value > 0 and (value > self._skipped or value <= 1 or self._anew):
            asked.often.update(self._rules)
        self._skipped = value if math.isfinite(value) else self._skipped
