"""Family TP0: is the log itself whole? What these rules see was put right by `segments` before anything was judged."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from trainproof import stats
from trainproof.frame import Frame, Repair, Series
from trainproof.rules.registry import INFO, WARN, CannotTell, Sighting, rule, sighting
from trainproof.thresholds import LogQualityThresholds
from trainproof.verdict import Evidence, Severity

#: metrics whose loss blinds a rule (a loss that goes blank is TP110's)
WATCHED = ("lr", "grad_norm", "loss_scale", "skipped_steps", "reward", "kl", "entropy")
#: counters that only ever grow within a run
COUNTERS = ("epoch", "tokens")
#: repairs that are only told: the kind, and what is said of the `count` points of `of`
TOLD = {
    "epochs": "the steps fall back {0} times in {1} records",
    "repeats": "{0} of {1} records are of a step that was logged already",
    "writers": "this run is {0} of {1} records of its log",
}
#: columns that say which process wrote a line
WRITERS = frozenset({"rank", "local_rank", "global_rank", "node", "node_rank", "host", "host_id", "process"})


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
    min_records=0,
    fix="Name the format with --format, or the columns with --map loss=COLUMN.",
)
def no_usable_records(frame: Frame, t: LogQualityThresholds) -> Iterator[Sighting]:
    """There is too little in the log to judge a curve by.

    What it does
    Counts the records of the loss, or of the longest series when there is no loss.

    Why it matters
    A verdict on a handful of points would be a guess; the report says so instead.

    Formula
    Fewer than 8 records: INFO, with the columns found and the lines rejected. A run that no rule could judge, or of fewer than 3
    records in which nothing is wrong, is SKIP, exit code 2.

    False positives
    A log of evaluations alone is legal: it is judged by the evaluation rules and not mentioned here.

    What to try
    Log more often; map the columns.
    """
    main = frame.main
    if main is None or not len(main):
        found = f"no numeric records; {frame.dropped_count} lines were not understood"
        yield Sighting(INFO, found, (), {"records": t.usable_records}, 0, 0, 0)
    elif len(main) < t.usable_records and not main.name.startswith(("eval/", "test/")):
        yield sighting(
            INFO,
            f"only {len(main)} records of {main.name} (found: {', '.join(list(frame)[:8])}; {frame.dropped_count} lines were not "
            "understood): most rules need more.",
            main,
            first=0,
            last=len(main) - 1,
            threshold={"records": t.usable_records},
        )


@rule(
    "TP002",
    "step-gap",
    severity=WARN,
    min_records=20,
    fix="Check whether the logger dropped records (some drop steps that go back) or the process stood still.",
)
def step_gap(frame: Frame, t: LogQualityThresholds) -> Iterator[Sighting]:
    """Steps are missing in the middle of the log.

    What it does
    Compares each distance between logged steps with the usual one before it.

    Why it matters
    What happened in the gap was not seen by any rule.

    Formula
    d = the most frequent of the 50 distances before (80 % of them have to agree). A distance >= 5 d inside a segment, after which d is
    the distance again for 3 records: WARN. 5 gaps or more: INFO, that is how the run logs.

    False positives
    A logging interval changed on purpose (the first steps each, then every 100th) does not go back to d: INFO.

    What to try
    Look at the time-stamps on either side.
    """
    main = frame.main
    if main is None:
        raise CannotTell("no records")
    distance = np.diff(main.step)
    smallest = int(distance.min(initial=np.iinfo(np.int64).max))
    large = np.flatnonzero(distance >= t.gap_times * max(smallest, 1))
    gaps = [(int(i), usual) for i in large[: t.gap_history] if (usual := _usual(distance, int(i), t))]
    if not gaps:
        return
    holes = [(i, usual) for i, usual in gaps if _goes_on_as_before(distance, i, usual, t)]
    first, usual = (holes or gaps)[0]
    many = len(gaps) >= t.gap_many
    yield sighting(
        WARN if holes and not many else INFO,
        f"{len(gaps)} gap{'s' if len(gaps) > 1 else ''} in the steps: step {main.step[first]} is followed by {main.step[first + 1]}, where "
        f"the distance was {usual}{'' if holes else '; the interval did not come back, consistent with a change on purpose'}.",
        main,
        first=first,
        last=first + 1,
        flagged=first + 1 + t.gap_back if holes else first + 1,
        cite=[first, first + 1],
        threshold={"times": t.gap_times},
    )


def _usual(distance: stats.Ints, gap: int, t: LogQualityThresholds) -> int | None:
    """The usual distance before the gap, when there is one and the gap is large beside it."""
    before = distance[max(0, gap - t.gap_history) : gap]
    if not len(before):
        return None
    values, counts = stats.distinct(before)
    usual = int(values[np.argmax(counts)])
    regular = counts.max() >= t.gap_regular * len(before)
    return usual if usual > 0 and regular and distance[gap] >= t.gap_times * usual else None


def _goes_on_as_before(distance: stats.Ints, gap: int, usual: int, t: LogQualityThresholds) -> bool:
    after = distance[gap + 1 : gap + 1 + t.gap_back]
    return len(after) == t.gap_back and bool((after == usual).all())


@rule(
    "TP003",
    "step-overlap",
    severity=WARN,
    whole_run=True,
    min_records=2,
    fix="Check which checkpoint the run resumed from, and whether its data position was restored.",
)
def step_overlap(frame: Frame, t: LogQualityThresholds) -> Iterator[Sighting]:
    """Steps were logged twice: the run resumed from before the end of its log, or the log's lines are out of order or of several writers.

    What it does
    Reports each resume that overlaps, and what was put right before anything was judged: lines out of order, steps logged several
    times (the later value was kept), steps counted anew in each epoch, the lines of several writers.

    Why it matters
    Overlapped steps were paid for twice, and a resume that starts over may have lost its state.

    Formula
    Overlap of more than the declared save interval, a counter (epoch, tokens) that begins anew, or a loss that does not go on within
    5 S at the seam: WARN. Everything else: INFO.

    False positives
    A crash with a clean resume always repeats the steps since the last checkpoint: that is INFO.

    What to try
    Compare the resumed step with the checkpoint's own.
    """
    reached = 0
    for repair in frame.repairs:
        if repair.kind == "disorder":
            message = f"the steps fall {repair.count} times in {repair.of} records: {repair.detail}."
            yield _repaired(INFO, message, repair, frame, {"falls": 0.0})
        elif repair.kind in TOLD:
            message = f"{TOLD[repair.kind].format(repair.count, repair.of)}: {repair.detail}."
            yield _repaired(INFO, message, repair, frame, {})
        elif repair.kind == "overlap":
            allowed = frame.facts.number("save_steps") or math.inf
            wrong = _counter_reset(frame, repair, t) or _seam(frame, repair, t)
            severe = wrong or repair.last_step - repair.first_step > allowed
            message = f"{repair.count} records were logged again: {repair.detail}{f'; {wrong}' if wrong else ''}."
            limits = {"steps": allowed} if allowed < math.inf else {}
            reached = max(reached, repair.last_step)
            seen = _repaired(WARN if severe else INFO, message, repair, frame, limits)
            yield seen._replace(flagged_step=_beyond(frame, repair.first_step, reached, t))


def _beyond(frame: Frame, resumed: int, reached: int, t: LogQualityThresholds) -> int:
    """The step at which the run is beyond all that was logged before, and has the records after the seam: until then its lines might
    as well be repeats."""
    if frame.main is None:
        return reached
    step = frame.main.step
    at = max(
        int(np.searchsorted(step, reached, side="right")), int(np.searchsorted(step, resumed)) + t.overlap_seam - 1
    )
    return int(step[min(at, len(step) - 1)])


def _counter_reset(frame: Frame, repair: Repair, t: LogQualityThresholds) -> str | None:
    """A counter that began anew where the run resumed."""
    for name in COUNTERS:
        if name in frame:
            counter = frame[name].finite
            at = int(np.searchsorted(counter.step, repair.first_step))
            if 0 < at < len(counter) and counter.value[at] < t.overlap_counter * counter.value[at - 1]:
                return f"{name} fell from {counter.value[at - 1]:.4g} to {counter.value[at]:.4g}"
    return None


def _seam(frame: Frame, repair: Repair, t: LogQualityThresholds) -> str | None:
    """A loss that does not go on where it was: its median after the seam against the records before."""
    if "loss" not in frame:
        return None
    loss = frame["loss"].finite
    at = int(np.searchsorted(loss.step, repair.first_step))
    end = at + t.overlap_seam - 1
    if at < stats.BASELINE_MINIMUM or end >= len(loss):
        return None
    base = stats.baseline(loss.value[max(0, at - stats.BASELINE_WINDOW) : end + 1])
    before, scale = float(base.median[-1]), float(base.scale[-1])
    after = stats.median(loss.value[at : end + 1])
    return f"the loss went from {before:.4g} to {after:.4g}" if after - before > t.overlap_scales * scale else None


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
    Repeats in 10 % or more of at least 20 records: WARN; INFO when a rank or host column, or a like number of repeats of every record,
    explains them.

    False positives
    One line a rank is how many launchers log.

    What to try
    Log on rank 0 only.
    """
    for repair in frame.repairs:
        if repair.kind != "duplicates" or repair.of < t.duplicates_min_records:
            continue
        if repair.count >= t.duplicates_share * repair.of:
            kept = repair.of - repair.count
            explained = bool(WRITERS & set(frame)) or (kept > 0 and repair.count % kept == 0)
            message = f"{repair.count} of {repair.of} records repeat an earlier one exactly ({repair.detail})."
            yield _repaired(INFO if explained else WARN, message, repair, frame, {"share": t.duplicates_share})


@rule(
    "TP005",
    "metric-missing-or-placeholder",
    severity=WARN,
    min_records=20,
    fix="Check the logging call of the cited metric.",
)
def metric_missing_or_placeholder(frame: Frame, t: LogQualityThresholds) -> Iterator[Sighting]:
    """A metric disappears from the log, or never says anything.

    What it does
    Looks for a metric that was logged with nearly every record and then stops, and for a gradient norm, loss scale or loss part that
    is one and the same in every record.

    Why it matters
    Rules that need the metric are blind from there on; a placeholder is no evidence either way.

    Formula
    Present in 90 % of at least 20 records, then absent from 10 or more to the end: WARN. The same value in 50 records or more
    while the loss varies: INFO, and no rule uses it (for parts of the loss and loss scales: 0 or below).

    False positives
    A constant learning rate is a schedule, a static loss scale is constant; neither is told. A loss that stops is TP110.

    What to try
    Look at the line where it stops.
    """
    main = frame.main
    if main is None:
        raise CannotTell("no records")
    for name, series in frame.items():
        if name in WATCHED or name.startswith("lr/"):
            yield from _stopped(main, series, t)
        if main is not series and _placeholder(series, t) and not main.constant:
            yield sighting(
                INFO,
                f"{name} is {series.value[0]:g} in all {len(series)} records: a placeholder, no rule uses it.",
                series,
                first=0,
                last=len(series) - 1,
                flagged=t.placeholder_records - 1,
                cite=[0],
                threshold={"records": t.placeholder_records},
            )


def _stopped(main: Series, series: Series, t: LogQualityThresholds) -> Iterator[Sighting]:
    """`series` ended while the main one went on."""
    until = int(np.searchsorted(main.step, series.step[-1], side="right")) if len(series) else 0
    if until < t.missing_before or len(main) - until < t.missing_records:
        return
    shared = len(series.align(main)[0])
    if shared >= t.missing_presence * until:
        yield sighting(
            WARN,
            f"{series.name} stops at step {series.step[-1]}, while {main.name} goes on for {len(main) - until} records.",
            series,
            first=max(0, len(series) - 2),
            last=len(series) - 1,
            threshold={"records": t.missing_records},
        )._replace(flagged_step=int(main.step[until + t.missing_records - 1]), last_step=int(main.step[-1]))


def _placeholder(series: Series, t: LogQualityThresholds) -> bool:
    if len(series) < t.placeholder_records or not series.constant:
        return False
    part = series.name == "loss_scale" or series.name.startswith(("loss/", "eval/loss"))
    return series.name == "grad_norm" or (part and float(series.value[0]) <= 0)


@rule(
    "TP006",
    "format-guessed",
    severity=INFO,
    whole_run=True,
    fix="Name the format with --format, and what is the loss with --map loss=NAME, if the guess is wrong.",
)
def format_guessed(frame: Frame, _: LogQualityThresholds) -> Iterator[Sighting]:
    """No known logger wrote this log; it was read by guess.

    What it does
    Says which of the log's keys were taken for the step and for the loss.

    Why it matters
    A wrong guess makes findings of what is none. All findings on such a log are warnings at most, unless a value is not finite.

    Formula
    Lines of `key: value` or `key=value`, of which at least 12 share a counter (step, iteration, epoch ...) and a loss: INFO.

    False positives
    It is told, never judged.

    What to try
    Name the format, or the loss.
    """
    main = frame.main
    if not frame.guessed or main is None or not len(main):
        raise CannotTell(f"the format is known: {frame.source.format}")
    yield sighting(INFO, f"{frame.guessed}.", main, first=0, last=len(main) - 1, cite=[0], threshold={})
