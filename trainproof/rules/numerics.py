"""Family TP1: values that are not finite, hidden, or absurd.

Gradient norms are in `nonfinite_grads`, loss scaling in `loss_scale`, losses that stop in `blank`; what they share is here and in
`beside`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from trainproof import stats
from trainproof.frame import Event, Frame, Series
from trainproof.rules import blank, loss_scale, nonfinite_grads  # noqa: F401  registers TP102, TP105, TP106 and TP110
from trainproof.rules.registry import (
    CROSS_ENTROPY,
    FAIL,
    SUPERVISED,
    WARN,
    CannotTell,
    Sighting,
    evidence,
    rule,
    sighting,
)
from trainproof.thresholds import NumericsThresholds
from trainproof.verdict import Evidence, Severity

#: kinds of event that are a warning; every other one is fatal
WARNING_EVENTS = frozenset({"xid-63", "killed"})


@rule(
    "TP101",
    "nonfinite-loss",
    severity=FAIL,
    needs=("loss*",),
    stops=True,
    fix="Train in bfloat16 or float32, lower the learning rate, and check the first bad batch for empty targets and masks.",
)
def nonfinite_loss(frame: Frame, t: NumericsThresholds) -> Iterator[Sighting]:
    """The training loss is NaN or infinite.

    What it does
    Looks for a non-finite value in the loss and in each of its parts.

    Why it matters
    A NaN in the loss reaches every weight with the next update; nothing after it is training.

    Formula
    Any non-finite value: FAIL at the first. WARN when they are at most 0.1 % of the records and the next record is finite again (some
    frameworks skip such steps by design), and for a part whose total is finite in the same records (it is not in the sum).

    False positives
    Other metrics (explained variance, absent classes, timings) are NaN in healthy runs and are not looked at; nor are records before
    the first update of a reinforcement-learning run.

    What to try
    Re-run the step with anomaly detection; look at that batch; train in bfloat16 or float32.
    """
    found = [series for name, series in frame.items() if name == "loss" or name.startswith("loss/")]
    if not found:
        raise CannotTell("no loss in the log")
    for series in found:
        if series.finite is series:
            continue
        bad = ~np.isfinite(series.value)
        if frame.objective == "rl" and not bad.all():
            bad[: int(np.argmin(bad))] = False
        if bad.any():
            yield _nonfinite_told(frame, series, bad, _nonfinite_severity(frame, series, bad, t), t)


def _nonfinite_severity(frame: Frame, series: Series, bad: stats.Bools, t: NumericsThresholds) -> Severity:
    at = np.flatnonzero(bad)
    skipped = not bad[-1] and not bad[at + 1].any() and len(at) <= t.nonfinite_skipped_share * len(bad)
    return WARN if skipped or _total_is_finite(frame, series.take(bad)) else FAIL


def _total_is_finite(frame: Frame, bad: Series) -> bool:
    """Whether the total was logged, and is finite, wherever this part of it is not."""
    if bad.name == "loss" or "loss" not in frame or "loss" in frame.masked:
        return False
    mine, total = bad.align(frame["loss"])
    return len(mine) == len(bad) and bool(np.isfinite(frame["loss"].value[total]).all())


def _nonfinite_told(
    frame: Frame, series: Series, bad: stats.Bools, severity: Severity, t: NumericsThresholds
) -> Sighting:
    at = np.flatnonzero(bad)
    first = int(at[0])
    good = np.flatnonzero(np.isfinite(series.value[:first]))[-1:].tolist()
    before = f"; the last finite value was {series.value[good[0]]:.4g} at step {series.step[good[0]]}" if good else ""
    value = "NaN" if math.isnan(series.value[first]) else "infinite"
    return sighting(
        severity,
        f"{series.name} is {value} at step {series.step[first]}, and not finite in {len(at)} of {len(bad)} records{before}.",
        series,
        first=first,
        last=int(at[-1]),
        flagged=first,
        cite=[*good, first],
        more=_beside(frame, int(series.step[first])),
        threshold={"share": t.nonfinite_skipped_share},
    )


def _beside(frame: Frame, step: int) -> tuple[Evidence, ...]:
    """What else was logged at the step that bears on it."""
    found: tuple[Evidence, ...] = ()
    for name in ("lr", "loss_scale", "grad_norm"):
        if name in frame:
            found += evidence(frame[name], np.flatnonzero(frame[name].step == step)[-1:])
    return found


@rule(
    "TP103",
    "zero-loss-nonfinite-grad",
    severity=FAIL,
    needs=("loss",),
    objectives=SUPERVISED,
    stops=True,
    fix="Set logging_nan_inf_filter=False to see the real loss; check masks and labels; train in bfloat16.",
)
def zero_loss_nonfinite_grad(frame: Frame, _: NumericsThresholds) -> Iterator[Sighting]:
    """The loss is exactly 0 while gradients (or evaluation) are not finite: a NaN that the logger replaced.

    What it does
    Looks for a record with a loss of 0 beside a non-finite gradient norm, or before a non-finite evaluation loss.

    Why it matters
    HF Trainer replaces a non-finite loss by the average of the window; a window of nothing but NaN prints 0 and looks perfect.

    Formula
    loss == 0 and a gradient norm that is not finite in the same record; or an evaluation loss that is not finite while the last loss
    before it is 0. FAIL at the first.

    False positives
    None known. Reinforcement losses are 0 by construction and not asked.

    What to try
    Log the raw loss; look for rows whose labels are all masked.
    """
    loss = frame["loss"]
    zero = loss.value == 0
    if not zero.any():
        return
    for name, series in frame.items():
        if name != "grad_norm" and not name.startswith("eval/loss"):
            continue
        bad = np.flatnonzero(~np.isfinite(series.value))
        at = loss.upto(series.step[bad])
        hidden = (at >= 0) & zero[np.maximum(at, 0)]
        if name == "grad_norm":
            hidden &= loss.step[np.maximum(at, 0)] == series.step[bad]
        if hidden.any():
            k = int(np.argmax(hidden))
            yield _hidden_nan(loss, int(at[k]), int(at[hidden][-1]), series, int(bad[k]))
            return


def _hidden_nan(loss: Series, first: int, last: int, beside: Series, at: int) -> Sighting:
    return sighting(
        FAIL,
        f"the loss is exactly 0 at step {loss.step[first]} and {beside.name} is not finite. This is consistent with a non-finite loss that "
        "the logger replaced.",
        loss,
        first=first,
        last=last,
        flagged=first,
        cite=[first],
        more=evidence(beside, [at]),
        threshold={"loss": 0.0},
    )._replace(flagged_step=int(beside.step[at]))


@rule(
    "TP104",
    "fatal-text-event",
    severity=FAIL,
    whole_run=True,
    stops=True,
    fix="Read the cited line in the log: the process, the driver or the hardware gave up there.",
)
def fatal_text_event(frame: Frame, _: NumericsThresholds) -> Iterator[Sighting]:
    """The log itself announces a fatal event.

    What it does
    Looks at the lines that a text reader recognised: an out-of-memory error, a collective time-out, a GPU fault (Xid), an
    uncorrectable memory error, a minimum loss scale, or labels that are all masked.

    Why it matters
    The curve before such a line says nothing of what came after it.

    Formula
    Any such line: FAIL (Xid 63, a memory row that was remapped: WARN). Each kind is told once, at its first line.

    False positives
    Echoed configuration and pasted source hold the same words; readers take only lines with a time-stamp or rank prefix, or of an
    exception.

    What to try
    Look up the cited line.
    """
    if not frame.events:
        raise CannotTell(f"no such line was recognised in this {frame.source.format} log")
    for kind in dict.fromkeys(event.kind for event in frame.events):
        yield _event_told(frame, [event for event in frame.events if event.kind == kind])


def _event_told(frame: Frame, events: list[Event]) -> Sighting:
    event = events[0]
    main = frame.main
    before = main.step[main.line <= event.line] if main is not None else np.empty(0, np.int64)
    step = int(before.max()) if len(before) else (frame.first_step or 0)
    times = f" ({len(events)} such lines)" if len(events) > 1 else ""
    return Sighting(
        WARN if event.kind in WARNING_EVENTS else FAIL,
        f"line {event.line} says: {event.text[:160]}{times}",
        (Evidence(event.kind, step, float(len(events)), event.line),),
        {"lines": 1.0},
        step,
        step,
        step,
    )


@rule(
    "TP107",
    "absurd-magnitude",
    severity=FAIL,
    needs=("loss",),
    objectives=CROSS_ENTROPY,
    min_records=21,
    fix="Look at the cited batch and step; lower the learning rate or clip gradients; check for float16 overflow.",
)
def absurd_magnitude(frame: Frame, t: NumericsThresholds) -> Iterator[Sighting]:
    """A cross-entropy is far beyond anything that a model can give.

    What it does
    Compares each loss with what a cross-entropy can be, and with the 64 records before it.

    Why it matters
    A loss of 150,000 is not a bad batch, it is numbers falling apart.

    Formula
    |loss| > max(1,000, 100 x the median of the 64 records before, 100 ln V), after 20 records: WARN for one record, FAIL for two.

    False positives
    Sum-reduced losses (their median is large too). Regression and density losses start anywhere and are not asked.

    What to try
    Look at that batch.
    """
    loss = frame["loss"].finite
    classes = frame.facts.number("vocab_size") or frame.facts.number("num_classes") or 1.0
    floor = max(t.absurd_loss, t.absurd_times * math.log(max(classes, 1.0)))
    high = np.abs(loss.value) > floor
    high[: t.absurd_grace] = False
    if not high.any():
        return
    level = np.abs(loss.memo(stats.baseline, 1).median)
    at = np.flatnonzero(high & (np.abs(loss.value) / t.absurd_times > level))
    if len(at):
        yield sighting(
            FAIL if len(at) >= t.absurd_records else WARN,
            f"the loss is {loss.value[at[0]]:.6g} at step {loss.step[at[0]]}; {len(at)} record{'s' if len(at) > 1 else ''} beyond "
            f"{floor:.4g}.",
            loss,
            first=int(at[0]),
            last=int(at[-1]),
            flagged=int(at[min(t.absurd_records, len(at)) - 1]),
            cite=at[:5].tolist(),
            threshold={"loss": floor, "times": t.absurd_times},
        )
