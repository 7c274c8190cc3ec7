"""Which runs a guardian stops: deep spikes that come back should be none of them."""

from __future__ import annotations

import numpy as np
import pytest

from tools import synthetic
from trainproof.guardian import Guardian
from trainproof.verdict import Severity

RECORDS, ONSET = 180, 100


def spike(height: float, length: int, decays: bool) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """What a loss is multiplied by: `height` at once, and back, or nearly so, after `length` records."""
    at = np.arange(RECORDS) - ONSET
    shape = np.exp(-3 * at / length) if decays else np.maximum(1 - at / length, 0)
    return np.where(at < 0, 1.0, 1 + (height - 1) * shape)


def outcome(loss: list[float]) -> tuple[bool, bool]:
    """Whether TP203 failed the run on the way, and whether the run was stopped."""
    guardian = Guardian(policy="stop_on_fail", on_finding=())
    failed = False
    for step, value in enumerate(loss):
        new = guardian.observe(step, loss=value)
        failed = failed or any(f.rule == "TP203" and f.severity is Severity.FAIL for f in new)
    return failed, guardian.should_stop


@pytest.mark.thorough
def test_of_deep_spikes_that_come_back_soon_hardly_one_stops_the_run() -> None:
    """54 of them: half fail on the way, and one stops."""
    found = []
    for seed in range(3):
        healthy = synthetic.healthy(200, 0.05, seed)["loss"][:RECORDS]
        for height in (3, 5, 10):
            for length in (6, 10, 14):
                found += [outcome((healthy * spike(height, length, decays)).tolist()) for decays in (False, True)]
    failed, stopped = (sum(column) for column in zip(*found, strict=True))
    assert (len(found), failed, stopped) == (54, 27, 1)
