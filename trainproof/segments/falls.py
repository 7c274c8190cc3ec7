"""Where the main series goes back, and what that is."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trainproof.frame import Frame, Ints, Series
from trainproof.segments.order import Bools, usual_distance

#: share of falling steps above which a log is taken for disordered, not for one of restarts
DISORDER_SHARE = 0.10
#: records that an earlier stretch must have for what follows, from the beginning again, to be a run of its own
RUN_MINIMUM = 5
#: runs and resumes that one log may have; more falls than that are disorder
CUTS_MOST = 1000
#: a stretch that goes on at less than this times its usual distance was trained; else its first record is a stray line
STRAY_TIMES = 2


class Fall(NamedTuple):
    """Where the main series goes back: the index and line of the first record of the new stretch, and what it is."""

    at: int
    line: int
    kind: str  # "run", "resume" or "stray"


def falls_of(frame: Frame, main: Series, repeated: Bools) -> list[Fall] | None:
    """The places where the main series goes back, and what they are; None when it is in disorder."""
    kept = np.flatnonzero(~repeated)
    step = main.step[kept]
    at = np.flatnonzero(step[1:] < step[:-1]) + 1
    usual = usual_distance(step)
    if len(at) and (len(at) > CUTS_MOST or _fits_together(step)):
        return None
    falls = _kinds(frame.get("epoch"), main, _stretch_begins(main.step, repeated, kept[at]), usual)
    runs = sum(fall.kind == "run" for fall in falls)
    if 1 < len(at) > runs and len(at) > DISORDER_SHARE * len(step):
        return None
    known = {fall.at for fall in falls}
    exact = [i for i in _exact_resumes(main.step, repeated) if i not in known]
    return sorted([*falls, *(Fall(i, int(main.line[i]), "resume") for i in exact)])


def _fits_together(step: Ints) -> bool:
    """Whether the steps fill each other's gaps, none nearer to another than they were logged: lines out of place, not a
    second pass over the same steps."""
    distance = np.diff(step)
    rising = distance[distance > 0]
    return len(rising) > 0 and int(np.diff(np.sort(step)).min()) >= int(rising.min())


def _stretch_begins(step: Ints, repeated: Bools, falls: Ints) -> Ints:
    """Index of the first record of each stretch that goes back: exact repeats that lead to the fall belong to it.

    A run with the seed of the run before repeats its first records exactly.
    """
    begins: Ints = np.maximum.accumulate(np.where(_led_to(step, repeated), 0, np.arange(len(step))))[falls]
    return begins


def _led_to(step: Ints, repeated: Bools) -> Bools:
    """Whether the record before each is an exact repeat that leads to it: one of the same stretch."""
    return np.append(False, repeated[:-1] & (step[1:] > step[:-1]))


def _exact_resumes(step: Ints, repeated: Bools) -> list[int]:
    """Index of each stretch of exact repeats that goes back and then goes on beyond what was logged: a faithful resume."""
    if looped := _loop(step, repeated):
        return looped
    if not repeated.any() or 3 * repeated.sum() >= len(step):
        return []  # so many are the work of several writers
    edges = np.flatnonzero(np.diff(np.concatenate([[False], repeated, [False]]).astype(np.int8)))
    starts, stops = edges[::2], edges[1::2]
    inside = stops < len(step)
    starts, stops = starts[inside], stops[inside]
    back = (step[starts] < step[starts - 1]) & (step[starts] > step[0])
    beyond = step[stops] > np.maximum.accumulate(step)[stops - 1]
    found: list[int] = starts[back & beyond].tolist()
    return found if len(found) <= min(CUTS_MOST, DISORDER_SHARE * len(step)) else []


def _loop(step: Ints, repeated: Bools) -> list[int]:
    """Index of each stretch of exact repeats where all of them, two or more, go back to one step within the run: a loop of restarts."""
    begins = np.flatnonzero(repeated & ~_led_to(step, repeated))
    if len(begins) < 2 or step[begins[0]] == step[0] or (step[begins] != step[begins[0]]).any():
        return []
    found: list[int] = begins.tolist()
    return found if (step[begins] < step[begins - 1]).all() else []


def _kinds(epoch: Series | None, main: Series, begins: Ints, usual: int) -> list[Fall]:
    """What each fall is: to where the run began is a run of its own, a line by itself is a stray, anything else a resume."""
    falls: list[Fall] = []
    run = 0
    step = main.step.tolist() if len(begins) else []
    bounds = [*begins.tolist(), len(main)]
    for at, end in zip(bounds[:-1], bounds[1:], strict=True):
        kind = "resume"
        if not _goes_on(main.step[at:end], usual):
            kind = "stray"
        elif step[at] - step[run] <= usual and at - run >= RUN_MINIMUM and _epoch_falls(epoch, main, run, at):
            kind, run = "run", at
        falls.append(Fall(at, int(main.line[at]), kind))
    return falls


def _goes_on(stretch: Ints, usual: int) -> bool:
    """Whether the second record of a stretch follows the first at a usual distance."""
    return len(stretch) > 1 and int(stretch[1]) - int(stretch[0]) < STRAY_TIMES * max(usual, usual_distance(stretch))


def _epoch_falls(epoch: Series | None, main: Series, begin: int, fall: int) -> bool:
    """Whether the epoch, where it is logged and had risen, went back with the step at least half the way."""
    if epoch is None or epoch is main or not len(epoch):
        return True
    at = np.clip(np.searchsorted(epoch.line, main.line[[begin, fall - 1, fall]], side="right") - 1, 0, None)
    first, before, after = epoch.value[at].tolist()
    return not before > first or not after > first / 2 + before / 2
