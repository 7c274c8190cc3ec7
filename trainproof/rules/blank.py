"""TP110: a loss that stops being logged while the other metrics of the same records go on."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trainproof import stats
from trainproof.frame import Frame, Series
from trainproof.names import higher_is_better
from trainproof.rules.registry import FAIL, WARN, CannotTell, Sighting, evidence, rule, sighting
from trainproof.thresholds import NumericsThresholds

#: prefixes of the kinds of record that are not training steps
SPLITS = ("eval/", "test/")
#: what every record carries, whatever it is about
CLOCKS = frozenset({"epoch", "time", "tokens"})


@rule(
    "TP110",
    "metric-went-blank",
    severity=FAIL,
    whole_run=True,
    fix="Ask the logger what it does with NaN (some leave the cell empty); look at the last values before the gap.",
)
def metric_went_blank(frame: Frame, t: NumericsThresholds) -> Iterator[Sighting]:
    """A loss stops being logged while the other metrics of the same records go on.

    What it does
    For each training and evaluation loss, looks whether its points end while a metric of the same records goes on for 5 or more.

    Why it matters
    Some loggers write an empty cell for NaN: every number that is printed says that the run is learning.

    Formula
    The loss and its companion were logged together (90 % of the records of either, at least 3), then the companion alone for 5 records
    or more. FAIL when the last values grew 10 x within 20 records, when an infinity was among them, or when the task metric stands
    still from there on; otherwise WARN.

    False positives
    A loss that is logged for the first 100 steps by design ends together with its own companions (gradient norm, learning rate);
    evaluation rows that go on are another kind of record, and are not its companions.

    What to try
    Read the console output of the same run.
    """
    losses = [series for name, series in frame.items() if _is_loss(name) and len(series)]
    pairs = [(loss, other) for loss in losses for other in _companions(frame, loss.name)]
    if not pairs:
        raise CannotTell("no metric is logged beside a loss")
    for loss in losses:
        found = [s for one, other in pairs if one is loss for s in _went_blank(frame, loss, other, t)]
        if found:
            yield min(found, key=lambda s: (s.severity is not FAIL, s.flagged_step))


def _is_loss(name: str) -> bool:
    bare = _bare(name)
    return bare == "loss" or bare.startswith("loss/")


def _split(name: str) -> str:
    return next((prefix for prefix in SPLITS if name.startswith(prefix)), "")


def _bare(name: str) -> str:
    return name[len(_split(name)) :]


def _companions(frame: Frame, loss: str) -> list[Series]:
    """The metrics of the same kind of record that are not losses themselves."""
    return [
        series
        for name, series in frame.items()
        if _split(name) == _split(loss) and not _is_loss(name) and name not in CLOCKS
    ]


def _went_blank(frame: Frame, loss: Series, other: Series, t: NumericsThresholds) -> Iterator[Sighting]:
    end = int(loss.step[-1])
    until = int(np.searchsorted(other.step, end, side="right"))
    if len(other) - until < t.blank_records or len(other) < t.blank_min_records:
        return
    shared = len(loss.align(other)[0])
    since_first = until - int(np.searchsorted(other.step, loss.step[0]))
    pinned = _pinned(other, until)
    if shared < t.blank_presence * max(since_first, len(loss)) or shared < (1 if pinned else t.blank_before):
        return
    bad = pinned or _was_exploding(frame, loss, t)
    last = len(loss) - 1
    yield sighting(
        FAIL if bad else WARN,
        f"{loss.name} ends at step {end} with {loss.value[-1]:.4g}, while {other.name} goes on for {len(other) - until} records more"
        f"{f' at exactly {other.value[-1]:.4g}' if pinned else ''}. This is consistent with a NaN that the logger left blank.",
        loss,
        first=max(0, last - 2),
        last=last,
        cite=range(max(0, last - 2), last + 1),
        more=evidence(other, [until, len(other) - 1]),
        threshold={"records": t.blank_records, "growth": t.blank_growth},
    )._replace(flagged_step=int(other.step[until + t.blank_records - 1]), last_step=int(other.step[-1]))


def _pinned(other: Series, until: int) -> bool:
    """Whether a task metric is one and the same value from there on."""
    rest = other.value[until:]
    return higher_is_better(_bare(other.name)) is not None and bool((rest == rest[0]).all())


def _was_exploding(frame: Frame, loss: Series, t: NumericsThresholds) -> bool:
    """Whether the loss grew 10 x within its last 20 records, or it or the gradient norm was infinite there."""
    tail = loss.value[-t.blank_growth_records :]
    if not np.isfinite(tail).all() or _norm_was_infinite(frame, loss, len(tail)):
        return True
    return bool(tail[-1] >= t.blank_growth * np.abs(tail).min() and tail[-1] > loss.value[0])


def _norm_was_infinite(frame: Frame, loss: Series, records: int) -> bool:
    if _split(loss.name) or "grad_norm" not in frame:
        return False
    grads = frame["grad_norm"]
    lo, hi = np.searchsorted(grads.step, [loss.step[-records], loss.step[-1] + 1])
    near: stats.Floats = grads.value[lo:hi]
    return not np.isfinite(near).all()
