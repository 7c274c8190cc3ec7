"""What a series was made of: coarse prints, sums and means since the start."""

from __future__ import annotations

import numpy as np

from trainproof.stats.arrays import THINNED, Floats, median, thinned


def print_quantum(x: Floats, most_digits: int = 6) -> float:
    """The step in which values were printed: 10^-d for the fewest decimals d that spell all of x; 0 when more than `most_digits`."""
    some = thinned(x)
    for digits in range(most_digits + 1):
        if (np.abs(np.round(some, digits) - some) <= 1e-12 * np.abs(some)).all():
            return float(10.0**-digits)
    return 0.0


def is_running_sum(x: Floats) -> bool:
    """True when x looks like a sum since the start, or since the start of each epoch: it rises by its first value, again and again.

    It falls at most in one record of ten, and then to one to three rises; what it rises by does not grow, and it reaches eight rises
    and more. A noisy loss falls in half of its records; one that diverges starts far above its first rise. 48 records at least.
    """
    if len(x) < 48:
        return False
    steps = np.diff(x)
    falls = steps < 0
    rises = steps[~falls]
    if falls.mean() > 0.1 or not rises.min() > 0:
        return False
    usual, quarter = median(rises), len(rises) // 4
    begins = np.append(x[0], x[1:][falls])
    steady = median(rises[-quarter:]) <= 2 * median(rises[:quarter]) and float(x.max()) >= 8 * usual
    return steady and bool((begins >= 0.3 * usual).all() and (begins <= 3 * usual).all())


def is_running_mean(x: Floats) -> bool:
    """True when x looks like a mean since the start: its steps shrink as 1/n (a single record can hardly move it any more).

    n times the step from record n-1 to n is then the noise of the records themselves, as large at the end as at the start: its median
    is compared over four quarters of the series, which steps of noisy records (growing with n) and of smooth curves do not pass.
    A loss that is never negative is no mean of records that now and then were (more than 2 % of those that it would be made of).
    48 records at least.
    """
    if len(x) < 48:
        return False
    at = thinned(np.arange(1, len(x) - 1), 4 * THINNED)
    steps, following = x[at] - x[at - 1], x[at + 1] - x[at]
    medians = [median(quarter) for quarter in np.array_split(np.abs(steps) * at, 4)]
    turns = float((np.sign(steps) != np.sign(following)).mean())
    if turns <= 0.3 or not 0 < max(medians) <= 2 * min(medians):
        return False
    before = np.arange(1, len(x))
    records = x[1:] - x[:-1] * (before / (before + 1))  # what x would be the mean of, each over its number
    return bool(x.min() < 0 or (records < -print_quantum(x)).mean() <= 0.02)
