"""TP506: does the training loss fall in steps at the epoch boundaries?"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from trainproof import stats
from trainproof.frame import Frame, Series
from trainproof.rules.eval_series import eval_losses, improving
from trainproof.rules.registry import INFO, SUPERVISED, WARN, CannotTell, Sighting, rule, sighting
from trainproof.stats import Floats, Ints
from trainproof.thresholds import EvaluationThresholds


@rule(
    "TP506",
    "staircase-at-epochs",
    severity=WARN,
    needs=("loss",),
    objectives=SUPERVISED,
    min_records=20,
    whole_run=True,
    fix="Fewer epochs or a lower learning rate; add an evaluation set and stop where it is best.",
)
def staircase_at_epochs(frame: Frame, t: EvaluationThresholds) -> Iterator[Sighting]:
    """The training loss falls in a step at an epoch boundary: the model recognises what it has seen.

    What it does
    Compares the last records of an epoch with the first ones of the next. Epochs are those of the log, or follow from the declared steps
    of an epoch.

    Why it matters
    Within an epoch every sample is new; a loss that drops as soon as they repeat is memorisation.

    Formula
    m = min(25, max(5, a fifth of the epoch's records)) records on either side: the median falls by 10 % or more, by 6 standard errors
    (1.2533 s sqrt(2 / m)), and by 1.5 times the decline inside the epoch before. WARN at the first such boundary; INFO when the eval loss
    or a task metric found its best after it and among the latest evaluations.

    False positives
    Running means that restart at each epoch (steps inside the epoch shrink as 1 / n) and learning rates that are cut at the boundary
    (to 0.7 or less) fall in steps too; both are passed over, and so are epochs of fewer than 2 m records, and epochs sorted by length,
    whose loss comes back to where the epoch before began.

    What to try
    Look at the evaluation loss across the boundary.
    """
    loss = frame["loss"].finite
    for edge in falls(loss.value, epoch_edges(frame, loss), t):
        epoch, high, low, m, boundary = loss.value[edge.before : edge.at], edge.high, edge.low, edge.m, edge.at
        se = stats.MEDIAN_SE * stats.difference_noise(epoch) * math.sqrt(2 / m)
        if high - low < t.staircase_z * se or stats.is_running_mean(epoch) or _rate_cut(frame, loss, edge, t):
            continue
        better = _eval_improves(frame, int(loss.step[boundary]), t)
        yield sighting(
            INFO if better else WARN,
            f"the loss fell from {high:.4g} to {low:.4g} ({(high - low) / max(abs(high), 1e-300):.0%}) at the epoch boundary of step "
            f"{loss.step[boundary]} (medians of {m} records); inside the epoch before it fell by {edge.begin - high:.4g}"
            f"{f'; {better} still improves' if better else ''}. This is consistent with memorisation.",
            loss,
            first=boundary - m,
            last=boundary + m - 1,
            flagged=boundary + m - 1,
            cite=[boundary - 1, boundary, boundary + m - 1],
            threshold={"drop": t.staircase_drop, "z": t.staircase_z},
        )
        return


def epoch_edges(frame: Frame, loss: Series) -> Ints:
    """Indices of the loss records at which epochs begin, the first included, and the end. Raises CannotTell when epochs are not known."""
    if "epoch" in frame and len(epoch := frame["epoch"].finite):
        return loss.derived(_edges_by_epoch, epoch)
    if steps := frame.facts.number("steps_per_epoch"):
        return _edges(np.floor((loss.step - 1) / steps))
    raise CannotTell("no epochs in the log (--fact steps_per_epoch=N)")


def _edges_by_epoch(loss: Series, epoch: Series) -> Ints:
    at = np.maximum(epoch.upto(loss.step), 0)
    return _edges(np.floor(epoch.value[at] - 1e-9))  # the record at exactly 1.0 is the last of the first epoch


def _edges(number: Floats) -> Ints:
    """Where the number of the epoch rises."""
    return np.concatenate(([0], np.flatnonzero(number[1:] > number[:-1]) + 1, [len(number)]))


class Boundary(NamedTuple):
    """An epoch boundary: the index at which the epoch before began and at which the next begins; medians of `m` records at the begin of
    the epoch before (`begin`), at its end (`high`), and at the begin of the next (`low`)."""

    before: int
    at: int
    m: int
    begin: float
    high: float
    low: float


def falls(value: Floats, edges: Ints, t: EvaluationThresholds) -> list[Boundary]:
    """The boundaries with enough records on either side at which the median falls far, against its level and against the epoch."""
    before, after = np.diff(edges)[:-1], np.diff(edges)[1:]
    width = np.clip(before // 5, t.staircase_least, t.staircase_most)
    long = (before >= 2 * width) & (after >= width)
    found = []
    for m in stats.distinct(width[long])[0].tolist():
        k = np.flatnonzero(long & (width == m)) + 1
        begin, high, low = (_medians(value, first, m) for first in (edges[k - 1], edges[k] - m, edges[k]))
        with np.errstate(over="ignore", invalid="ignore"):
            far = (high - low >= t.staircase_drop * np.abs(high)) & (high - low >= t.staircase_decline * (begin - high))
        far &= (high > low) & (begin - low >= t.staircase_lower * (high - low))
        found += [
            Boundary(int(edges[k[i] - 1]), int(edges[k[i]]), m, float(begin[i]), float(high[i]), float(low[i]))
            for i in np.flatnonzero(far)
        ]
    return sorted(found, key=lambda boundary: boundary.at)


def _medians(value: Floats, first: Ints, m: int) -> Floats:
    """The medians of the stretches of `m` values that begin at `first`."""
    return stats.row_median(np.sort(value[first[:, np.newaxis] + np.arange(m)], axis=1))


def _rate_cut(frame: Frame, loss: Series, edge: Boundary, t: EvaluationThresholds) -> bool:
    """Whether the learning rate was cut near the boundary: a fall of the loss is then the schedule's."""
    if "lr" not in frame or not len(lr := frame["lr"].finite):
        return False
    steps = loss.step[[edge.at - edge.m, edge.at + edge.m - 1]]
    before, after = lr.value[np.clip(lr.upto(steps), 0, None)]
    return bool(after <= t.staircase_rate_cut * before)


def _eval_improves(frame: Frame, step: int, t: EvaluationThresholds) -> str:
    """The eval loss or task metric that found its best after `step` and among its latest evaluations; "" when none did."""
    try:
        evals = eval_losses(frame)[0].finite
    except CannotTell:
        return ""
    if len(evals):
        best = int(np.argmin(evals.value))
        recent = len(evals) - 1 - best < max(t.improving_evals, t.improving_share * len(evals))
        if recent and evals.step[best] > step:
            return evals.name
    last = frame.last_step or 0
    return improving(frame, np.array([step]), np.array([last]), t)[1]
