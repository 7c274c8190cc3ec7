"""A panel as SVG: axes with round ticks, raw curves, findings as numbered bands, non-finite records as ticks. No script."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

from trainproof.report.escape import printable, shown
from trainproof.verdict import Finding, Panel, Severity

WIDTH, HEIGHT = 960, 240
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 22, 30
MOST_BANDS = 12
MOST_TICKS = 200

Point = tuple[float, float]


class Scale(NamedTuple):
    """From data to pixels along one axis."""

    low: float
    high: float
    start: float
    stop: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high, at = (self.low, self.high, value)
        if self.log:
            low, high, at = math.log10(low), math.log10(high), math.log10(value)
        share = (at / 2 - low / 2) / (high / 2 - low / 2) if high > low else 0.5  # halves: the span of two huge values overflows
        return self.start + min(1.0, max(0.0, share)) * (self.stop - self.start)


def render_panel(panel: Panel, findings: Sequence[Finding]) -> str:
    """The panel as an <svg> element."""
    x, y = _scales(panel)
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" preserveAspectRatio="xMidYMid meet">',
        f"<title>{escape(panel.title)}</title>",
        *_bands(findings, x),
        *_grid(x, y),
        *(_curve(i, name, steps, values, x, y) for i, (name, steps, values) in enumerate(panel.series)),
        *_points(panel, findings, x, y),
        *_nonfinite(panel.nonfinite, x),
        *_legend(panel),
        "</svg>",
    ]
    return "".join(parts)


def _scales(panel: Panel) -> tuple[Scale, Scale]:
    steps = [step for _, steps, _ in panel.series for step in steps] or [0]
    values = [v for _, _, values in panel.series for v in values if math.isfinite(v) and (v > 0 or not panel.log_scale)]
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    if low == high:
        low, high = low - max(abs(low), 1.0) / 2, high + max(abs(high), 1.0) / 2
    elif not panel.log_scale:
        margin = (high / 2 - low / 2) * 0.1
        low, high = low - margin, high + margin
    log = panel.log_scale and low > 0
    return Scale(min(steps), max(steps), LEFT, WIDTH - RIGHT), Scale(low, high, HEIGHT - BOTTOM, TOP, log)


def nice_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers (1, 2 or 5 times a power of ten) between low and high, about `count` of them."""
    span = high / 2 - low / 2
    if not (math.isfinite(span) and span > 0):
        return [low]
    raw = 2 * (span / count)
    if not math.isfinite(raw) or raw <= 0:
        return [low, high]
    power = 10.0 ** math.floor(math.log10(raw))
    size = next((m * power for m in (1, 2, 5, 10) if m * power >= raw), raw)
    if not (math.isfinite(size) and size > 0):
        return [low, high]
    first = math.ceil(low / size)
    ticks = [(first + i) * size for i in range(2 * count + 2)]
    return [tick for tick in ticks if low <= tick <= high]


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten between low and high, thinned to at most 7."""
    first, last = math.ceil(math.log10(low)), math.floor(math.log10(high))
    powers = list(range(first, last + 1))
    return [10.0**p for p in powers[:: max(1, -(-len(powers) // 7))]] or [low, high]


def _grid(x: Scale, y: Scale) -> Iterator[str]:
    ticks = log_ticks(y.low, y.high) if y.log else nice_ticks(y.low, y.high)
    for tick in ticks:
        at = y(tick)
        yield f'<path class="grid" d="M{LEFT} {at:.1f}H{WIDTH - RIGHT}"/>'
        yield f'<text class="tick" x="{LEFT - 6}" y="{at + 3.5:.1f}" text-anchor="end">{shown(float(f"{tick:.6g}"))}</text>'
    for tick in nice_ticks(x.low, x.high, 8):
        yield f'<text class="tick" x="{x(tick):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{shown(tick)}</text>'
    yield f'<text class="tick" x="{WIDTH - RIGHT}" y="{HEIGHT - 2}" text-anchor="end">step</text>'


def _curve(index: int, name: str, steps: Sequence[int], values: Sequence[float], x: Scale, y: Scale) -> str:
    pieces: list[str] = []
    pen_down = False
    for step, value in zip(steps, values, strict=True):
        drawable = math.isfinite(value) and (value > 0 or not y.log)
        if drawable:
            pieces.append(f"{'L' if pen_down else 'M'}{x(step):.1f} {y(value):.1f}")
        pen_down = drawable
    marks = ""
    if len(steps) <= 60:
        marks = "".join(
            f'<circle class="s{index % 4} dot" cx="{x(s):.1f}" cy="{y(v):.1f}" r="2"/>'
            for s, v in zip(steps, values, strict=True)
            if math.isfinite(v) and (v > 0 or not y.log)
        )
    return f'<path class="s{index % 4} curve" d="{"".join(pieces)}"><title>{escape(printable(name))}</title></path>{marks}'


def _bands(findings: Sequence[Finding], x: Scale) -> Iterator[str]:
    for number, finding in list(enumerate(findings, 1))[:MOST_BANDS]:
        if finding.severity is Severity.INFO:
            continue
        start, stop = x(finding.first_step), x(finding.last_step)
        kind = finding.severity.value.lower()
        yield (
            f'<rect class="band {kind}" x="{start:.1f}" y="{TOP}" width="{max(2.0, stop - start):.1f}" height="{HEIGHT - TOP - BOTTOM}">'
            f"<title>{number}: {escape(finding.rule)} {escape(finding.name)}</title></rect>"
            f'<text class="mark {kind}" x="{start + 3:.1f}" y="{TOP + 11 + 11 * ((number - 1) % 4)}">{number}</text>'
        )


def _points(panel: Panel, findings: Sequence[Finding], x: Scale, y: Scale) -> Iterator[str]:
    """The cited points of the panel's own metrics, as diamonds."""
    names = {name for name, _, _ in panel.series}
    for finding in findings[:MOST_BANDS]:
        for point in finding.evidence:
            if point.metric in names and not isinstance(point.value, str) and (point.value > 0 or not y.log):
                cx, cy = x(point.step), y(point.value)
                label = f"{finding.rule} step {point.step}: {point.value!r}"
                yield f'<path class="cited" d="M{cx:.1f} {cy - 4:.1f}l4 4l-4 4l-4 -4z"><title>{escape(printable(label))}</title></path>'


def _nonfinite(steps: Sequence[int], x: Scale) -> Iterator[str]:
    chosen = steps[:: max(1, -(-len(steps) // MOST_TICKS))]
    for step in chosen:
        yield f'<path class="nonfinite" d="M{x(step):.1f} {HEIGHT - BOTTOM}v-8"><title>not finite at step {step}</title></path>'


def _legend(panel: Panel) -> Iterator[str]:
    at = LEFT
    for i, (name, _, _) in enumerate(panel.series):
        label = printable(name)[:40]
        yield f'<path class="s{i % 4} curve" d="M{at} 11h18"/><text class="legend" x="{at + 23}" y="15">{escape(label)}</text>'
        at += 34 + 7 * len(label)
    if panel.log_scale:
        yield f'<text class="tick" x="{at}" y="15">log scale</text>'
    if panel.nonfinite:
        yield f'<text class="tick nonfinite-label" x="{WIDTH - RIGHT}" y="15" text-anchor="end">red ticks: not finite</text>'
