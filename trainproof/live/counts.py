"""How many finite values of each metric there are, and the rules that are asked by their number."""

from __future__ import annotations

from bisect import bisect
from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import isfinite
from typing import NamedTuple

from trainproof import stats
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

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._first = first_asks(rules)
        self._scheduled = stats.scheduled_counts()
        self._ahead = sorted(self._scheduled)
        self.begin()

    def begin(self) -> None:
        """Count anew."""
        self.calm = self._calm_before = 0
        self.latest: tuple[Counted, ...] = ()
        self._of: defaultdict[str, int] = defaultdict(int)

    def see(self, counted: tuple[Counted, ...], values: Sequence[float], asked: Asked) -> None:
        """Count a record's finite values, and ask for what is judged by their number."""
        for each in self.latest:
            self._of[each.name] += self._calm_before - self.calm
        for each in counted:
            if isfinite(values[each.place]):
                self._of[each.name] += 1
                self._ask(each, self._of[each.name], asked)
        self.latest = counted
        self.calm = self._calm_before = min((self._until_next(self._of[each.name]) for each in counted), default=0)

    def _ask(self, counted: Counted, count: int, asked: Asked) -> None:
        judged = counted.judged
        if count <= MOST_FIRST:
            asked.now.update(self._first.get((counted.name, count), ()))
            if counted.main:
                asked.now.update(self._first.get(("", count), ()))
            if count < stats.SCHEDULE_START:
                asked.now.update(judged.each)
        if judged.at and count in self._scheduled:
            asked.now.update(judged.at)
        if judged.after and count - 1 in self._scheduled:
            asked.now.update(judged.after)

    def _until_next(self, count: int) -> int:
        """How many values may follow before their number asks for something."""
        if count < MOST_FIRST or count in self._scheduled:
            return 0
        return self._ahead[bisect(self._ahead, count)] - count - 1
