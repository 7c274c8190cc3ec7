"""Along what two runs are matched: steps, tokens, samples or epochs, chosen from what both have."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from trainproof.comparing.reference import Curve, Reference
from trainproof.errors import UsageError
from trainproof.frame import Floats

AXES = ("step", "tokens", "samples", "epoch")
#: relative difference of what one step consumes from which on steps do not match
CONSUMES = 0.02
#: declared facts whose product is the samples of one step
BATCH_FACTS = ("batch_size", "accumulation", "world_size")


class Axis(NamedTuple):
    """What the positions count, and why it was chosen."""

    kind: str
    why: str


def choose_axis(run: Reference, baselines: Sequence[Reference], wanted: str | None) -> Axis:
    """The axis on which all of them can be matched. Raises UsageError when it is asked for and one of them has no such axis."""
    if wanted is not None:
        lacking = [one.label for one in (run, *baselines) if not _has(one, wanted)]
        if lacking:
            raise UsageError(
                f"--align {wanted}: {lacking[0]} has no {wanted}; expected one of {_possible(run, baselines)}"
            )
        return Axis(wanted, "as asked for")
    for kind in ("tokens", "samples"):
        if (rate := _rate(run, kind)) is None:
            continue
        other = next((r for one in baselines if (r := _rate(one, kind)) and _differ(rate, r)), None)
        if other is not None and all(_has(one, kind) for one in baselines):
            return Axis(kind, f"a step of the run consumes {rate:.6g} {kind}, one of a baseline {other:.6g}")
    batches = {batch for one in (run, *baselines) if (batch := _declared_batch(one)) is not None}
    if len(batches) > 1 and all(_has(one, "epoch") for one in (run, *baselines)):
        return Axis("epoch", "the declared batches differ, and neither tokens nor samples are known for all")
    return Axis("step", "the runs do not differ in what a step consumes, as far as the logs tell")


def along(axis: Axis, one: Reference, metric: str) -> Curve | None:
    """A metric along the axis; None when the baseline has no such metric. Points whose position is unknown are left out."""
    curve = one.curve(metric)
    if curve is None or axis.kind == "step":
        return curve
    x = _positions(one, axis.kind, curve.x)
    start = None if curve.start is None else _positions(one, axis.kind, curve.start)
    kept = np.flatnonzero(np.isfinite(x) if start is None else np.isfinite(x) & np.isfinite(start))
    if len(kept):
        kept = kept[np.append(True, np.diff(x[kept]) > 0)]
    return Curve(x[kept], curve.value[kept], curve.step[kept], curve.line[kept], None if start is None else start[kept])


def _positions(one: Reference, kind: str, step: Floats) -> Floats:
    """The axis' value at each step, interpolated between records; NaN outside of what was logged."""
    counter = one.curve(kind)
    if counter is None or not _rises(counter):
        batch = _declared_batch(one)
        return step * batch if kind == "samples" and batch else np.full(len(step), math.nan)
    return np.interp(step, counter.x, counter.value, left=math.nan, right=math.nan)


def _has(one: Reference, kind: str) -> bool:
    if kind == "step":
        return True
    counter = one.curve(kind)
    return (counter is not None and _rises(counter)) or (kind == "samples" and _declared_batch(one) is not None)


def _rises(counter: Curve) -> bool:
    """Whether a counter counts: finite, never falling, and further at its end than at its beginning."""
    value = counter.value
    return len(value) > 1 and bool(np.isfinite(value).all() and (np.diff(value) >= 0).all() and value[-1] > value[0])


def _rate(one: Reference, kind: str) -> float | None:
    """What one step consumes."""
    counter = one.curve(kind)
    if counter is not None and _rises(counter) and counter.x[-1] > counter.x[0]:
        return float((counter.value[-1] - counter.value[0]) / (counter.x[-1] - counter.x[0]))
    return _declared_batch(one) if kind == "samples" else None


def _differ(a: float, b: float) -> bool:
    return abs(a - b) > CONSUMES * max(a, b)


def _declared_batch(one: Reference) -> float | None:
    """Samples a step by the declared facts; None when no batch size was declared."""
    if one.facts.number("batch_size") is None:
        return None
    return math.prod(one.facts.number(name) or 1.0 for name in BATCH_FACTS)


def _possible(run: Reference, baselines: Sequence[Reference]) -> str:
    return ", ".join(kind for kind in AXES if all(_has(one, kind) for one in (run, *baselines)))
