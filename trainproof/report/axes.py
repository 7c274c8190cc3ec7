"""Axes: from numbers to shares of a picture, and round ticks with short labels."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from typing import NamedTuple

#: a scale starts at zero when its lowest value is under this share of its highest
NEAR_ZERO = 0.25
#: empty space above and below a curve, as a share of its height
MARGIN = 0.06
SMALLEST, LARGEST = math.ulp(0.0), sys.float_info.max


class Scale(NamedTuple):
    """From a value between `low` and `high` to a share from 0 to 1."""

    low: float
    high: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high, at = self.low, self.high, value
        if self.log:
            low, high, at = math.log10(low), math.log10(high), math.log10(value)
        span = high / 2 - low / 2  # halves: the span of two huge values overflows
        share = (at / 2 - low / 2) / span if span > 0 else 0.5
        return min(1.0, max(0.0, share))


def value_scale(values: Iterable[float], log: bool) -> Scale:
    """A scale with some space around the finite values; from zero where that costs little."""
    finite = [value for value in values if math.isfinite(value) and (value > 0 or not log)]
    low, high = min(finite, default=0.0), max(finite, default=1.0)
    if log and finite:
        ratio = high / low
        factor = max(ratio**MARGIN, 1.05) if math.isfinite(ratio) else 1.05
        return Scale(max(low / factor, SMALLEST), min(high * factor, LARGEST), True)
    if low == high:
        margin = abs(low) / 2 or 0.5
        return Scale(max(low - margin, -LARGEST), min(high + margin, LARGEST))
    margin = 2 * MARGIN * (high / 2 - low / 2)
    floor = 0.0 if 0 <= low <= NEAR_ZERO * high else max(low - margin, -LARGEST)
    return Scale(floor, min(high + margin, LARGEST))


def ticks(scale: Scale, count: int) -> list[tuple[float, str]]:
    """About `count` round values on the scale, each with its label."""
    values = _decades(scale, count) if scale.log else _rounds(scale.low, scale.high, count)
    return [(value, label(value, values)) for value in values]


def _rounds(low: float, high: float, count: int) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten between low and high."""
    raw = 2 * ((high / 2 - low / 2) / count)
    if not (0 < raw < math.inf):
        return [low]
    power = 10.0 ** math.floor(math.log10(raw))
    size = next((m * power for m in (1, 2, 5, 10) if m * power >= raw * 0.999), raw)
    if size == 0 or not math.isfinite(size):
        return [low, high]
    first, last = math.ceil(low / size), math.floor(high / size)
    return [value for i in range(first, min(last, first + 4 * count) + 1) if low <= (value := i * size) <= high]


def _decades(scale: Scale, count: int) -> list[float]:
    """Powers of ten, every so many; with their doubles and fives where there are few; round values where there are none."""
    first, last = max(-307, math.ceil(math.log10(scale.low))), math.floor(math.log10(scale.high))
    powers = range(first, last + 1)
    if len(powers) > 2:
        return [10.0**p for p in _rounds(first, last, count) if float(p).is_integer()]
    finer = [
        m * 10.0**p for p in range(first - 1, last + 1) for m in (1, 2, 5) if scale.low <= m * 10.0**p <= scale.high
    ]
    return finer if len(finer) > 1 else _rounds(scale.low, scale.high, count)


def label(value: float, among: list[float]) -> str:
    """A short label that tells `value` from its neighbours."""
    size = max(abs(v) for v in among)
    if value == 0 or size == 0:
        return "0"
    if not 1e-3 <= size < 1e6 or min(abs(v) for v in among if v) < 1e-4:
        mantissa, _, exponent = f"{value:.3g}".partition("e") if _is_plain(value) else f"{value:.3e}".partition("e")
        return _trimmed(mantissa) + (f"e{int(exponent)}" if exponent else "")
    return f"{round(value):,}" if float(value).is_integer() else f"{value:.6g}"


def _is_plain(value: float) -> bool:
    return 1e-3 <= abs(value) < 1e5


def _trimmed(mantissa: str) -> str:
    return mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
