"""Family TP0: is the log itself whole? What these rules see was put right by `segments` before anything was judged."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trainproof.frame import Frame, Repair
from trainproof.rules.registry import INFO, WARN, CannotTell, Sighting, rule, sighting
from trainproof.thresholds import LogQualityThresholds
from trainproof.verdict import Evidence, Severity


def _repaired(severity: Severity, message: str, repair: Repair, frame: Frame, threshold: dict[str, float]) -> Sighting:
    """A sighting of something that `segments` put right."""
    name = frame.main.name if frame.main is not None else "step"
    cited = Evidence(name, repair.first_step, float(repair.count), repair.line)
    return Sighting(severity, message, (cited,), threshold, repair.first_step, repair.last_step, repair.last_step)


@rule(
    "TP001",
    "no-usable-records",
    severity=INFO,
    whole_run=True,
    fix="Name the format with --format, or the columns with --map loss=COLUMN.",
)
def no_usable_records(frame: Frame, t: LogQualityThresholds) -> Iterator[Sighting]:
    """There is too little in the log to judge a curve by.

    What it does
    Counts the records of the main series.

    Why it matters
    A verdict on a handful of points would be a guess; the report says so instead.

    Formula
    Fewer than 8 records of the loss, or of the longest series when there is no loss: INFO. A run on which no rule of the families
    loss, learning rate, gradients or evaluation could run is SKIP with exit code 2.

    False positives
    A log of evaluations alone is legal and is judged by the evaluation rules.

    What to try
    Log more often; map the columns.
    """
    main = frame.main
    if main is not None and 0 < len(main) < t.few_records:
        yield sighting(
            INFO,
            f"only {len(main)} records of {main.name}: most rules need more.",
            main,
            first=0,
            last=len(main) - 1,
            threshold={"records": t.few_records},
        )


@rule(
    "TP002",
    "step-gap",
    severity=WARN,
    whole_run=False,
    min_records=20,
    fix="Check whether the logger dropped records (some drop steps that go back) or the process stood still.",
)
def step_gap(frame: Frame, t: LogQualityThresholds) -> Iterator[Sighting]:
    """Steps are missing in the middle of the log.

    What it does
    Compares the distance between logged steps with the usual one.

    Why it matters
    What happened in the gap was not seen by any rule.

    Formula
    d = the most frequent distance of steps; a distance of 5 d or more inside a segment: WARN. When the distance stays changed
    afterwards, the logging interval was changed on purpose: INFO.

    False positives
    A changed logging interval (the first steps each, then every 100th); epochs of unequal length.

    What to try
    Look at the time-stamps on either side.
    """
    main = frame.main
    if main is None:
        raise CannotTell("no records")
    distance = np.diff(main.step)
    usual = _mode(distance)
    gaps = np.flatnonzero(distance >= t.gap_ratio * usual)
    if not len(gaps) or (distance == usual).mean() < t.gap_usual_share:
        return
    regular = len(gaps) >= t.gap_regular
    changed = any(_stays_changed(distance, int(gap), usual) for gap in gaps)
    first = int(gaps[0])
    yield sighting(
        INFO if changed or regular else WARN,
        f"{len(gaps)} gap{'s' if len(gaps) > 1 else ''} in the steps: {main.step[first]} is followed by {main.step[first + 1]}, the usual distance is "
        f"{usual}{', and the distance stays changed' if changed else ''}.",
        main,
        first=first,
        last=int(gaps[-1]) + 1,
        flagged=first + 1,
        cite=[first, first + 1],
        threshold={"ratio": t.gap_ratio},
    )


def _mode(distance: np.ndarray[tuple[int], np.dtype[np.int64]]) -> int:
    values, counts = np.unique(distance, return_counts=True)
    return max(1, int(values[np.argmax(counts)]))


def _stays_changed(distance: np.ndarray[tuple[int], np.dtype[np.int64]], gap: int, usual: int) -> bool:
    """Whether the distances around the gap are not the usual one either: a new interval, not a hole."""
    around = np.concatenate([distance[max(0, gap - 3) : gap], distance[gap + 1 : gap + 4]])
    before, after = distance[max(0, gap - 3) : gap], distance[gap + 1 : gap + 4]
    same = (len(after) > 0 and bool((after >= distance[gap] / 2).all())) or (
        len(before) > 0 and bool((before >= distance[gap] / 2).all())
    )
    return same or (len(around) > 0 and bool((around != usual).all()))


@rule(
    "TP003",
    "step-overlap",
    severity=WARN,
    whole_run=True,
    min_records=2,
    fix="Check which checkpoint the run resumed from, and whether its data position was restored.",
)
def step_overlap(frame: Frame, t: LogQualityThresholds) -> Iterator[Sighting]:
    """Steps were logged twice: the run resumed from before the end of its log, or the log is out of order.

    What it does
    Reports each resume that overlaps, and a log whose lines are out of order; the later value was kept.

    Why it matters
    Overlapped steps were paid for twice, and a resume that starts over may have lost its state.

    Formula
    Overlap up to the save interval (or 10 % of the records when it is not declared): INFO; more: WARN. Disorder: INFO.

    False positives
    A crash with a clean resume always repeats the steps since the last checkpoint: that is INFO.

    What to try
    Compare the resumed step with the checkpoint's own.
    """
    for repair in frame.repairs:
        if repair.kind == "disorder":
            yield _repaired(
                INFO,
                f"the steps fall {repair.count} times in {repair.of} records: {repair.detail}.",
                repair,
                frame,
                {"share": t.disorder_share},
            )
        elif repair.kind == "overlap":
            interval = frame.facts.number("save_steps")
            allowed = interval if interval else t.overlap_share * max(frame.last_step or 0, 1)
            severity = INFO if repair.last_step - repair.first_step <= allowed else WARN
            yield _repaired(
                severity,
                f"{repair.count} records were logged again: {repair.detail}.",
                repair,
                frame,
                {"steps": float(allowed)},
            )


@rule(
    "TP004",
    "duplicate-records",
    severity=WARN,
    whole_run=True,
    min_records=2,
    fix="Log on one rank only, or capture the output once.",
)
def duplicate_records(frame: Frame, t: LogQualityThresholds) -> Iterator[Sighting]:
    """The same records are in the log several times.

    What it does
    Counts records that repeat an earlier one exactly; they were dropped before anything was judged.

    Why it matters
    Several writers in one file, or one output captured twice, hide which record belongs to which process.

    Formula
    Repeats in 10 % or more of at least 20 records: INFO when every record repeats equally often (one line a rank, or the whole output
    twice), otherwise WARN.

    False positives
    One line a rank is how many launchers log.

    What to try
    Log on rank 0 only.
    """
    for repair in frame.repairs:
        if (
            repair.kind == "duplicates"
            and repair.of >= t.duplicates_min_records
            and repair.count >= t.duplicates_share * repair.of
        ):
            kept = repair.of - repair.count
            even = kept > 0 and repair.count % kept == 0
            message = f"{repair.count} of {repair.of} records repeat an earlier one exactly ({repair.detail})."
            yield _repaired(INFO if even else WARN, message, repair, frame, {"share": t.duplicates_share})


@rule(
    "TP005",
    "metric-missing-or-placeholder",
    severity=WARN,
    whole_run=False,
    min_records=20,
    fix="Check the logging call of the cited metric.",
)
def metric_missing_or_placeholder(frame: Frame, t: LogQualityThresholds) -> Iterator[Sighting]:
    """A metric disappears from the log, or never says anything.

    What it does
    Looks for a gradient norm, learning rate or loss scale that was logged with nearly every loss and then stops, and for one that is
    the same in every record.

    Why it matters
    Rules that need the metric are blind from there on; a placeholder is no evidence either way.

    Formula
    Present in 90 % of the first fifth of the loss records, then absent for 10 records or more to the end: WARN. The same value in 50
    records or more while the loss varies: INFO (0, -1 or any constant that is not a declared constant rate).

    False positives
    A constant learning rate is a schedule, not a placeholder. A static loss scale is constant.

    What to try
    Look at the line where it stops.
    """
    if "loss" not in frame:
        raise CannotTell("no loss in the log")
    loss = frame["loss"]
    for name in ("grad_norm", "lr", "loss_scale"):
        if name not in frame or not len(frame[name]):
            continue
        series = frame[name]
        early = loss.step[: max(1, len(loss) // 5)]
        present = float(np.isin(early, series.step).mean())
        missing = int((loss.step > series.step[-1]).sum())
        if present >= t.missing_share and missing >= t.missing_records:
            yield sighting(
                WARN,
                f"{name} stops at step {series.step[-1]}, while the loss goes on for {missing} records.",
                series,
                first=max(0, len(series) - 2),
                last=len(series) - 1,
                threshold={"records": t.missing_records},
            )
        if name == "grad_norm" and series.constant and len(series) >= t.placeholder_records and not loss.constant:
            yield sighting(
                INFO,
                f"{name} is {series.value[0]:g} in all {len(series)} records: a placeholder, no rule uses it.",
                series,
                first=0,
                last=len(series) - 1,
                cite=[0],
                threshold={"records": t.placeholder_records},
            )
