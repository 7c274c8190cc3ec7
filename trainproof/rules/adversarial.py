"""TP811: does one side of an adversarial game still play?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trainproof.frame import Frame, Series
from trainproof.rules.registry import FAIL, WARN, Sighting, evidence, rule, sighting
from trainproof.rules.states import finite, lasting, level
from trainproof.thresholds import PreferenceThresholds


@rule(
    "TP811",
    "adversarial-imbalance",
    severity=FAIL,
    needs=("loss/discriminator", "loss/generator"),
    objectives=frozenset({"adversarial"}),
    min_records=50,
    fix="Lower the rate of the side that won, regularise the discriminator (spectral norm, gradient penalty), or go back to a checkpoint.",
)
def adversarial_imbalance(frame: Frame, t: PreferenceThresholds) -> Iterator[Sighting]:
    """One side of the game has won: its loss is 0, or stands still.

    What it does
    Looks at the last 50 losses of discriminator and generator.

    Why it matters
    A discriminator that is never wrong, or one that no longer answers, gives the generator nothing to follow.

    Formula
    |loss| < 0.001, or the same value to 4 digits, in 90 % of the last 50 records, to the end: WARN; both sides: FAIL.

    False positives
    2 ln 2 and 0.5 are what the losses of a balanced game come to, but not in every record to 4 digits.

    What to try
    Look at samples, and at the discriminator's scores of real and made ones.
    """
    states = [
        (series, told)
        for name in ("loss/discriminator", "loss/generator")
        if (told := _out_of_play(series := finite(frame, name, t.adversarial_min_records), t)) is not None
    ]
    if not states:
        return
    series, told = max(states, key=lambda state: int(state[0].step[state[1]]))  # the side that left last
    yield sighting(
        FAIL if len(states) == 2 else WARN,
        f"{' and '.join(s.name for s, _ in states)} {'are' if len(states) == 2 else 'is'} 0 or constant "
        f"({', '.join(f'{s.value[-1]:.4g}' for s, _ in states)} at the end).",
        series,
        first=max(0, told - t.adversarial_min_records + 1),
        last=len(series) - 1,
        flagged=told,
        threshold={"zero": t.adversarial_zero, "share": t.adversarial_share},
        more=tuple(e for s, i in states if s is not series for e in evidence(s, [i, len(s) - 1])),
    )


def _out_of_play(series: Series, t: PreferenceThresholds) -> int | None:
    """Since when, to the end, nine of ten records of a window are near 0 or one value to 4 digits."""
    x, window = series.value, t.adversarial_min_records
    at, middle = level(x, window)
    windows = np.lib.stride_tricks.sliding_window_view(x, window)[at - window + 1]
    near = 10.0 ** (1 - t.adversarial_digits) / 2 * np.abs(middle)
    still = (np.abs(windows) < t.adversarial_zero) | (np.abs(windows - middle[:, None]) <= near[:, None])
    state = lasting(still.sum(axis=1) >= t.adversarial_share * window, 1)
    return None if state is None else int(at[state.told])
