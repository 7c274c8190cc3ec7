"""The record counts at which trends are judged, live and finished alike."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from trainproof.stats.arrays import Ints, distinct

#: records before the first count of the common schedule
SCHEDULE_START = 50


def schedule(n: int) -> Ints:
    """The record counts at which trends are judged: ceil(50 x 1.05^k) up to n, and n itself. One schedule for every judge."""
    if n <= 0:
        return np.empty(0, np.int64)
    counts = _counts(n)
    return np.append(counts[counts < n], n)


@lru_cache(maxsize=16)
def _counts(n: int) -> Ints:
    """ceil(50 x 1.05^k) up to n; unlike `schedule`, without n itself: what holds at n holds however long the log grows."""
    steps = max(0, math.ceil(math.log(max(n / SCHEDULE_START, 1), 1.05))) + 1
    counts = distinct(np.ceil(SCHEDULE_START * 1.05 ** np.arange(steps)).astype(np.int64))[0]
    counts = counts[counts <= n]
    counts.flags.writeable = False
    return counts


@lru_cache(maxsize=1)
def scheduled_counts() -> frozenset[int]:
    """The counts of the common schedule up to ten billion records, more than a log may hold."""
    return frozenset(_counts(10**10).tolist())


def renewals(n: int, first: int) -> Ints:
    """The record counts at which a slowly moving statistic is renewed: each from `first` to 50, then the common schedule."""
    return np.append(np.arange(first, min(n + 1, SCHEDULE_START)), _counts(n))
