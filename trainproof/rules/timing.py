"""What the throughput rules share: how long a step took."""

from __future__ import annotations

import numpy as np

from trainproof.frame import Frame, Series
from trainproof.rules.registry import CannotTell

#: records with a step time, at least
LEAST = 20
#: share of the main series' records that need a time of their own for step times to be taken from it
SHARE = 0.9


def step_times(frame: Frame) -> Series:
    """The time of a step, record by record, in whatever unit the log has: 1 / throughput, or as logged, or from its clock.

    The throughput comes first: in tokens it stands when samples grow longer on purpose.

    Raises CannotTell when the log has none of them. Clocks of reinforcement learning tell episodes, not steps, and are not used.
    """
    for name in ("throughput", "step_time"):
        if name in frame:
            series = _positive(frame[name])
            if len(series) >= LEAST:
                return series if name == "step_time" else _with(series, 1 / series.value)
    clock = frame.get("time")
    main = frame.main
    if clock is None or main is None or frame.objective == "rl" or len(clock) < max(LEAST, SHARE * len(main)):
        raise CannotTell("no step time, throughput or clock in the log")
    if (np.diff(clock.value) < 0).any() or not np.isfinite(clock.value).all():
        raise CannotTell("the clock of the log goes back")
    elapsed = np.diff(clock.value) / np.maximum(np.diff(clock.step), 1)
    return _positive(Series("time", clock.step[1:], elapsed, clock.line[1:]))


def _positive(series: Series) -> Series:
    finite = series.finite
    return finite.take(finite.value > 0)


def _with(series: Series, value: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> Series:
    """`series` with other values: the inverse of a throughput may overflow."""
    keep = np.isfinite(value)
    return Series(series.name, series.step[keep], value[keep], series.line[keep])
