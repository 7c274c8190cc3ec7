"""The curves of a comparison: the run over the baselines and their band, and the matched ratio."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from trainproof.comparing.comparison import Comparison
from trainproof.comparing.matching import Pairs
from trainproof.decimate import decimate
from trainproof.frame import Floats, Series
from trainproof.panels import MOST_POINTS
from trainproof.verdict import Panel

#: stretches in which a band is drawn, and baselines whose own ratio is drawn
BAND_STRETCHES, MOST_RATIOS = 300, 4


def comparison_panels(seen: Comparison, panels: Sequence[Panel], divergence: int | None) -> tuple[Panel, ...]:
    """The panels of the run, the baselines drawn into that of the loss, and after it the matched ratio."""
    usable = seen.usable(seen.loss, 2)
    if not usable or not panels:
        return tuple(panels)
    marks = ((divergence, "apart since here"),) if divergence is not None else ()
    first = msgspec.structs.replace(panels[0], marks=marks)
    if len(usable) == 1:
        first = msgspec.structs.replace(first, series=(*first.series, _curve(seen, *usable[0])))
    else:
        first = msgspec.structs.replace(first, band=_band([pairs for _, pairs in usable]))
    ratios = [drawn for i, pairs in usable[:MOST_RATIOS] if (drawn := _ratio(i, pairs, len(usable)))]
    if not ratios:
        return (first, *panels[1:])
    return (first, Panel("Matched ratio", "run / baseline", tuple(ratios), level=1.0, marks=marks), *panels[1:])


def _curve(seen: Comparison, baseline: int, pairs: Pairs) -> tuple[str, tuple[int, ...], tuple[float, ...]]:
    return _drawn(seen.name_of(seen.loss, baseline), pairs, pairs.base)


def _drawn(name: str, pairs: Pairs, value: Floats) -> tuple[str, tuple[int, ...], tuple[float, ...]]:
    """A series at the run's steps, thinned as the others are."""
    series = Series(name, pairs.step, value, pairs.line)
    kept = series.take(decimate(series, MOST_POINTS))
    return name, tuple(kept.step.tolist()), tuple(kept.value.tolist())


def _ratio(baseline: int, pairs: Pairs, count: int) -> tuple[str, tuple[int, ...], tuple[float, ...]] | None:
    if pairs.scale is not None:
        return None
    name, steps, logs = _drawn("ratio" if count == 1 else f"ratio to baseline {baseline + 1}", pairs, pairs.ratio)
    return name, steps, tuple(np.exp(logs).tolist())


def _band(each: Sequence[Pairs]) -> tuple[str, tuple[int, ...], tuple[float, ...], tuple[float, ...]]:
    """The lowest and the highest of the baselines over stretches of the run's steps."""
    x = each[0].x
    values = np.array([np.interp(x, pairs.x, pairs.base) for pairs in each])
    starts = np.unique(np.linspace(0, len(x), min(BAND_STRETCHES, len(x)), endpoint=False).astype(np.int64))
    low, high = np.minimum.reduceat(values.min(axis=0), starts), np.maximum.reduceat(values.max(axis=0), starts)
    return f"{len(each)} baselines", tuple(each[0].step[starts].tolist()), tuple(low.tolist()), tuple(high.tolist())
