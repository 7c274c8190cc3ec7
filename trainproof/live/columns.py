"""Screens of what is logged beside the loss, the gradient norm and the rate: experts, ranks, parts of the loss, sizes, counters, memory."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence

from trainproof.facts import Facts
from trainproof.live.asked import Asked, See, SeeTogether
from trainproof.live.levels import RollingBaseline, middle
from trainproof.live.timing import ClockScreen, PaceScreen
from trainproof.names import higher_is_better
from trainproof.rules.architecture import AUXILIARY, is_size
from trainproof.rules.machines import RANK
from trainproof.rules.restarts import COUNTERS
from trainproof.thresholds import (
    ArchitectureThresholds,
    LossThresholds,
    PipelineThresholds,
    Thresholds,
    ThroughputThresholds,
)


class Streak:
    """Counts the records in a row at which something holds."""

    def __init__(self, records: int) -> None:
        self._records, self._length = records, 0

    def see(self, holds: bool) -> bool:
        """Whether it has held, at this very record, for as long as it should."""
        self._length = self._length + 1 if holds else 0
        return self._length == self._records


class ExpertScreen:
    """TP951: the loads of all experts in one record."""

    def __init__(self, t: ArchitectureThresholds) -> None:
        self._t = t
        self._dead, self._uneven = Streak(t.expert_records), Streak(t.expert_records)

    def see(self, loads: Sequence[float], now: set[str]) -> None:
        t, n, whole = self._t, len(loads), sum(loads)
        known = 0 < whole < math.inf and min(loads) >= 0 and (whole >= t.expert_tokens or whole <= n)
        most = max(loads) * n / whole if known else 0.0
        few = sum(load * n / whole < t.expert_starved for load in loads) / n if known else 0.0
        dead = known and (most >= t.expert_top * n or (few >= t.expert_starved_share and n >= 4))
        uneven = known and (most >= t.expert_times or min(loads) == 0)
        if self._dead.see(dead) | self._uneven.see(dead or uneven):
            now.add("TP951")


class RankScreen:
    """TP908: the step times of all ranks in one record."""

    def __init__(self, t: ThroughputThresholds) -> None:
        self._t = t
        self._ratios: list[deque[float]] = []
        self._slow: list[bool] = []

    def see(self, times: Sequence[float], now: set[str]) -> None:
        t = self._t
        if len(times) != len(self._ratios):
            self._ratios, self._slow = [deque(maxlen=t.rank_records) for _ in times], [False] * len(times)
        usual = middle(sorted(times))
        for rank, (time, ratios) in enumerate(zip(times, self._ratios, strict=True)):
            ratios.append(time / usual if usual > 0 and math.isfinite(time) else 1.0)
            slow = len(ratios) == t.rank_records and middle(sorted(ratios)) >= t.rank_times
            if slow and not self._slow[rank]:
                now.add("TP908")
            self._slow[rank] = slow


class PartScreen:
    """TP211: the parts of the loss in one record; those that have always been the same are none."""

    def __init__(self, t: LossThresholds) -> None:
        self._t = t
        self._first: dict[str, float] = {}
        self._varied: set[str] = set()
        self._tops: deque[str] = deque(maxlen=5)
        self._rules = Streak(t.component_records)

    def see(self, parts: Mapping[str, float], now: set[str]) -> None:
        self._varied.update(name for name, value in parts.items() if self._first.setdefault(name, value) != value)
        sizes = {name: abs(value) for name, value in parts.items() if name in self._varied}
        top = max(sizes, key=sizes.__getitem__, default="")
        total = sum(sizes.values())
        self._tops.append(top if 0 < total < math.inf and sizes[top] >= self._t.component_share * total else "")
        if self._rules.see(top != "" and self._tops.count(top) > 2):
            now.add("TP211")


class StillScreen:
    """TP952: how long an auxiliary loss has been the same."""

    def __init__(self, t: ArchitectureThresholds) -> None:
        self._near = t.auxiliary_near
        self._value = math.nan
        self._same = Streak(t.auxiliary_records - 1)

    def see(self, x: float, now: set[str]) -> None:
        same = abs(x - self._value) <= self._near * abs(x)
        self._value = self._value if same else x
        if self._same.see(same):
            now.add("TP952")


class SizeScreen:
    """TP953 and TP923: a metric's median of 5 far above, or far below, the level before."""

    def __init__(self, t: ArchitectureThresholds, pipeline: PipelineThresholds) -> None:
        self._t, self._pipeline = t, pipeline
        self._five: deque[float] = deque(maxlen=5)
        self._begin: list[float] = []
        self._start = math.nan
        self._baseline = RollingBaseline()
        self._high, self._low, self._cliff = (
            Streak(t.growth_hold),
            Streak(t.growth_hold),
            Streak(pipeline.cliff_records),
        )

    def see(self, x: float, now: set[str]) -> None:
        """One more finite value of a logit, a norm, an entropy, or of a metric that is better when higher."""
        self._five.append(x)
        if len(self._begin) < self._t.growth_hold:
            self._begin.append(x)
            self._start = middle(sorted(self._begin))
        self._baseline.push(x)
        base = self._baseline.base
        if len(self._five) < 5:
            return
        m5, median = sorted(self._five)[2], math.nan if base is None else base.median
        if self._high.see(m5 >= self._t.growth_jump * median > 0) | self._low.see(
            m5 < self._t.attention_share * self._start
        ):
            now.add("TP953")
        t = self._pipeline
        if self._cliff.see(m5 <= t.cliff_share * median and median >= t.cliff_level):
            now.add("TP923")


class Beside:
    """These screens of one stretch of a run, by the metrics that they see."""

    def __init__(self, t: Thresholds) -> None:
        self._t = t
        self._limit = math.inf  # of the memory
        self.expected: tuple[float, float, float] | None = (
            None  # the epoch: at least and at most a step, and so much more
        )
        self._asked_from = 0.0
        self._off = 0
        self._seers: dict[str, See | None] = {}
        self._together: dict[tuple[str, ...], SeeTogether] = {}
        self._near = 0

    def declare(self, facts: Facts) -> None:
        """What the run has declared by now."""
        self._limit = facts.number("memory_limit") or math.inf
        each, total, epochs = (facts.number(name) for name in ("steps_per_epoch", "total_steps", "epochs"))
        self._asked_from = self._t.pipeline.epoch_share * (total or 0.0)
        if each:
            self.expected = (1 / each, 1 / each, 1.0)
        elif total and epochs:
            self.expected = ((epochs - 1) / total, epochs / total, 0.0)

    def see_epoch(self, step: int, epoch: float, asked: Asked) -> None:
        """TP926: an epoch that is not what the step makes it."""
        if self.expected is None or step < self._asked_from:
            return
        least, most, more = self.expected
        t = self._t.pipeline
        off = epoch < (1 - t.epoch_near) * least * step or epoch > (1 + t.epoch_near) * (most * step + more)
        self._off = self._off + 1 if off else 0
        if self._off >= t.epoch_records:
            asked.often.add("TP926")

    def seer(self, name: str) -> See | None:
        """What sees the values of a metric."""
        if name not in self._seers:
            self._seers[name] = self._made(name)
        return self._seers[name]

    def together(self, names: Sequence[str]) -> Iterator[SeeTogether]:
        """What sees several values of a record of these metrics at once."""
        t = self._t
        experts = tuple(name for name in names if name.startswith("expert_load/"))
        ranks = tuple(name for name in names if RANK.fullmatch(name.lower()))
        parts = tuple(name for name in names if name.startswith("loss/"))
        if len(experts) > 1:
            yield self._together.setdefault(experts, _of_values(experts, ExpertScreen(t.architecture).see))
        if len(ranks) >= t.throughput.rank_least:
            yield self._together.setdefault(ranks, _of_values(ranks, RankScreen(t.throughput).see))
        if len(parts) > 1:
            yield self._together.setdefault(parts, _of_parts(parts, PartScreen(t.loss).see))

    def _made(self, name: str) -> See | None:
        t = self._t
        if name == "memory":
            return self._see_memory
        if name == "time":
            return ClockScreen(t.throughput, t.pipeline).see
        if name in ("step_time", "throughput"):
            pace = PaceScreen(t.throughput)
            return _now(pace.see if name == "step_time" else pace.see_throughput)
        if name in COUNTERS:
            return _counter(t.resume.counter_least)
        if name.startswith("loss/"):
            return _now(StillScreen(t.architecture).see) if AUXILIARY.fullmatch(name) else None
        if is_size(name) or (not name.startswith(("eval/", "test/", "reward", "lr")) and higher_is_better(name)):
            return _now(SizeScreen(t.architecture, t.pipeline).see)
        return None

    def _see_memory(self, _: int, value: float, asked: Asked) -> None:
        """TP906 speaks at the second value near the limit."""
        if value >= self._t.throughput.memory_near * self._limit:
            self._near += 1
            if self._near == 2:
                asked.now.add("TP906")


def _now(see: Callable[[float, set[str]], None]) -> See:
    return lambda _, value, asked: see(value, asked.now)


def _of_values(names: Sequence[str], see: Callable[[Sequence[float], set[str]], None]) -> SeeTogether:
    return lambda record, asked: see([record[name] for name in names], asked.now)


def _of_parts(names: Sequence[str], see: Callable[[Mapping[str, float], set[str]], None]) -> SeeTogether:
    return lambda record, asked: see({name: record[name] for name in names}, asked.now)


def _counter(least: float) -> See:
    """TP703: a counter that falls."""
    last = -math.inf

    def seen(_: int, value: float, asked: Asked) -> None:
        nonlocal last
        if value < last - least:
            asked.often.add("TP703")
        last = value

    return seen
