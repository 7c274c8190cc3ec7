"""A rule on a metric that only our trainer logs. Importing this module registers it."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from trainproof.frame import Frame
from trainproof.rules.registry import WARN, Sighting, rule, sighting


class LapThresholds(msgspec.Struct, frozen=True):
    """Every number the rule uses, with its unit and where it comes from."""

    # DEMO101 laps-halved. Source: convention.
    share: float = 0.5  # of the median of the first records
    first: int = 10  # records that say what is usual
    streak: int = 5  # records in a row


@rule(
    "DEMO101",
    "laps-halved",
    severity=WARN,
    needs=("laps_per_s",),
    min_records=20,
    fix="Look at the data loader and at the other users of the machine.",
    thresholds=LapThresholds(),
)
def laps_halved(frame: Frame, t: LapThresholds) -> Iterator[Sighting]:
    """The laps per second fell to half of what they were.

    What it does
    Compares each record with the median of the first ones.

    Why it matters
    A run that became slow costs twice as much and nobody is told.

    Formula
    5 records in a row at or below half of the median of the first 10: WARN.

    False positives
    Evaluation within the timed window: give it its own metric.

    What to try
    Profile the data loader.
    """
    laps = frame["laps_per_s"].finite
    usual = float(np.median(laps.value[: t.first]))
    slow = laps.value <= t.share * usual
    for i in range(t.first, len(laps) - t.streak + 1):
        if slow[i : i + t.streak].all():
            yield sighting(
                WARN,
                f"{laps.value[i]:.4g} laps per second, where they were {usual:.4g}.",
                laps,
                first=i,
                last=i + t.streak - 1,
                threshold={"share": t.share, "records": t.streak},
            )
            return
