"""One file is not one run: appended runs, restarts, resumes, duplicated and shuffled lines.

Where a log goes back is decided within one series, the main one (the loss, else the longest); the others are cut at the same lines.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trainproof.frame import Frame, Ints, Repair, Segment, Series

#: share of falling steps above which a log is taken for disordered, not for one of restarts
DISORDER_SHARE = 0.10
#: records that an earlier stretch must have for what follows, from the beginning again, to be a run of its own
RUN_MINIMUM = 5


class _Cut(NamedTuple):
    """A fall of the main series' step: the line at which it goes back, and whether a new run begins there."""

    line: int
    new_run: bool


def split_runs(frame: Frame) -> list[Frame]:
    """The runs of one log, each ordered by step, with duplicates dropped; what was done is in `repairs` and `segments`."""
    main = frame.main
    if main is None:
        return [frame]
    if all(_rises(series) for series in frame.values()):
        return [frame.replace(segments=(_segment(main, "start"),))]
    unique, duplicates = _without_duplicates(main)
    falls = np.flatnonzero(np.diff(unique.step) < 0) + 1
    repairs = [_duplicates_repair(main, duplicates)] if duplicates.any() else []
    if len(falls) > max(1, DISORDER_SHARE * len(unique)):
        repairs.append(_disorder_repair(unique, falls))
        ordered = {name: _last_of_each_step(series, stable=True) for name, series in frame.items()}
        return [
            frame.replace(series=ordered, repairs=tuple(repairs), segments=(_segment(ordered[main.name], "start"),))
        ]
    cuts = _cuts(unique, falls)
    runs = _cut_at(frame, [cut.line for cut in cuts if cut.new_run])
    resumes = [cut.line for cut in cuts if not cut.new_run]
    joined = [_join_resumes(run, [line for line in resumes if _covers(run, line)]) for run in runs]
    joined[0] = joined[0].replace(repairs=(*repairs, *joined[0].repairs))
    if len(joined) == 1:
        return joined
    return [
        run.replace(source=run.source._replace(name=run.source.name or f"run {i} of {len(joined)}"))
        for i, run in enumerate(joined, 1)
    ]


def _rises(series: Series) -> bool:
    return len(series) < 2 or bool((np.diff(series.step) > 0).all())


def _segment(main: Series, why: str) -> Segment:
    return Segment(int(main.step[0]), int(main.step[-1]), why)


def _without_duplicates(series: Series) -> tuple[Series, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    """The series without the points that repeat an earlier (step, value), and which those are."""
    bits = series.value.view(np.int64)
    order = np.lexsort((np.arange(len(series)), bits, series.step))
    same = (np.diff(series.step[order]) == 0) & (np.diff(bits[order]) == 0)
    repeated = np.zeros(len(series), dtype=bool)
    repeated[order[1:][same]] = True
    return series.take(~repeated), repeated


def _duplicates_repair(main: Series, repeated: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Repair:
    at = np.flatnonzero(repeated)
    steps = main.step[at]
    return Repair(
        "duplicates",
        int(steps.min()),
        int(steps.max()),
        int(main.line[at[0]]),
        len(at),
        len(main),
        "the same step with the same value",
    )


def _disorder_repair(main: Series, falls: Ints) -> Repair:
    return Repair(
        "disorder",
        int(main.step.min()),
        int(main.step.max()),
        int(main.line[falls[0]]),
        len(falls),
        len(main),
        "the steps fall too often for restarts; the records were sorted by step",
    )


def _last_of_each_step(series: Series, *, stable: bool = False) -> Series:
    """The series by step; of several points of one step the one that was logged last."""
    if _rises(series):
        return series
    # Without an order of the log to trust, equal steps are ordered by value, so that any shuffle gives the same series.
    order = np.lexsort((series.value, series.step)) if stable else np.argsort(series.step, kind="stable")
    step = series.step[order]
    return series.take(order[np.append(step[1:] != step[:-1], True)])


def _cuts(main: Series, falls: Ints) -> list[_Cut]:
    """What each fall is: back to where the run began is a run of its own, anything else a resume."""
    cuts: list[_Cut] = []
    begin = 0
    for fall in falls:
        interval = int(np.median(np.diff(main.step[begin:fall]))) if fall - begin > 1 else 1
        from_start = main.step[fall] <= main.step[begin] + max(interval, 0)
        new_run = bool(from_start and fall - begin >= RUN_MINIMUM)
        cuts.append(_Cut(int(main.line[fall]), new_run))
        if new_run:
            begin = int(fall)
    return cuts


def _boundary(series: Series, main_line: int, before: int) -> int:
    """The index at which `series` crosses a cut: its own fall between the main records on either side, else the cut's line."""
    lo, hi = (int(i) for i in np.searchsorted(series.line, [before, main_line]))
    for i in range(max(lo, 1), hi):
        if series.step[i] < series.step[i - 1]:
            return i
    return hi


def _cut_at(frame: Frame, lines: list[int]) -> list[Frame]:
    """The frame cut into runs at the given lines of its main series."""
    if not lines or frame.main is None:
        return [frame]
    main = frame.main
    pieces: list[dict[str, Series]] = [{} for _ in range(len(lines) + 1)]
    for name, series in frame.items():
        edges = [0, *(_edge(series, main, line) for line in lines), len(series)]
        for piece, start, stop in zip(pieces, edges[:-1], edges[1:], strict=True):
            if stop > start:
                piece[name] = series.take(slice(start, stop))
    return [frame.replace(series=piece) for piece in pieces if piece]


def _edge(series: Series, main: Series, line: int) -> int:
    previous = int(np.searchsorted(main.line, line)) - 1
    return _boundary(series, line, int(main.line[previous]) + 1 if previous >= 0 else 0)


def _covers(run: Frame, line: int) -> bool:
    main = run.main
    return main is not None and bool(main.line[0] < line <= main.line[-1])


def _join_resumes(run: Frame, lines: list[int]) -> Frame:
    """One run over its resumes: where they overlap the later value wins, and the overlap is told."""
    main = run.main
    if main is None:
        return run
    segments: list[Segment] = []
    repairs: list[Repair] = []
    series: dict[str, Series] = {}
    for name, points in run.items():
        pieces = np.split(np.arange(len(points)), [_edge(points, main, line) for line in lines])
        kept = _later_wins([points.take(piece) for piece in pieces if len(piece)])
        series[name] = _last_of_each_step(_concatenated(name, kept))
        if points is main:
            originals = [main.take(piece) for piece in pieces if len(piece)]
            segments = _segments(kept)
            repairs = [
                _overlap(a, b, len(main))
                for a, b in zip(originals, originals[1:], strict=False)
                if b.step[0] <= a.step[-1]
            ]
    return run.replace(series=series, segments=tuple(segments), repairs=tuple(repairs))


def _later_wins(pieces: list[Series]) -> list[Series]:
    """Each piece without the points at or after the first step of any later piece."""
    kept = []
    floor = np.iinfo(np.int64).max
    for piece in reversed(pieces):
        kept.append(piece.take(piece.step < floor))
        floor = min(floor, int(piece.step[0]))
    return [piece for piece in reversed(kept) if len(piece)]


def _concatenated(name: str, pieces: list[Series]) -> Series:
    if len(pieces) == 1:
        return pieces[0]
    return Series(name, *(np.concatenate([getattr(p, part) for p in pieces]) for part in ("step", "value", "line")))


def _segments(pieces: list[Series]) -> list[Segment]:
    ordered = [_last_of_each_step(piece) for piece in pieces]
    return [_segment(p, "start" if i == 0 else f"resume at step {int(p.step[0])}") for i, p in enumerate(ordered)]


def _overlap(before: Series, after: Series, of: int) -> Repair:
    """What the resume logged again: how many records, and by how much they differ in units of the noise before."""
    resumed, last = int(after.step[0]), int(before.step.max())
    old = _last_of_each_step(before.take(before.step >= resumed))
    new = _last_of_each_step(after.take(after.step <= last))
    mine, theirs = old.align(new)
    differ = np.abs(old.value[mine] - new.value[theirs])
    steps = np.abs(np.diff(before.value))
    scale = float(np.median(steps[np.isfinite(steps)])) if np.isfinite(steps).any() else 0.0
    largest = float(np.nanmax(differ, initial=0.0))
    units = f", at most {largest / scale:.1f} x the usual step" if scale > 0 else ""
    changed = int((differ != 0).sum())
    detail = f"resumed at step {resumed} after step {last}; {changed} of {len(differ)} repeated records differ{units}"
    return Repair("overlap", resumed, last, int(after.line[0]), len(old), of, detail)
