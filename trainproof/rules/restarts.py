"""TP703 and TP708: data that is read again after a restart, and restarts that get nowhere."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trainproof import stats
from trainproof.frame import Frame, Repair, Series
from trainproof.rules.registry import FAIL, INFO, WARN, CannotTell, Sighting, rule, sighting
from trainproof.rules.states import resumes
from trainproof.thresholds import ResumeThresholds
from trainproof.verdict import Evidence, Severity

#: counters of data that only ever grow within a run
COUNTERS = ("epoch", "tokens", "consumed_samples", "consumed samples", "samples")


@rule(
    "TP703",
    "data-replayed",
    severity=FAIL,
    min_records=4,
    whole_run=True,
    fix="Save and restore the sampler's position (epoch, offset, seed) with the checkpoint, or skip the batches already seen.",
)
def data_replayed(frame: Frame, t: ResumeThresholds) -> Iterator[Sighting]:
    """The run goes on, but its data begins again.

    What it does
    Compares the counters of epochs, samples and tokens across a resume, and the loss, which falls on data that was seen before.

    Why it matters
    The first part of the data is learned twice and the last part never.

    Formula
    A counter that falls by more than its usual step where the run resumed and the step goes on: FAIL; elsewhere, to under half of its
    value: WARN. Without a counter: the loss falls by 5 % at a resume and later comes back to its level before: INFO.

    False positives
    A column that falls again and again is no counter (a batch's tokens, an epoch within a stage): passed over.

    What to try
    Log the index of the first sample of a batch on either side of the resume.
    """
    counters = [
        frame[name].finite for name in COUNTERS if name in frame and len(frame[name].finite) >= t.counter_records
    ]
    if not counters and len(frame.segments) < 2:
        raise CannotTell("no counter of epochs, samples or tokens, and no resume in the log")
    seen = False
    for counter in counters:
        for told in _falls(frame, counter, t):
            seen = True
            yield told
    if not seen and "loss" in frame:
        yield from _read_again(frame, frame["loss"].finite, t)


def _falls(frame: Frame, counter: Series, t: ResumeThresholds) -> Iterator[Sighting]:
    change = np.diff(counter.value)
    if not (change < -t.counter_least).any():
        return
    usual = stats.median(np.abs(change))
    falls = np.flatnonzero(change < -max(t.counter_usual * usual, t.counter_least)) + 1
    if len(falls) > t.counter_falls:
        return
    resumed = {resume.at: resume.known for resume in resumes(frame, counter)}
    for i in falls.tolist():
        before, after = float(counter.value[i - 1]), float(counter.value[i])
        at_resume = i in resumed
        if at_resume or after < t.counter_half * before:
            yield sighting(
                FAIL if at_resume else WARN,
                f"{counter.name} fell from {before:.6g} to {after:.6g} at step {counter.step[i]}{', where the run resumed' if at_resume else ''}, "
                f"while the step went on: {_why(counter, i, t)}.",
                counter,
                first=i - 1,
                last=i,
                flagged=resumed.get(i, i),
                cite=[i - 1, i],
                threshold={"usual": t.counter_usual},
            )


def _why(counter: Series, at: int, t: ResumeThresholds) -> str:
    """What a counter that falls at a record tells: where an epoch is another number of steps long from there on, other data."""
    before, after = counter.value[max(at - t.counter_near, 0) : at], counter.value[at : at + t.counter_near]
    if counter.name == "epoch" and len(before) > 1 and len(after) > 1:
        first, last = int(counter.step[at - len(before)]), int(counter.step[at + len(after) - 1])
        gained = float(before[-1] - before[0]), float(after[-1] - after[0])
        if min(gained) >= t.counter_least:
            was, now = (int(counter.step[at - 1]) - first) / gained[0], (last - int(counter.step[at])) / gained[1]
            if max(was, now) >= t.counter_usual * min(was, now):
                return f"an epoch had about {was:,.0f} steps and has {now:,.0f} from there on, so that the data or the batch size changed"
    return "data that was read before is read again"


def _read_again(frame: Frame, loss: Series, t: ResumeThresholds) -> Iterator[Sighting]:
    """A loss that is lower after a resume, and later as high as before."""
    width = t.jump_after
    for resume in resumes(frame, loss):
        before = loss.value[max(resume.begin, resume.at - t.jump_before) : resume.at]
        after = loss.value[resume.at : resume.end]
        if len(before) < width or len(after) < 2 * width:
            continue
        level = stats.median(before)
        se = (
            stats.MEDIAN_SE
            * max(stats.difference_noise(before), 0.02 * abs(level))
            * (1 / width + 1 / len(before)) ** 0.5
        )
        low = stats.median(after[:width])
        at, later = stats.trailing_median(after, width)
        back = np.flatnonzero((at >= 2 * width - 1) & (later >= level - 2 * se))
        if level - low >= max(t.jump_z * se, t.jump_share * abs(level)) and len(back):
            yield sighting(
                INFO,
                f"the loss fell from {level:.4g} to {low:.4g} where the run resumed at step {loss.step[resume.at]}, and was back at "
                f"{later[back[0]]:.4g} by step {loss.step[resume.at + at[back[0]]]}: consistent with data that was seen before.",
                loss,
                first=resume.at - 1,
                last=resume.at + int(at[back[0]]),
                threshold={"z": t.jump_z, "share": t.jump_share},
            )


@rule(
    "TP708",
    "restart-loop",
    severity=FAIL,
    min_records=2,
    whole_run=True,
    fix="Look at the error of the steps just before each restart; the same batch, node or step kills the run each time.",
)
def restart_loop(frame: Frame, t: ResumeThresholds) -> Iterator[Sighting]:
    """The run restarts again and again from the same step and gets no further.

    What it does
    Follows the steps from which the log was written again.

    Why it matters
    Each round costs the same steps and saves nothing.

    Formula
    3 restarts in a row from the same step: WARN, 5: FAIL; INFO when the last attempt got further than all before by as much as they
    had made since that step.

    False positives
    A cluster that fails often still makes progress between restarts: each begins at a later checkpoint.

    What to try
    Skip the batch that comes before each restart; run the node's diagnostics.
    """
    overlaps = [repair for repair in frame.repairs if repair.kind == "overlap"]
    longest = max(_loops(overlaps), key=len, default=[])
    if len(longest) < t.loop_restarts:
        return
    first, last = longest[0], longest[-1]
    reached = max(repair.last_step for repair in longest)
    escaped = (frame.last_step or 0) - reached >= max(reached - first.first_step, 1)
    severity: Severity = INFO if escaped else FAIL if len(longest) >= t.loop_restarts_fail else WARN
    name = frame.main.name if frame.main is not None else "step"
    yield Sighting(
        severity,
        f"the run restarted {len(longest)} times from step {first.first_step} and never got beyond step {reached}"
        f"{'' if not escaped else ' until the last attempt, which went on'}.",
        tuple(Evidence(name, repair.first_step, float(repair.count), repair.line) for repair in longest),
        {"restarts": float(t.loop_restarts)},
        first.first_step,
        reached,
        _step_after(frame, last.first_step),
    )


def _step_after(frame: Frame, step: int) -> int:
    """The step of the record after that of `step`, with which a resume there is known; `step` where it is the last."""
    steps = frame.main.step if frame.main is not None else np.empty(0, np.int64)
    at = int(np.searchsorted(steps, step, side="right"))
    return int(steps[at]) if at < len(steps) else step


def _loops(overlaps: list[Repair]) -> list[list[Repair]]:
    """Restarts in a row from the same step."""
    loops: list[list[Repair]] = []
    for repair in overlaps:
        if loops and repair.first_step == loops[-1][-1].first_step:
            loops[-1].append(repair)
        else:
            loops.append([repair])
    return loops
