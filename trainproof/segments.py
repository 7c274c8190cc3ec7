"""One file is not one run: appended runs, restarts, resumes, duplicated and shuffled lines.

Where a log goes back is decided within one series, the main one (the loss, else the longest), never across series: an
evaluation may be numbered by epochs beside a loss numbered by iterations. The other series are cut at the same lines.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainproof.frame import Floats, Frame, Ints, Repair, Segment, Series

#: share of falling steps above which a log is taken for disordered, not for one of restarts
DISORDER_SHARE = 0.10
#: share of steps that were logged again with another value from which on it is told
REPEATS_SHARE = 0.10
#: records that an earlier stretch must have for what follows, from the beginning again, to be a run of its own
RUN_MINIMUM = 5
#: runs and resumes that one log may have; more falls than that are disorder
CUTS_MOST = 1000
#: a stretch that goes on at less than this times its usual distance was trained; else its first record is a stray line
STRAY_TIMES = 2
#: share of epoch changes at which the step begins anew, for steps to be counted within epochs
EPOCH_SHARE = 0.8
#: median absolute deviation to standard deviation of a normal distribution
MAD_TO_SIGMA = 1.4826
#: steps and epochs beyond these are not counted on: the result has to fit 64 bits
LARGEST_STEP, LARGEST_EPOCH = 2**62, 2**31

Bools = NDArray[np.bool_]


class _Fall(NamedTuple):
    """Where the main series goes back: the index and line of the first record of the new stretch, and what it is."""

    at: int
    line: int
    kind: str  # "run", "resume" or "stray"


def split_runs(frame: Frame) -> list[Frame]:
    """The runs of one log, each with every series ordered by unique steps; what was done is in `repairs` and `segments`.

    The series given are in the order of the log. Of several values of one step the one that was logged last is kept.
    A log in order is handed on as it is, its arrays not copied.
    """
    main = frame.main
    if main is None or not len(main):
        return [frame]
    if all(_rises(step) for step in {id(series.step): series.step for series in frame.values()}.values()):
        return [frame.replace(segments=(_segment(main, "start"),))]
    frame, repairs = _numbered_on(frame, main)
    main = frame[main.name]
    repeated = _repeats(main)
    falls = _falls(frame, main, repeated)
    if falls is None:
        return [_sorted(frame, main, [*repairs, *_duplicates(main, repeated), _disorder(main.take(~repeated))])]
    runs = [
        _one_run(run, main.name, [fall for fall in falls if line < fall.line < end and fall.kind != "run"])
        for run, line, end in _cut(frame, main, [fall for fall in falls if fall.kind == "run"])
    ]
    runs[0] = runs[0].replace(repairs=(*repairs, *runs[0].repairs))
    return runs if len(runs) == 1 else [_named(run, i) for i, run in enumerate(runs, 1)]


def _rises(step: Ints) -> bool:
    return bool((step[1:] > step[:-1]).all())


def _segment(main: Series, why: str) -> Segment:
    return Segment(int(main.step[0]), int(main.step[-1]), why)


def _named(run: Frame, number: int) -> Frame:
    given = run.source.name
    return run.replace(source=run.source._replace(name=f"{given}, run {number}" if given else f"run {number}"))


def _repeats(series: Series) -> Bools:
    """Which points repeat an earlier one exactly: the same step with the same value (a NaN repeats a NaN)."""
    repeated = np.zeros(len(series), dtype=bool)
    if _rises(series.step):
        return repeated
    bits = np.ascontiguousarray(series.value).view(np.int64)
    order = np.lexsort((bits, series.step))  # stable: of equal points the first in the log comes first
    same = (np.diff(series.step[order]) == 0) & (np.diff(bits[order]) == 0)
    repeated[order[1:][same]] = True
    return repeated


def _order(step: Ints) -> Ints:
    """Indices of the last record of each step, by step."""
    order = np.argsort(step, kind="stable")
    ordered = step[order]
    last: Ints = order[np.append(ordered[1:] != ordered[:-1], True)]
    return last


def _later_wins(series: Series) -> Series:
    """The series by step; of several points of one step the one that was logged last."""
    return series if _rises(series.step) else series.take(_order(series.step))


def _all_later_wins(series: dict[str, Series]) -> dict[str, Series]:
    """The same for all series; those that were logged together share their steps and lines, before and after."""
    done: dict[tuple[int, int], tuple[Series, Ints]] = {}
    result = {}
    for name, points in series.items():
        key = (id(points.step), id(points.line))
        if key in done:
            first, order = done[key]
            result[name] = Series(name, first.step, points.value[order], first.line)
        elif _rises(points.step):
            result[name] = points
        else:
            order = _order(points.step)
            result[name] = points.take(order)
            done[key] = (result[name], order)
    return result


# Steps that are counted within an epoch


def _numbered_on(frame: Frame, main: Series) -> tuple[Frame, list[Repair]]:
    """The frame with its steps counted on over the epochs, where the logger counts them anew in each epoch."""
    epochs = _epochs_at(frame, main, main.line)
    if epochs is None:
        return frame, []
    changes = np.flatnonzero(np.diff(epochs) > 0) + 1
    anew = changes[main.step[changes] < main.step[changes - 1]]
    falls = int((main.step[1:] < main.step[:-1]).sum())
    if not len(anew) or len(anew) < EPOCH_SHARE * len(changes) or 2 * len(anew) < falls:
        return frame, []
    stride = int(main.step.max()) - int(main.step.min()) + _usual_distance(main.step)
    first_epoch = int(epochs.min())
    if (int(epochs.max()) - first_epoch + 2) * stride >= LARGEST_STEP:
        return frame, []
    series = {}
    for name, points in frame.items():
        at = _epochs_at(frame, main, points.line)
        offset = 0 if at is None else (at - first_epoch) * stride
        series[name] = Series(name, points.step + offset, points.value, points.line)
    detail = f"the step begins anew in each epoch; it was counted on, {stride} an epoch"
    return frame.replace(series=series), [_told("epochs", main, anew, detail)]


def _epochs_at(frame: Frame, main: Series, lines: Ints) -> Ints | None:
    """The whole epoch in which each line was logged, shape of `lines`; None when not every record of the log has one."""
    epoch = frame.get("epoch")
    if epoch is None or epoch is main or len(epoch) < len(main):
        return None
    if not (np.abs(epoch.value) < LARGEST_EPOCH).all():  # NaN is not
        return None
    at = np.clip(np.searchsorted(epoch.line, lines, side="right") - 1, 0, None)
    whole: Ints = np.floor(epoch.value[at]).astype(np.int64)
    return whole


def _usual_distance(step: Ints) -> int:
    """The median of the distances by which the steps rise, at least 1."""
    distance = np.diff(step)
    rising = distance[distance > 0]
    return int(np.partition(rising, len(rising) // 2)[len(rising) // 2]) if len(rising) else 1


# Where the main series goes back, and what that is


def _falls(frame: Frame, main: Series, repeated: Bools) -> list[_Fall] | None:
    """The places where the main series goes back, and what they are; None when it is in disorder."""
    kept = np.flatnonzero(~repeated)
    step = main.step[kept]
    at = np.flatnonzero(step[1:] < step[:-1]) + 1
    usual = _usual_distance(step)
    if len(at) and (len(at) > CUTS_MOST or _fits_together(step)):
        return None
    falls = _kinds(frame.get("epoch"), main, _stretch_begins(main.step, repeated, kept[at]), usual)
    runs = sum(fall.kind == "run" for fall in falls)
    if 1 < len(at) > runs and len(at) > DISORDER_SHARE * len(step):
        return None
    return sorted([*falls, *(_Fall(i, int(main.line[i]), "resume") for i in _exact_resumes(main.step, repeated))])


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
    leads = np.append(
        False, repeated[:-1] & (step[1:] > step[:-1])
    )  # the record before is a repeat that leads to this one
    begins: Ints = np.maximum.accumulate(np.where(leads, 0, np.arange(len(step))))[falls]
    return begins


def _exact_resumes(step: Ints, repeated: Bools) -> list[int]:
    """Index of each stretch of exact repeats that goes back and then goes on beyond what was logged: a faithful resume."""
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


def _kinds(epoch: Series | None, main: Series, begins: Ints, usual: int) -> list[_Fall]:
    """What each fall is: to where the run began is a run of its own, a line by itself is a stray, anything else a resume."""
    falls: list[_Fall] = []
    run = 0
    step = main.step.tolist() if len(begins) else []
    bounds = [*begins.tolist(), len(main)]
    for at, end in zip(bounds[:-1], bounds[1:], strict=True):
        kind = "resume"
        if not _goes_on(main.step[at:end], usual):
            kind = "stray"
        elif step[at] - step[run] <= usual and at - run >= RUN_MINIMUM and _epoch_falls(epoch, main, run, at):
            kind, run = "run", at
        falls.append(_Fall(at, int(main.line[at]), kind))
    return falls


def _goes_on(stretch: Ints, usual: int) -> bool:
    """Whether the second record of a stretch follows the first at a usual distance."""
    return len(stretch) > 1 and int(stretch[1]) - int(stretch[0]) < STRAY_TIMES * max(usual, _usual_distance(stretch))


def _epoch_falls(epoch: Series | None, main: Series, begin: int, fall: int) -> bool:
    """Whether the epoch, where it is logged and had risen, went back with the step at least half the way."""
    if epoch is None or epoch is main or not len(epoch):
        return True
    at = np.clip(np.searchsorted(epoch.line, main.line[[begin, fall - 1, fall]], side="right") - 1, 0, None)
    first, before, after = epoch.value[at].tolist()
    return not before > first or not after > first / 2 + before / 2


# Cutting and joining


def _cut(frame: Frame, main: Series, falls: list[_Fall]) -> list[tuple[Frame, float, float]]:
    """The frame cut into runs, each with the line of its first main record and that of the next run's."""
    if not falls:
        return [(frame, -np.inf, np.inf)]
    pieces: list[dict[str, Series]] = [{} for _ in range(len(falls) + 1)]
    for name, series in frame.items():
        for piece, (start, stop) in zip(pieces, _stretches(series, main, falls), strict=True):
            if stop > start:
                piece[name] = series.take(slice(start, stop))
    lines = [-np.inf, *(float(fall.line) for fall in falls), np.inf]
    runs = []
    for piece, line, end in zip(pieces, lines[:-1], lines[1:], strict=True):
        events = tuple(event for event in frame.events if line <= event.line < end)
        run = frame.replace(series=piece, events=events, ended=frame.ended and end == np.inf)
        runs.append((run if line == -np.inf else run.replace(dropped=(), dropped_count=0), line, end))
    return runs


def _stretches(series: Series, main: Series, falls: list[_Fall]) -> list[tuple[int, int]]:
    """(start, stop) of the points of `series` between the falls of the main series.

    Between the main records on either side of a fall the series' own fall decides; without one, the line.
    """
    if not falls:
        return [(0, len(series))]
    at = np.array([fall.at for fall in falls], np.int64)
    edges = np.searchsorted(series.line, main.line[at])
    own = np.flatnonzero(series.step[1:] < series.step[:-1]) + 1
    nearest = np.searchsorted(series.line[own], main.line[at - 1], side="right")
    has = nearest < len(own)
    edges[has] = np.minimum(edges[has], own[nearest[has]])
    bounds = [0, *edges.tolist(), len(series)]
    return list(zip(bounds[:-1], bounds[1:], strict=True))


def _one_run(run: Frame, main_name: str, falls: list[_Fall]) -> Frame:
    """One run over its resumes: where they overlap the later stretch wins, and the overlap is told."""
    main = run[main_name]
    falls = [fall._replace(at=int(np.searchsorted(main.line, fall.line))) for fall in falls]
    resumes = [fall for fall in falls if fall.kind == "resume"]
    strays = [fall.at for fall in falls if fall.kind == "stray"]
    pieces = [main.take(slice(*bounds)) for bounds in _stretches(main, main, resumes)]
    overlaps = [_overlap(a, b, len(main)) for a, b in zip(pieces, pieces[1:], strict=False)]
    repeated = _repeats(main)
    duplicates = repeated.copy()
    for fall, overlap in zip(resumes, overlaps, strict=True):
        duplicates[fall.at :] &= main.step[fall.at :] > overlap.last_step
    repairs = [*_duplicates(main, duplicates), *overlaps]
    if strays:
        repairs.append(
            _told("disorder", main, np.array(strays), "single lines are out of place; they were sorted in by step")
        )
    elif not resumes:
        repairs += _other_values(main.take(~repeated))
    resumed = [int(piece.step[0]) for piece in pieces[1:]]
    valid = {name: _without_overlaps(points, main, resumes, resumed) for name, points in run.items()}
    series = _all_later_wins({name: points for name, points in valid.items() if len(points)})
    return run.replace(series=series, repairs=tuple(repairs), segments=_segments(series[main_name], resumed))


def _without_overlaps(series: Series, main: Series, resumes: list[_Fall], resumed: list[int]) -> Series:
    """The series, in the order of the log, without what a later stretch made void: all from the step where it resumed."""
    if not resumes:
        return series
    kept = []
    floor = LARGEST_STEP + 1
    bounds = _stretches(series, main, resumes)
    for (start, stop), step in zip(reversed(bounds), [*reversed(resumed), LARGEST_STEP], strict=True):
        piece = series.take(slice(start, stop))
        kept.append(piece.take(piece.step < floor))
        floor = min(floor, step, int(piece.step.min(initial=step)))
    kept.reverse()
    return Series(
        series.name, *(np.concatenate([getattr(p, part) for p in kept]) for part in ("step", "value", "line"))
    )


def _segments(main: Series, resumed: list[int]) -> tuple[Segment, ...]:
    """The stretches that are left of one run, disjoint and ascending."""
    begun = [(int(main.step[0]), "start")]
    for step in resumed:
        begun = [(start, why) for start, why in begun if start < step]
        begun.append((step, f"resume at step {step}" if begun else "start"))
    edges = [*np.searchsorted(main.step, [start for start, _ in begun]).tolist(), len(main)]
    stretches = zip(edges[:-1], edges[1:], begun, strict=True)
    return tuple(Segment(int(main.step[a]), int(main.step[b - 1]), why) for a, b, (_, why) in stretches if b > a)


def _sorted(frame: Frame, main: Series, repairs: list[Repair]) -> Frame:
    """The frame as one segment by step."""
    series = _all_later_wins(dict(frame))
    return frame.replace(series=series, repairs=tuple(repairs), segments=(_segment(series[main.name], "start"),))


# What is told of it


def _told(kind: str, main: Series, at: Ints, detail: str) -> Repair:
    """The repair of the points `at` of the main series, in the order of the log."""
    steps = main.step[at]
    return Repair(kind, int(steps.min()), int(steps.max()), int(main.line[at[0]]), len(at), len(main), detail)


def _duplicates(main: Series, repeated: Bools) -> list[Repair]:
    at = np.flatnonzero(repeated)
    return [_told("duplicates", main, at, "the same step with the same value")] if len(at) else []


def _other_values(main: Series) -> list[Repair]:
    """Steps that were logged several times with different values, when they are many (the series has no exact repeats)."""
    order = np.argsort(main.step, kind="stable")
    again = np.sort(order[1:][np.diff(main.step[order]) == 0])
    if len(again) <= REPEATS_SHARE * len(main):
        return []
    return [_told("repeats", main, again, "the same step with another value; the last one was kept")]


def _disorder(main: Series) -> Repair:
    at = np.flatnonzero(main.step[1:] < main.step[:-1]) + 1
    detail = "the lines are out of order; they were sorted by step"
    whole = _told("disorder", main, np.arange(len(main)), detail)
    return whole._replace(line=int(main.line[at[0]]), count=len(at))


def _overlap(before: Series, after: Series, of: int) -> Repair:
    """What the resume logged again: how many records, and by how much they differ in units of the noise before."""
    resumed, last = int(after.step[0]), int(before.step.max())
    old = _later_wins(before.take(before.step >= resumed))
    new = _later_wins(after.take((after.step >= resumed) & (after.step <= last)))
    mine, theirs = old.align(new)
    a, b = old.value[mine], new.value[theirs]
    with np.errstate(invalid="ignore", over="ignore"):
        differ = np.abs(a - b)
    changed = int(((a != b) & ~(np.isnan(a) & np.isnan(b))).sum())
    detail = f"resumed at step {resumed} after step {last}; {changed} of {len(mine)} repeated records differ"
    noise = _noise(before.value)
    if changed and noise > 0:
        detail += f", by at most {float(np.max(differ[np.isfinite(differ)], initial=0.0)) / noise:.3g} x the noise"
    return Repair("overlap", resumed, last, int(after.line[0]), len(old), of, detail)


def _noise(value: Floats) -> float:
    """Standard deviation of the noise, robustly, from the differences of neighbours (von Neumann 1941); 0 when unknown."""
    with np.errstate(invalid="ignore", over="ignore"):
        step = np.abs(np.diff(value))
    step = step[np.isfinite(step)]
    middle = float(np.partition(step, len(step) // 2)[len(step) // 2]) if len(step) else 0.0
    return MAD_TO_SIGMA * middle / 2**0.5
