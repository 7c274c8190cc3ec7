"""A screen of losses that come back digit for digit."""

from __future__ import annotations


class RepeatScreen:
    """TP604: how many losses in a row are as far from when they last occurred; those of the last LATEST_LOSSES or more are known."""

    LATEST_LOSSES = 65536

    def __init__(self, records: int) -> None:
        self._records = records
        self._new: dict[float, int] = {}
        self._old: dict[float, int] = {}
        self._count = self._lag = self._length = 0

    def see(self, x: float) -> bool:
        """Whether TP604 may have something to say after one more finite loss."""
        self._count += 1
        last = self._new.get(x) or self._old.get(x)
        if last is None:
            self._length = 0
        else:
            lag = self._count - last
            self._length = self._length + 1 if lag == self._lag else 1
            self._lag = lag
        if len(self._new) >= self.LATEST_LOSSES:
            self._old, self._new = self._new, {}
        self._new[x] = self._count
        return self._length >= self._records
