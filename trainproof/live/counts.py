"""How many finite values of each metric there are, and the rules that are asked by their number."""

from __future__ import annotations

from bisect import bisect
from collections import defaultdict
from collections.abc import Sequence
from math import isfinite
from typing import NamedTuple

from trainproof import stats
from trainproof.frame import Frame
from trainproof.live.asked import Asked, first_asks
from trainproof.live.schedule import Judged
from trainproof.rules.registry import Rule

#: values of a metric by which every rule of the catalogue has enough to be asked
MOST_FIRST = 200


class Counted(NamedTuple):
    """A metric, its place in the record, what is judged by its count, and whether it is the main one."""

    place: int
    name: str
    judged: Judged
    main: bool


class Counts:
    """The counts of one stretch of a run. `calm` is the number of records of the names that came last, with finite values only, that may
    come without a word: each is counted by taking one off."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._first = first_asks(rules)
        self._whole = frozenset(rule.code for rule in rules if rule.whole_run)
        self._scheduled = stats.scheduled_counts()
        self._ahead = sorted(self._scheduled)
        self.begin()
        self._before: defaultdict[str, int] | None = defaultdict(int)

    def begin(self) -> None:
        """Count anew. How many values of the stretches before are left, once their steps are trained again, is told by `know`."""
        self.calm = self._calm_before = 0
        self.latest: tuple[Counted, ...] = ()
        self._of: defaultdict[str, int] = defaultdict(int)
        self._before = None  # values of each metric in the stretches before

    def know(self, frame: Frame) -> None:
        """The run as a whole, up to the latest record."""
        if self._before is None:
            self._settle()
            self._before = defaultdict(int, {name: len(frame[name].finite) - self._of[name] for name in frame})

    def see(self, counted: tuple[Counted, ...], values: Sequence[float], asked: Asked) -> None:
        """Count a record's finite values, and ask for what is judged by their number."""
        self._settle()
        for each in counted:
            if isfinite(values[each.place]):
                self._of[each.name] += 1
                self._ask(each, self._of[each.name], asked)
        self.latest = counted
        self.calm = self._calm_before = min((self._until_next(each.name) for each in counted), default=0)

    def _settle(self) -> None:
        """Count the records that came without a word."""
        for each in self.latest:
            self._of[each.name] += self._calm_before - self.calm
        self.calm = self._calm_before = 0

    def _ask(self, counted: Counted, count: int, asked: Asked) -> None:
        if count <= MOST_FIRST:
            asked.now.update(self._first.get((counted.name, count), ()))
            if counted.main:
                asked.now.update(self._first.get(("", count), ()))
        judged = self._judged_at(counted.judged, count)
        if self._before is None:
            asked.now.update(judged - self._whole)
        elif before := self._before[counted.name]:
            asked.now.update(judged - self._whole, self._judged_at(counted.judged, before + count) & self._whole)
        else:
            asked.now.update(judged)

    def _judged_at(self, judged: Judged, count: int) -> set[str]:
        """What is judged by this number of values."""
        found = set(judged.each) if count < stats.SCHEDULE_START else set()
        if count in self._scheduled:
            found.update(judged.at)
        if count - 1 in self._scheduled:
            found.update(judged.after)
        return found

    def _until_next(self, name: str) -> int:
        """How many values of a metric may follow before their number asks for something."""
        counts = (self._of[name], self._of[name] + (self._before[name] if self._before is not None else 0))
        if counts[0] < MOST_FIRST or not self._scheduled.isdisjoint(counts):
            return 0
        return min(self._ahead[bisect(self._ahead, count)] - count for count in counts) - 1
