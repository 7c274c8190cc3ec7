"""Losses that come back digit for digit, followed value by value: TP604 and the guardian do the same."""

from __future__ import annotations

from array import array

from trainproof.stats import Floats
from trainproof.thresholds import DataOrderThresholds

#: values whose places are remembered, at least: what comes back after more of them is seen at the common judging points only
REMEMBERED = 65536


class Repeats:
    """How many values in a row are exactly those `lag` values before."""

    def __init__(self, t: DataOrderThresholds) -> None:
        self.lag = 0
        self._t = t
        self._length = 0
        self._values = array("d")
        self._places: dict[float, int] = {}
        self._older: dict[float, int] = {}

    def see(self, x: float) -> bool:
        """Whether, with this value, enough in a row have come back, none of few digits and nearly all of them different."""
        at, values = len(self._values), self._values
        if self.lag and values[at - self.lag] == x:
            self._length += 1
        else:
            before = self._places.get(x)
            if before is None and self._older:
                before = self._older.get(x)
            self.lag, self._length = (0, 0) if before is None else (at - before, 1)
        values.append(x)
        if len(self._places) >= REMEMBERED:
            self._older, self._places = self._places, {}
        self._places[x] = at
        return self._length >= self._t.repeat_records and self._is_telling()

    def _is_telling(self) -> bool:
        latest = self._values[-self._t.repeat_records :]
        return len(set(latest)) >= self._t.repeat_records - 1 and not any(has_few_digits(x, self._t) for x in latest)


def first_repeat(x: Floats, t: DataOrderThresholds) -> tuple[int, int] | None:
    """Where the first such stretch begins, and how many values before it stood already."""
    repeats = Repeats(t)
    for at, value in enumerate(x.tolist()):
        if repeats.see(value):
            return at - t.repeat_records + 1, repeats.lag
    return None


def has_few_digits(value: float, t: DataOrderThresholds) -> bool:
    """Whether a value has so few significant digits that it repeats by chance."""
    return float(f"{value:.{t.repeat_digits - 2}e}") == value
