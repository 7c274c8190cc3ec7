"""A part of the loss that is switched on in mid-run: from there on the loss is another sum, and its rise no sign by itself."""

from __future__ import annotations

import numpy as np

from trainproof.frame import Frame, Series


def switched_on(frame: Frame, loss: Series, first: int, last: int) -> str:
    """The part of the loss that begins between two loss records, as a sentence; nothing where there is none.

    It begins where it is first logged, or first not 0, while the loss and another of its parts were there before.
    """
    parts = {name: series.finite for name, series in frame.items() if name.startswith("loss/")}
    begins = {name: int(part.step[np.argmax(part.value != 0)]) for name, part in parts.items() if part.value.any()}
    if not begins or min(begins.values()) >= loss.step[first]:
        return ""
    for name, step in begins.items():
        if first and loss.step[first] <= step <= loss.step[last]:
            return f" {name} was switched on at step {step}, which may be all: judge what comes before it and after it apart."
    return ""
