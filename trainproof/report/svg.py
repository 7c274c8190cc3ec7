"""A panel as SVG: axes with round ticks, raw curves, findings as numbered bands, non-finite records as ticks. No script.

Text, bands and points sit at percentages of the picture, and only the curves are stretched: the picture fills any width, and letters
and strokes keep their size.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from typing import NamedTuple

from trainproof.report.axes import Scale, ticks, value_scale
from trainproof.report.escape import clipped, exact, shown
from trainproof.verdict import Finding, Panel

#: height of the plot, of a lane for findings above it, and of the tick that marks a non-finite record, in pixels
HEIGHT, LANE, TICK = 190, 20, 10
#: lanes drawn above a plot; further findings are in the list only
MOST_LANES = 3
#: share of the width that a finding's number needs
CHIP = 0.035
#: a finding over more than this share of the plot gets no tint: there is no rest to stand out from
WHOLE = 0.9
#: a series of at most this many points is drawn with a dot at each
MOST_DOTS = 80
#: resolution of the stretched curves
GRID_X, GRID_Y = 2000, 1000


class Mark(NamedTuple):
    """A finding with its number in the report's list; a related finding has the number of the one that it goes with."""

    number: int
    finding: Finding


class Picture(NamedTuple):
    """A panel ready for the page: `svg`, the height above the plot that its lanes need (pixels), and how many findings it leaves out."""

    panel: Panel
    svg: str
    above: int
    left_out: int


def draw(panel: Panel, marks: Sequence[Mark], steps: tuple[int, int], key: str) -> Picture:
    """The panel over the steps from steps[0] to steps[1], with the findings that concern it. key: makes its ids unique on the page."""
    x = Scale(*steps) if steps[0] < steps[1] else Scale(steps[0] - 1, steps[1] + 1)
    y = value_scale(_values(panel), panel.log_scale)
    lanes = _lanes(marks, x)
    placed = [(mark, lane) for mark, lane in zip(marks, lanes, strict=True) if lane < MOST_LANES]
    parts = [
        f'<svg class="plot" height="{HEIGHT}" role="img" aria-labelledby="{key}-t" aria-describedby="{key}-d">',
        f'<title id="{key}-t">{_text(panel.title)}</title><desc id="{key}-d">{_text(describe(panel))}</desc>',
        *_grid(x, y),
        *_area(panel, x, y),
        *_level(panel, y),
        *_verticals(panel, x),
        *(_band(mark, lane, x) for mark, lane in placed),
        *_curves(panel, x, y),
        *_dots(panel, x, y),
        *_cited(panel, [mark for mark, _ in placed], x, y),
        *_nonfinite(panel.nonfinite, x),
        "</svg>",
    ]
    above = LANE * (1 + max((lane for _, lane in placed), default=-1))
    return Picture(panel, "".join(parts), above, len(marks) - len(placed))


def describe(panel: Panel) -> str:
    """The picture in words."""
    told = []
    for name, steps, values in panel.series:
        finite = [value for value in values if math.isfinite(value)]
        if finite:
            told.append(
                f"{name} from {shown(finite[0])} to {shown(finite[-1])} over steps {steps[0]} to {steps[-1]}, "
                f"lowest {shown(min(finite))}, highest {shown(max(finite))}"
            )
        else:
            told.append(f"{name} has no finite value")
    if panel.band is not None and panel.band[2]:
        told.append(f"{panel.band[0]} between {shown(min(panel.band[2]))} and {shown(max(panel.band[3]))}")
    told += [f"{text}, step {step}" for step, text in panel.marks]
    if panel.nonfinite:
        told.append(f"not finite from step {panel.nonfinite[0]}")
    return "; ".join(told) + "."


def _values(panel: Panel) -> Iterator[float]:
    """Everything that has to fit on the value axis."""
    for _, _, values in panel.series:
        yield from values
    if panel.band is not None:
        yield from (*panel.band[2], *panel.band[3])
    if panel.level is not None:
        yield panel.level


def _text(text: str) -> str:
    return escape(clipped(text, 1000))


def _percent(share: float) -> str:
    return f"{100 * share:.2f}".rstrip("0").rstrip(".") + "%"


def _grid(x: Scale, y: Scale) -> Iterator[str]:
    for value, label in ticks(y, 6):
        at = _percent(1 - y(value))
        yield (
            f'<line class="grid" x2="100%" y1="{at}" y2="{at}"/>'
            f'<text class="tick" x="-8" y="{at}" dy=".35em" text-anchor="end">{label}</text>'
        )
    for i, (value, label) in enumerate(ticks(x, 8)):
        odd = " odd" if i % 2 else ""  # left out on a narrow screen
        yield f'<text class="tick{odd}" x="{_percent(x(value))}" y="{HEIGHT + 18}" text-anchor="middle">{label}</text>'


def _area(panel: Panel, x: Scale, y: Scale) -> Iterator[str]:
    """The band of other runs, under the curves."""
    if panel.band is None:
        return
    name, steps, lows, highs = panel.band
    there = [(step, value) for step, value in zip(steps, lows, strict=True) if _drawable(value, y)]
    back = [(step, value) for step, value in zip(steps, highs, strict=True) if _drawable(value, y)]
    points = " ".join(f"{round(x(s) * GRID_X)},{round((1 - y(v)) * GRID_Y)}" for s, v in [*there, *reversed(back)])
    yield (
        f'<svg width="100%" height="100%" viewBox="0 0 {GRID_X} {GRID_Y}" preserveAspectRatio="none">'
        f'<polygon class="area" points="{points}"><title>{_text(name)}</title></polygon></svg>'
    )


def _level(panel: Panel, y: Scale) -> Iterator[str]:
    """A value to compare with, across the picture."""
    if panel.level is not None and _drawable(panel.level, y):
        at = _percent(1 - y(panel.level))
        yield f'<line class="level" x2="100%" y1="{at}" y2="{at}"><title>{shown(panel.level)}</title></line>'


def _verticals(panel: Panel, x: Scale) -> Iterator[str]:
    """Steps to mark, from top to bottom, with a word each."""
    for step, text in panel.marks:
        at, late = x(step), x(step) > 0.7
        side = f'dx="{-6 if late else 6}" text-anchor="{"end" if late else "start"}"'
        yield (
            f'<line class="vertical" x1="{_percent(at)}" x2="{_percent(at)}" y1="0" y2="{HEIGHT}"/>'
            f'<text class="vertical" x="{_percent(at)}" y="14" {side}>{_text(text)}, step {step}</text>'
        )


def _lanes(marks: Sequence[Mark], x: Scale) -> list[int]:
    """The lane of each finding: the first one that is free where the finding lies."""
    ends: list[list[tuple[float, float]]] = []
    chosen = []
    for mark in marks:
        start, stop = x(mark.finding.first_step), x(mark.finding.last_step)
        stop = max(stop, start + CHIP)
        lane = next(
            (i for i, taken in enumerate(ends) if all(stop <= begin or start >= end for begin, end in taken)), len(ends)
        )
        if lane == len(ends):
            ends.append([])
        ends[lane].append((start, stop))
        chosen.append(lane)
    return chosen


def _band(mark: Mark, lane: int, x: Scale) -> str:
    """A tint over the plot from the first to the last step; above it a bar and the finding's number."""
    finding = mark.finding
    kind = finding.severity.value
    start, stop = x(finding.first_step), x(finding.last_step)
    at, width, top = _percent(start), _percent(stop - start), -LANE * (lane + 1)
    tint = f'<rect class="band" x="{at}" width="{width}" y="0" height="{HEIGHT}"/>' if stop - start < WHOLE else ""
    told = f"{mark.number}: {finding.rule} {finding.name}, steps {finding.first_step} to {finding.last_step}"
    return (
        f'<g class="{kind}"><title>{_text(told)}</title>'
        f"{tint}"
        f'<line class="edge" x1="{at}" x2="{at}" y1="{top + 8}" y2="{HEIGHT}"/>'
        f'<rect class="bar" x="{at}" width="{width}" y="{top + 7}" height="3"/>'
        f"{_chip(mark.number, kind, at, top)}</g>"
    )


def _chip(number: int, kind: str, at: str, top: int) -> str:
    """The number on a tag: square for FAIL, round for WARN, so that colour is not alone in telling them apart."""
    width = 10 + 7 * len(str(number))
    return (
        f'<svg x="{at}" y="{top}" width="1" height="1" overflow="visible">'
        f'<rect class="chip" x="-1" width="{width}" height="16" rx="{2 if kind == "FAIL" else 8}"/>'
        f'<text class="number" x="{width / 2 - 1}" y="12" text-anchor="middle">{number}</text></svg>'
    )


def _curves(panel: Panel, x: Scale, y: Scale) -> Iterator[str]:
    yield f'<svg width="100%" height="100%" viewBox="0 0 {GRID_X} {GRID_Y}" preserveAspectRatio="none" overflow="visible">'
    for i, (name, steps, values) in enumerate(panel.series):
        yield f'<path class="curve s{i % 4}" d="{_path(steps, values, x, y)}"><title>{_text(name)}</title></path>'
    yield "</svg>"


def _path(steps: Sequence[int], values: Sequence[float], x: Scale, y: Scale) -> str:
    """The curve in whole units of the grid, each point relative to the one before; a gap where a value cannot be drawn."""
    pieces: list[str] = []
    last: tuple[int, int] | None = None
    for step, value in zip(steps, values, strict=True):
        if not _drawable(value, y):
            last = None
            continue
        point = round(x(step) * GRID_X), round((1 - y(value)) * GRID_Y)
        if last is None:
            pieces.append(f"M{point[0]} {point[1]}h0")  # a point between two gaps still shows
        elif point != last:
            down = point[1] - last[1]
            pieces.append(f"l{point[0] - last[0]}{down if down < 0 else f' {down}'}")
        last = point
    return "".join(pieces)


def _drawable(value: float, y: Scale) -> bool:
    return math.isfinite(value) and (value > 0 or not y.log)


def _dots(panel: Panel, x: Scale, y: Scale) -> Iterator[str]:
    """A dot at each point of a short series, with its step and value."""
    for i, (name, steps, values) in enumerate(panel.series):
        if len(steps) > MOST_DOTS:
            continue
        for step, value in zip(steps, values, strict=True):
            if _drawable(value, y):
                yield (
                    f'<circle class="dot s{i % 4}" cx="{_percent(x(step))}" cy="{_percent(1 - y(value))}" r="2.5">'
                    f"<title>{_text(name)} {exact(value)} at step {step}</title></circle>"
                )


def _cited(panel: Panel, marks: Sequence[Mark], x: Scale, y: Scale) -> Iterator[str]:
    """A ring around each point of this panel that a finding cites."""
    names = {name for name, _, _ in panel.series}
    for mark in marks:
        for point in mark.finding.evidence:
            if point.metric in names and not isinstance(point.value, str) and _drawable(point.value, y):
                told = f"{mark.number}: {point.metric} {exact(point.value)} at step {point.step}"
                yield (
                    f'<circle class="cited" cx="{_percent(x(point.step))}" cy="{_percent(1 - y(point.value))}" r="5">'
                    f"<title>{_text(told)}</title></circle>"
                )


def _nonfinite(steps: Sequence[int], x: Scale) -> Iterator[str]:
    """Ticks on the axis; neighbours that would touch are one block."""
    blocks: list[list[float]] = []
    for step in steps:
        at = x(step)
        if blocks and at - blocks[-1][1] < 0.004:
            blocks[-1][1] = at
        else:
            blocks.append([at, at])
    for start, stop in blocks:
        begin, end, top = _percent(start), _percent(stop), HEIGHT - TICK
        yield f'<line class="nonfinite" x1="{begin}" x2="{begin}" y1="{top}" y2="{HEIGHT}"/>'
        if end != begin:
            yield f'<rect class="nonfinite" x="{begin}" width="{_percent(stop - start)}" y="{top}" height="{TICK}"/>'
