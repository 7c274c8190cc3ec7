"""A curve in one line of text, and the findings marked under it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from trainproof.verdict import Finding, Panel

BLOCKS = "▁▂▃▄▅▆▇█"
#: for encodings without block characters
ASCII_BLOCKS = "_.-=+*#@"
#: findings marked under a curve
MOST_MARKS = 3


def sparkline(panel: Panel, width: int, blocks: str = BLOCKS) -> str:
    """The panel's first curve in `width` characters: the largest value of each stretch of steps; x where one is not finite."""
    _, steps, values = panel.series[0]
    heights = [_height(value, panel.log_scale) for value in values]
    finite = [height for height in heights if math.isfinite(height)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    cells: list[list[float]] = [[] for _ in range(width)]
    for step, height in zip(steps, heights, strict=True):
        cells[column(step, steps, width)].append(height)
    for step in panel.nonfinite:
        if steps[0] <= step <= steps[-1]:
            cells[column(step, steps, width)].append(math.nan)
    return "".join(_fill(cells, low, high, blocks))


def column(step: int, steps: Sequence[int], width: int) -> int:
    """The character under which a step lies."""
    share = (step - steps[0]) / (steps[-1] - steps[0])
    return min(width - 1, max(0, int(share * width)))


def marks(findings: Sequence[Finding], steps: Sequence[int], width: int) -> Iterator[tuple[Finding, str]]:
    """One line a finding for the first few: a caret under the step where it begins, and what it is."""
    for finding in findings[:MOST_MARKS]:
        at = column(finding.first_step, steps, width)
        label = f"{finding.rule}, step {finding.first_step}"
        fits_left = at >= len(label) + 1 and at + len(label) + 2 > width
        yield finding, f"{label} ^".rjust(at + 1) if fits_left else f"{' ' * at}^ {label}"


def _height(value: float, log_scale: bool) -> float:
    return math.log(value) if log_scale and value > 0 and math.isfinite(value) else value


def _fill(cells: list[list[float]], low: float, high: float, blocks: str) -> Iterator[str]:
    last = " "
    for cell in cells:
        if cell:  # a stretch without records repeats the one before it
            last = _block(cell, low, high, blocks)
        yield last


def _block(cell: list[float], low: float, high: float, blocks: str) -> str:
    if not all(map(math.isfinite, cell)):
        return "x"
    span = high / 2 - low / 2  # halves: the span of two huge values overflows
    share = (max(cell) / 2 - low / 2) / span if span > 0 else 0.0
    return blocks[min(len(blocks) - 1, int(share * len(blocks)))]
