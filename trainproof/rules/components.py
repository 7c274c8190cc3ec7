"""TP211: which part of the loss rules it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trainproof import stats
from trainproof.frame import Frame
from trainproof.rules.registry import INFO, SUPERVISED, WARN, CannotTell, Sighting, evidence, rule, sighting
from trainproof.rules.states import lasting
from trainproof.thresholds import LossThresholds
from trainproof.verdict import Severity


@rule(
    "TP211",
    "component-domination",
    severity=WARN,
    needs=("loss/*",),
    objectives=SUPERVISED,
    fix="Weigh the parts so that each keeps a share of the gradient; look at what made the cited part grow.",
)
def component_domination(frame: Frame, t: LossThresholds) -> Iterator[Sighting]:
    """One part of the loss has grown over all others.

    What it does
    Compares the medians of the absolute parts of the loss, record by record.

    Why it matters
    The optimizer serves the part that is largest; the others are only logged.

    Formula
    The share of one part in the sum of the absolute parts >= 0.99 (median of 5) for 50 records to the end: WARN when its median share in
    the first tenth of the records was under 0.5 and the part itself has grown; otherwise INFO.

    False positives
    Parts are often logged before they are weighted, so a part that was large from the start says little: INFO.

    What to try
    Log the parts as they enter the sum.
    """
    names = [name for name in frame if name.startswith("loss/") and not frame[name].constant]
    first = frame[names[0]] if names else None
    names = [name for name in names if first is not None and np.array_equal(frame[name].step, first.step)]
    if first is None or len(names) < 2 or len(first) < 2 * t.component_records:
        raise CannotTell("fewer than two parts of the loss at the same steps, or too few records")
    table = np.abs(np.stack([frame[name].value for name in names]))
    total = table.sum(axis=0)
    top = int(np.argmax(np.where(np.isfinite(table[:, -1]), table[:, -1], -1.0)))
    share = np.divide(table[top], total, out=np.zeros_like(total), where=np.isfinite(total) & (total > 0))
    state = lasting(stats.median5(share) >= t.component_share, t.component_records)
    if state is None:
        return
    tenth = len(first) // 10
    grew = stats.median(share[:tenth]) < t.component_before and table[top, -1] > float(stats.median(table[top, :tenth]))
    severity: Severity = WARN if grew else INFO
    yield sighting(
        severity,
        f"{names[top]} makes up {share[-1]:.1%} of the parts of the loss since step {first.step[state.since]}"
        f"{f'; it was {stats.median(share[:tenth]):.0%} at the start' if grew else ''}.",
        frame[names[top]],
        first=state.since,
        last=len(first) - 1,
        flagged=state.told,
        threshold={"share": t.component_share, "records": t.component_records},
        more=tuple(e for name in names if name != names[top] for e in evidence(frame[name], [len(first) - 1]))[:3],
    )
