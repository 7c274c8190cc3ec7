"""Screens of how long a step takes, and of the clock."""

from __future__ import annotations

from collections import deque

from trainproof import stats
from trainproof.live.asked import Asked
from trainproof.live.levels import middle
from trainproof.thresholds import PipelineThresholds, ThroughputThresholds


class PaceScreen:
    """TP901: the time of a step."""

    def __init__(self, t: ThroughputThresholds) -> None:
        self._t = t
        self._reference: list[float] = []
        self._limits: tuple[float, ...] = ()
        self._window: deque[float] = deque(maxlen=t.drop_width)
        self._since: list[int | None] = [None, None]
        self._told = [False, False]
        self._count = 0

    def see_throughput(self, x: float, now: set[str]) -> None:
        if x > 0:
            self.see(1 / x, now)

    def see(self, x: float, now: set[str]) -> None:
        """One more finite time of a step."""
        if x <= 0:
            return
        self._count += 1
        self._window.append(x)
        begin, end = self._t.drop_reference
        if self._count <= end:
            self._reference.append(x)
            if self._count == end:
                usual = stats.median(self._reference[begin:])
                self._limits = (self._t.drop_warn * usual, self._t.drop_fail * usual)
        elif self._is_due() and self._becomes_slow():
            now.add("TP901")

    def _is_due(self) -> bool:
        """Whether TP901 takes a level here."""
        late = self._count - stats.BASELINE_EXACT
        return self._count > self._t.drop_reference[1] + self._t.drop_width and (
            late <= 0 or late % stats.BASELINE_STRIDE == 0
        )

    def _becomes_slow(self) -> bool:
        level = middle(sorted(self._window)) if max(self._window) >= self._limits[0] else 0.0
        news = False
        for k, limit in enumerate(self._limits):
            if level < limit:
                self._since[k], self._told[k] = None, False
                continue
            since = self._since[k] = self._since[k] or self._count
            if not self._told[k] and self._count - since >= self._t.drop_records - 1:
                news = self._told[k] = True
        return news


class ClockScreen:
    """TP901 and TP921 for a clock, in seconds since some instant."""

    def __init__(self, t: ThroughputThresholds, pipeline: PipelineThresholds) -> None:
        self._pace = PaceScreen(t)
        self._gap = pipeline.gap_seconds
        self._last: tuple[int, float] | None = None
        self._seconds: deque[float] = deque(maxlen=t.drop_width)

    def see(self, step: int, x: float, asked: Asked) -> None:
        """One more finite reading."""
        if self._last is not None:
            before, then = self._last
            seconds = x - then
            if self._seconds and seconds >= self._gap * min(self._seconds) > 0:
                asked.often.add("TP921")
            self._seconds.append(seconds)
            self._pace.see(seconds / max(step - before, 1), asked.now)
        self._last = (step, x)
