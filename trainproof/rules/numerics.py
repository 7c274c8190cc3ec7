"""Family TP1: values that are not finite, not there any more, or absurd. Loss scaling is in `loss_scale`."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from trainproof import stats
from trainproof.frame import Frame, Series
from trainproof.rules import loss_scale  # noqa: F401  registers TP105 and TP106
from trainproof.rules.registry import (
    CROSS_ENTROPY,
    FAIL,
    INFO,
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


def losses(frame: Frame) -> list[Series]:
    """The loss and its parts. Raises CannotTell when there is none."""
    found = [series for name, series in frame.items() if name == "loss" or name.startswith("loss/")]
    if not found:
        raise CannotTell("no loss in the log")
    return found


@rule(
    "TP101",
    "nonfinite-loss",
    severity=FAIL,
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
    Any non-finite value: FAIL at the first. WARN when they are at most 0.1 % of the records and the next record is finite again
    (some frameworks skip such steps by design). A part that is non-finite on and off while the total stays finite is told as INFO.

    False positives
    Other metrics (explained variance, average precision of absent classes, timings) are NaN in healthy runs and are not looked at;
    terms that are computed every few steps only are NaN between (hence the rule for parts).

    What to try
    Re-run the step with anomaly detection; look at that batch; train in bfloat16 or float32.
    """
    total_finite = "loss" in frame and bool(np.isfinite(frame["loss"].value).all())
    for series in losses(frame):
        bad = ~np.isfinite(series.value)
        if not bad.any():
            continue
        first = int(np.argmax(bad))
        severity = _nonfinite_severity(series, bad, total_finite, t)
        last_good = int(np.flatnonzero(~bad[:first])[-1]) if first else None
        before = (
            f"; the last finite value was {series.value[last_good]:.4g} at step {series.step[last_good]}"
            if last_good is not None
            else ""
        )
        yield sighting(
            severity,
            f"{series.name} is {_spelled(series.value[first])} from step {series.step[first]}, in {int(bad.sum())} of {len(series)} "
            f"records{before}.",
            series,
            first=first,
            last=int(np.flatnonzero(bad)[-1]),
            flagged=first,
            cite=[*([last_good] if last_good is not None else []), first],
            more=_beside(frame, int(series.step[first]), ("lr", "loss_scale", "grad_norm")),
            threshold={"share": t.nonfinite_skipped_share},
        )


def _spelled(value: float) -> str:
    return "NaN" if math.isnan(value) else "infinite"


def _nonfinite_severity(series: Series, bad: stats.Bools, total_finite: bool, t: NumericsThresholds) -> Severity:
    back = not bad[-1]
    if series.name != "loss" and total_finite and back:
        return INFO
    first = int(np.argmax(bad))
    skipped = back and bad.mean() <= t.nonfinite_skipped_share and not bad[first + 1]
    return WARN if skipped else FAIL


def _beside(frame: Frame, step: int, names: tuple[str, ...]) -> tuple[Evidence, ...]:
    """The points of other metrics at the same step."""
    found: tuple[Evidence, ...] = ()
    for name in names:
        if name in frame:
            found += evidence(frame[name], np.flatnonzero(frame[name].step == step)[-1:])
    return found


@rule(
    "TP102",
    "nonfinite-grad-norm",
    severity=FAIL,
    needs=("grad_norm",),
    fix="Use bfloat16, keep trainable weights in float32, check the attention kernel and gradient communication.",
)
def nonfinite_grad_norm(frame: Frame, t: NumericsThresholds) -> Iterator[Sighting]:
    """The gradient norm is NaN or infinite more than a loss scaler explains.

    What it does
    Counts non-finite gradient norms, in a row and in all, and asks whether each one is a step that a loss scaler skipped.

    Why it matters
    A step with such gradients either destroys the weights or is thrown away.

    Formula
    FAIL: 3 or more in a row, or 5 % of at least 20 records. WARN: 1 % of at least 20. INFO: isolated ones, and those in the first 20
    records. A record whose learning rate repeats on the next record, or beside which the loss scale falls, was a skipped step and
    does not count.

    False positives
    Mixed precision searches its scale at the start and probes it now and then; an isolated value under a dynamic scaler is normal.

    What to try
    bfloat16; float32 adapters; switch overlapped communication or the fused attention kernel off once.
    """
    grads = frame["grad_norm"]
    bad = ~np.isfinite(grads.value)
    if not bad.any():
        return
    counted = bad & ~_skipped_steps(frame, grads, bad)
    counted[: t.grad_grace_records] &= bool(bad.all())
    streak = stats.first_run(counted, t.grad_streak)
    share = float(counted.mean())
    enough = len(grads) >= t.grad_share_records
    severity = INFO
    if streak or (enough and share >= t.grad_share_fail):
        severity = FAIL
    elif enough and share >= t.grad_share_warn:
        severity = WARN
    first = int(np.argmax(bad)) if not streak else streak[0]
    flagged = first if not streak else streak[0] + t.grad_streak - 1
    if not streak and severity is not INFO:
        running = np.cumsum(counted) / np.arange(1, len(bad) + 1)
        limit = t.grad_share_fail if severity is FAIL else t.grad_share_warn
        over = (running >= limit) & (np.arange(len(bad)) >= t.grad_share_records - 1)
        flagged = int(np.argmax(over)) if over.any() else len(bad) - 1
    yield sighting(
        severity,
        f"the gradient norm is not finite in {int(bad.sum())} of {len(bad)} records, first at step {grads.step[np.argmax(bad)]}"
        f"{f', {streak[1] - streak[0]} in a row' if streak else ''}"
        f"{'' if severity is not INFO else ': consistent with steps that a loss scaler skipped'}.",
        grads,
        first=first,
        last=int(np.flatnonzero(bad)[-1]),
        flagged=max(flagged, first),
        cite=np.flatnonzero(bad)[:5].tolist(),
        threshold={"streak": t.grad_streak, "share": t.grad_share_fail if severity is FAIL else t.grad_share_warn},
    )


def _skipped_steps(frame: Frame, grads: Series, bad: stats.Bools) -> stats.Bools:
    """Records that a loss scaler skipped: the schedule did not move, or the scale was cut."""
    skipped = np.zeros(len(grads), dtype=bool)
    for name, moved in (("lr", np.equal), ("loss_scale", np.less)):
        if name not in frame or frame[name].constant:
            continue
        mine, theirs = grads.align(frame[name])
        values = frame[name].value[theirs]
        if len(values) > 1:
            skipped[mine[:-1]] |= moved(values[1:], values[:-1])
    return skipped & bad


@rule(
    "TP103",
    "zero-loss-nonfinite-grad",
    severity=FAIL,
    needs=("loss",),
    stops=True,
    fix="Set logging_nan_inf_filter=False to see the real loss; check masks and labels; train in bfloat16.",
)
def zero_loss_nonfinite_grad(frame: Frame, t: NumericsThresholds) -> Iterator[Sighting]:
    """The loss is exactly 0 while gradients (or evaluation) are not finite: a NaN that the logger replaced.

    What it does
    Looks for records with a loss of 0 beside a non-finite gradient norm, or beside a non-finite evaluation loss.

    Why it matters
    HF Trainer replaces a non-finite loss by the average of the window; a window of nothing but NaN prints 0 and looks perfect.

    Formula
    loss == 0 and gradient norm not finite in the same record: FAIL at the second, or at the first when an earlier gradient norm was
    non-finite; or an evaluation loss that is not finite at or after a loss of 0.

    False positives
    None known.

    What to try
    Log the raw loss; look for rows whose labels are all masked.
    """
    loss = frame["loss"]
    zero = loss.value == 0
    if not zero.any():
        return
    if "grad_norm" in frame:
        grads = frame["grad_norm"]
        mine, theirs = loss.align(grads)
        both = mine[zero[mine] & ~np.isfinite(grads.value[theirs])]
        earlier = grads.step[~np.isfinite(grads.value)]
        if len(both):
            again = len(both) > 1 and not (len(earlier) and earlier[0] < loss.step[both[0]])
            flagged = int(both[1] if again else both[0])
            yield _hidden_nan(
                loss,
                int(both[0]),
                flagged,
                "gradient norm",
                evidence(grads, np.flatnonzero(grads.step == loss.step[flagged])[-1:]),
                t,
            )
            return
    evals = frame["eval/loss"] if "eval/loss" in frame else None
    first = int(np.argmax(zero))
    if evals is not None:
        bad = np.flatnonzero(~np.isfinite(evals.value) & (evals.step >= loss.step[first]))
        if len(bad):
            yield _hidden_nan(loss, first, first, "evaluation loss", evidence(evals, bad[:1]), t)


def _hidden_nan(
    loss: Series, first: int, flagged: int, beside: str, more: tuple[Evidence, ...], t: NumericsThresholds
) -> Sighting:
    return sighting(
        FAIL,
        f"the loss is exactly 0 at step {loss.step[first]} beside a {beside} that is not finite. This is consistent with a non-finite "
        "loss that the logger replaced.",
        loss,
        first=first,
        last=len(loss) - 1,
        flagged=flagged,
        cite=[first, flagged] if flagged != first else [first],
        more=more,
        threshold={"records": t.hidden_records},
    )


@rule(
    "TP104",
    "fatal-text-event",
    severity=FAIL,
    whole_run=True,
    stops=True,
    fix="Read the cited line in the log: the process, the driver or the hardware gave up there.",
)
def fatal_text_event(frame: Frame, t: NumericsThresholds) -> Iterator[Sighting]:
    """The log itself announces a fatal event.

    What it does
    Looks at the lines that a text reader recognised as an out-of-memory error, a collective time-out, a GPU fault (Xid), an
    uncorrectable memory error, a minimum loss scale, or labels that are all masked.

    Why it matters
    The curve before such a line says nothing of what came after it.

    Formula
    Any such line: FAIL (Xid 63, a row that was remapped: WARN). Only lines with a time-stamp or rank prefix, or of an exception.

    False positives
    Echoed configuration and pasted source hold the same words, hence the anchored lines.

    What to try
    Look up the cited line.
    """
    if not frame.events:
        if frame.source.format not in ("coqui",):
            raise CannotTell(f"a {frame.source.format} log has no event lines")
        return
    step = frame.last_step or 0
    for event in frame.events[: t.events_told]:
        yield Sighting(
            WARN if event.kind == "xid-63" else FAIL,
            f"line {event.line} says: {event.text[:160]}",
            (Evidence(event.kind, step, float(event.line), event.line),),
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
    floor = max(t.absurd_loss, t.absurd_ratio * math.log(max(classes, 1.0)))
    high = np.abs(loss.value) > floor
    high[: t.absurd_grace] = False
    if not high.any():
        return
    base = loss.memo(stats.baseline, 1)
    with np.errstate(invalid="ignore", over="ignore"):
        at = np.flatnonzero(high & ~(np.abs(loss.value) <= t.absurd_ratio * np.abs(base.median)))
    if not len(at):
        return
    flagged = int(at[1] if len(at) > 1 else at[0])
    yield sighting(
        FAIL if len(at) > 1 else WARN,
        f"the loss is {loss.value[at[0]]:.6g} at step {loss.step[at[0]]}, in {len(at)} record{'s' if len(at) > 1 else ''} beyond {floor:.4g}.",
        loss,
        first=int(at[0]),
        last=int(at[-1]),
        flagged=flagged,
        cite=at[:5].tolist(),
        threshold={"loss": floor, "ratio": t.absurd_ratio},
    )


@rule(
    "TP110",
    "metric-went-blank",
    severity=FAIL,
    objectives=SUPERVISED,
    whole_run=True,
    fix="Ask the logger what it does with NaN (some leave the cell empty); look at the last values before the gap.",
)
def metric_went_blank(frame: Frame, t: NumericsThresholds) -> Iterator[Sighting]:
    """A loss stops being logged while the other metrics of the same records go on.

    What it does
    For the training loss and each evaluation loss, looks whether its points end while a metric that was logged with it every time
    goes on for at least 5 records more.

    Why it matters
    Some loggers write an empty cell for NaN: every number that is printed says that the run is learning.

    Formula
    The loss was logged at 90 % or more of its companion's records, then at none of the last 5 or more. FAIL when its last finite
    values grew 10 x within 20 records, when an infinity was among them, or when the task metric is pinned at 0; otherwise WARN.

    False positives
    A loss that is logged for the first 100 steps by design ends together with its own companions (gradient norm, learning rate);
    evaluation rows that go on are another kind of record.

    What to try
    Read the console output of the same run.
    """
    pairs = [(name, companions) for name, companions in _companions(frame) if companions]
    if not pairs:
        raise CannotTell("no metric is logged beside a loss")
    for name, companions in pairs:
        series = frame[name]
        if len(series) < 2:
            continue
        for other in companions:
            gone = np.flatnonzero(other.step > series.step[-1])
            together = len(other) - len(gone)
            if (
                len(gone) >= t.blank_records
                and together
                and len(series) >= t.blank_share * together
                and len(other) >= t.blank_min_records
            ):
                yield _blank(frame, series, other, gone, t)
                break


def _companions(frame: Frame) -> Iterator[tuple[str, list[Series]]]:
    """Each loss with the metrics that are logged in the same records as it."""
    for name in frame:
        split = name.rpartition("/")[0]
        is_eval = name.startswith(("eval/", "test/")) and name.endswith("loss")
        if name == "loss":
            yield name, [frame[other] for other in ("grad_norm", "lr") if other in frame]
        elif is_eval:
            yield (
                name,
                [
                    series
                    for other, series in frame.items()
                    if other.startswith(f"{split}/")
                    and "loss" not in other
                    and not other.endswith(("num_examples", "runtime"))
                ],
            )


def _blank(frame: Frame, series: Series, other: Series, gone: stats.Ints, t: NumericsThresholds) -> Sighting:
    tail = series.value[-t.blank_grew_records :]
    finite = tail[np.isfinite(tail)]
    grew = len(finite) > 1 and float(np.abs(finite[-1])) >= t.blank_grew * float(np.abs(finite).min())
    infinite = not np.isfinite(tail).all() or ("grad_norm" in frame and not np.isfinite(frame["grad_norm"].value).all())
    pinned = other.name.startswith(("eval/", "test/")) and not other.value[gone].any()
    return sighting(
        FAIL if grew or infinite or pinned else WARN,
        f"{series.name} ends at step {series.step[-1]} with {series.value[-1]:.4g}, while {other.name} goes on for {len(gone)} records more. "
        "This is consistent with a NaN that the logger left blank.",
        series,
        first=max(0, len(series) - 3),
        last=len(series) - 1,
        cite=range(max(0, len(series) - 3), len(series)),
        more=evidence(other, gone[: t.blank_records : t.blank_records - 1]),
        threshold={"records": t.blank_records, "grew": t.blank_grew},
    )._replace(flagged_step=int(other.step[gone[t.blank_records - 1]]), last_step=int(other.step[-1]))
