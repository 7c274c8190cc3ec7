"""TP306: batches that change without the learning rate."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trainproof.frame import Frame
from trainproof.rules.registry import INFO, CannotTell, Sighting, evidence, rule, sighting
from trainproof.rules.schedules import logged_rate
from trainproof.thresholds import LearningRateThresholds

BATCHES = ("global_batch_size", "global batch size", "batch_size", "effective_batch_size", "total_batch_size")


@rule(
    "TP306",
    "batch-changes-without-rate",
    severity=INFO,
    needs=("lr",),
    min_records=20,
    fix="When the batch changes by a factor k, try the learning rate times k (momentum) or sqrt k (adaptive optimizers).",
)
def batch_changes_without_rate(frame: Frame, t: LearningRateThresholds) -> Iterator[Sighting]:
    """The batch doubles or halves and the learning rate stays.

    What it does
    Looks for steps at which the logged batch size changes by 2 x or more, and compares the learning rate on either side.

    Why it matters
    The noise of a step depends on rate over batch; one without the other moves it.

    Formula
    Batch size changes by 2 x or more while lr changes by less than 10 %: INFO.

    False positives
    Batch ramps at a constant rate are a usual recipe, so it never moves the verdict.

    What to try
    Compare the loss on either side of the change.
    """
    name = next((name for name in BATCHES if name in frame), None)
    if name is None:
        raise CannotTell("no batch size in the log")
    batch, lr = frame[name].finite, logged_rate(frame)
    if len(batch) < 2 or batch.value.min() <= 0:
        raise CannotTell("the logged batch size is no positive number")
    ratio = batch.value[1:] / batch.value[:-1]
    for i in (np.flatnonzero((ratio >= t.batch_times) | (ratio <= 1 / t.batch_times)) + 1).tolist():
        at = lr.upto(batch.step[i - 1 : i + 1])
        if at[0] < 0 or at[0] == at[1]:
            continue
        before, after = lr.value[at].tolist()
        if before > 0 and abs(after / before - 1) < t.batch_rate:
            yield sighting(
                INFO,
                f"the batch went from {batch.value[i - 1]:g} to {batch.value[i]:g} at step {batch.step[i]}; the learning rate stayed at {after:.4g}.",
                batch,
                first=i - 1,
                last=i,
                threshold={"times": t.batch_times},
                more=evidence(lr, at.tolist()),
            )
            return
