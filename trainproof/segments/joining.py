"""A log cut into its runs, and each run put together again over its resumes."""

from __future__ import annotations

import numpy as np

from trainproof.frame import Frame, Repair, Segment, Series
from trainproof.segments.epochs import LARGEST_STEP
from trainproof.segments.falls import Fall
from trainproof.segments.order import all_later_wins, repeats
from trainproof.segments.repairs import duplicates_told, other_values, overlap_of, told


def cut(frame: Frame, main: Series, falls: list[Fall]) -> list[tuple[Frame, float, float]]:
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


def _stretches(series: Series, main: Series, falls: list[Fall]) -> list[tuple[int, int]]:
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


def one_run(run: Frame, main_name: str, falls: list[Fall]) -> Frame:
    """One run over its resumes: where they overlap the later stretch wins, and the overlap is told."""
    main = run[main_name]
    falls = [fall._replace(at=int(np.searchsorted(main.line, fall.line))) for fall in falls]
    resumes = [fall for fall in falls if fall.kind == "resume" and fall.at > 0]  # at 0 where a log's clock is damaged
    strays = [fall.at for fall in falls if fall.kind == "stray"]
    pieces = [main.take(slice(*bounds)) for bounds in _stretches(main, main, resumes)]
    overlaps = [overlap_of(a, b, len(main)) for a, b in zip(pieces, pieces[1:], strict=False)]
    repeated = repeats(main)
    duplicates = repeated.copy()
    for fall, overlap in zip(resumes, overlaps, strict=True):
        duplicates[fall.at :] &= main.step[fall.at :] > overlap.last_step
    repairs = [*duplicates_told(main, duplicates), *overlaps]
    if strays:
        repairs.append(
            told("disorder", main, np.array(strays), "single lines are out of place; they were sorted in by step")
        )
    elif not resumes:
        repairs += other_values(main.take(~repeated))
    resumed = [int(piece.step[0]) for piece in pieces[1:]]
    valid = {name: _without_overlaps(points, main, resumes, resumed) for name, points in run.items()}
    series = all_later_wins({name: points for name, points in valid.items() if len(points)})
    return run.replace(series=series, repairs=tuple(repairs), segments=_segments(series[main_name], resumed))


def _without_overlaps(series: Series, main: Series, resumes: list[Fall], resumed: list[int]) -> Series:
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


def with_resumes(run: Frame, after: list[int]) -> Frame:
    """The run with a segment that begins with the first main record behind each of these lines, where none does yet."""
    main = run.main
    if not after or main is None or not (np.diff(main.line) > 0).all():
        return run
    at = np.searchsorted(main.line, after, side="right")
    resumed = {int(step): f"resume at step {step}" for step in main.step[at[(at > 0) & (at < len(main))]].tolist()}
    begun = sorted({**resumed, **{each.start: each.why for each in run.segments}}.items())
    edges = [*np.searchsorted(main.step, [start for start, _ in begun]).tolist(), len(main)]
    stretches = zip(edges[:-1], edges[1:], begun, strict=True)
    return run.replace(segments=tuple(Segment(start, int(main.step[b - 1]), why) for _, b, (start, why) in stretches))


def by_step(frame: Frame, main: Series, repairs: list[Repair]) -> Frame:
    """The frame as one segment by step."""
    series = all_later_wins(dict(frame))
    return frame.replace(series=series, repairs=tuple(repairs), segments=(segment(series[main.name], "start"),))


def segment(main: Series, why: str) -> Segment:
    return Segment(int(main.step[0]), int(main.step[-1]), why)
