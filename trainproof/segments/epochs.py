"""Steps that are counted within an epoch."""

from __future__ import annotations

import numpy as np

from trainproof.frame import Frame, Ints, Repair, Series
from trainproof.segments.order import usual_distance
from trainproof.segments.repairs import told

#: share of epoch changes at which the step begins anew, for steps to be counted within epochs
EPOCH_SHARE = 0.8
#: steps and epochs beyond these are not counted on: the result has to fit 64 bits
LARGEST_STEP, LARGEST_EPOCH = 2**62, 2**31


def numbered_on(frame: Frame, main: Series) -> tuple[Frame, list[Repair]]:
    """The frame with its steps counted on over the epochs, where the logger counts them anew in each epoch."""
    others = [series for series in frame.values() if series.name != "epoch"]
    if main.name == "epoch" and others:  # it stands in more lines than any metric, and is nothing to be counted by
        main = max(others, key=len)
    epochs = epochs_at(frame, main, main.line)
    if epochs is None:
        return frame, []
    changes = np.flatnonzero(np.diff(epochs) > 0) + 1
    anew = changes[main.step[changes] < main.step[changes - 1]]
    falls = int((main.step[1:] < main.step[:-1]).sum())
    if not len(anew) or len(anew) < EPOCH_SHARE * len(changes) or 2 * len(anew) < falls:
        return frame, []
    stride = int(main.step.max()) - int(main.step.min()) + usual_distance(main.step)
    first_epoch = int(epochs.min())
    if (int(epochs.max()) - first_epoch + 2) * stride >= LARGEST_STEP:
        return frame, []
    series = {}
    for name, points in frame.items():
        at = epochs_at(frame, main, points.line)
        offset = 0 if at is None else (at - first_epoch) * stride
        series[name] = Series(name, points.step + offset, points.value, points.line)
    detail = f"the step begins anew in each epoch; it was counted on, {stride} an epoch"
    return frame.replace(series=series), [told("epochs", main, anew, detail)]


def epochs_at(frame: Frame, main: Series, lines: Ints) -> Ints | None:
    """The whole epoch in which each line was logged, shape of `lines`; None when not every record of the log has one."""
    epoch = frame.get("epoch")
    if epoch is None or epoch is main or len(epoch) < len(main):
        return None
    if not (np.abs(epoch.value) < LARGEST_EPOCH).all():  # NaN is not
        return None
    at = np.maximum(np.searchsorted(epoch.line, lines, side="right") - 1, 0)
    whole: Ints = np.floor(epoch.value[at]).astype(np.int64)
    return whole
