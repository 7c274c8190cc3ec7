"""Two or more processes that write into one log at once: their lines alternate, and each has the steps of a run of its own."""

from __future__ import annotations

import numpy as np

from trainproof.frame import Floats, Frame, Ints, Series
from trainproof.segments.falls import RUN_MINIMUM, STRAY_TIMES
from trainproof.segments.order import Bools
from trainproof.segments.repairs import REPEATS_SHARE, told

#: more writers than this are one run that logs a step often
WRITERS_MOST = 8
#: share of the slowest writer's lines that stand between lines of others
ALONE_SHARE = 0.5
#: share of its steps that another writer has too
SHARED_SHARE = 0.5
#: share of the common steps at which two writers' learning rates differ, where nothing else tells them apart
DIFFERENT_SHARE = 0.5
#: learning rates nearer than this to each other, relatively, are the same one
SAME_RATE = 1e-6


def split_writers(frame: Frame, main: Series, repeated: Bools, disorder: bool) -> list[Frame] | None:
    """The frame of each writer, in the order of the log, or None when it is not clear that there are several.

    A log of one process that logs a step several times (micro-batches, passes of PPO) looks much the same. Several writers are
    several only when their lines alternate while they are at different steps, or when their learning rates differ at the same ones.
    """
    kept = np.flatnonzero(~repeated)
    step = main.step[kept]
    if not disorder and (np.diff(step) == 0).sum() <= REPEATS_SHARE * len(step):
        return None
    rate = _rates(frame, main.line[kept])
    of = _writers(step, rate)
    if of is None or not _share_steps(step, of):
        return None
    lagging = bool((np.diff(step) < 0).any()) and _alternate(of)
    if not lagging and not _rates_differ(step, rate, of):
        return None
    return [_part(frame, main, kept, of, writer) for writer in range(int(of.max()) + 1)]


def _rates(frame: Frame, lines: Ints) -> Floats:
    """The learning rate logged last at each line, NaN where there is none."""
    rate = frame.get("lr")
    if rate is None or not len(rate):
        return np.full(len(lines), np.nan)
    at = np.searchsorted(rate.line, lines, side="right") - 1
    values: Floats = np.where(at >= 0, rate.value[np.maximum(at, 0)], np.nan)
    return values


def _writers(step: Ints, rate: Floats) -> Ints | None:
    """The writer of each record: the one whose steps it goes on; None when a record goes on nobody's and begins nothing."""
    distance = np.diff(np.unique(step))
    if not len(distance):
        return None
    usual = int(np.partition(distance, len(distance) // 2)[len(distance) // 2])
    beginning = int(step[0]) + usual
    last: list[tuple[int, float, int]] = []  # of each writer: step, learning rate, index of its last record
    of = []
    for i, (at, lr) in enumerate(zip(step.tolist(), rate.tolist(), strict=True)):
        going_on = [w for w, (before, _, _) in enumerate(last) if 0 < at - before < STRAY_TIMES * usual]
        if going_on:
            writer = min(going_on, key=lambda w: (_apart(lr, last[w][1]), last[w][2]))
            last[writer] = (at, lr, i)
        elif at <= beginning and len(last) < WRITERS_MOST:
            writer = len(last)
            last.append((at, lr, i))
        else:
            return None
        of.append(writer)
    counts = np.bincount(of)
    return np.array(of, np.int64) if len(counts) > 1 and counts.min() >= RUN_MINIMUM else None


def _apart(a: float, b: float) -> float:
    """How far two learning rates are apart, relatively; 0 when they are the same or one is not known."""
    apart = abs(a - b) / max(abs(a), abs(b), 1e-300)
    return apart if apart > SAME_RATE else 0.0


def _alternate(of: Ints) -> bool:
    """Whether the lines of the slowest writer mostly stand alone between those of others."""
    slowest = of == np.bincount(of).argmin()
    beside = np.concatenate([[False], slowest, [False]])
    alone = slowest & ~beside[:-2] & ~beside[2:]
    return int(alone.sum()) >= ALONE_SHARE * int(slowest.sum())


def _share_steps(step: Ints, of: Ints) -> bool:
    """Whether each writer has steps that others have too: lines of one run that are out of place do not."""
    for writer in range(int(of.max()) + 1):
        mine, others = step[of == writer], step[of != writer]
        if np.isin(mine, others).mean() < SHARED_SHARE:
            return False
    return True


def _rates_differ(step: Ints, rate: Floats, of: Ints) -> bool:
    """Whether the learning rates of each writer differ from those of the first at their common steps."""
    first = of == 0
    for writer in range(1, int(of.max()) + 1):
        mine = of == writer
        _, a, b = np.intersect1d(step[first], step[mine], return_indices=True)
        x, y = rate[first][a], rate[mine][b]
        differ = np.abs(x - y) > SAME_RATE * np.maximum(np.abs(x), np.abs(y))
        if differ.mean() < DIFFERENT_SHARE:
            return False
    return True


def _part(frame: Frame, main: Series, kept: Ints, of: Ints, writer: int) -> Frame:
    """What one writer logged: the points of its main records' lines, and those up to the next main record."""
    lines = main.line[kept]
    series = {}
    for name, points in frame.items():
        if name == main.name:
            series[name] = points.take(kept[of == writer])
            continue
        owner = of[np.maximum(np.searchsorted(lines, points.line, side="right") - 1, 0)]
        if (owner == writer).any():
            series[name] = points.take(owner == writer)
    count = int(of.max()) + 1
    detail = f"the lines of {count} writers alternate in the log; each was judged by itself"
    repair = told("writers", main, kept[of == writer], detail)
    part = frame.replace(series=series, repairs=(repair,))
    return part if writer == 0 else part.replace(dropped=(), dropped_count=0, events=())
