"""A log record by record, and what `epoch` says of it when it is finished."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from trainproof.facts import Facts, FactValue
from trainproof.frame import Frame, Source
from trainproof.guardian import Guardian
from trainproof.judge import judge_run
from trainproof.readers.base import recognise
from trainproof.readers.builder import FrameBuilder
from trainproof.readers.source import LogInput
from trainproof.verdict import Finding, RunReport, Severity

#: TP102 takes a step for skipped, or not, only with the record after it: a FAIL that does not stand to the end may come so late
LATE = {"TP102"}
#: (step, values) of a record
Row = tuple[int, dict[str, float]]


class Said(NamedTuple):
    """A finding by rule, severity and flagged step."""

    rule: str
    severity: str
    flagged_step: int


class Live(NamedTuple):
    """What a guardian said: each finding with the step of the record at which it came, and what stands at the end."""

    said: list[tuple[Said, int]]
    standing: list[Said]
    guardian: Guardian


def rows(frame: Frame) -> list[Row]:
    """The frame's records in order; an evaluation is a record of its own, after the training record of its step."""
    found: dict[tuple[int, bool], dict[str, float]] = {}
    for name, series in frame.items():
        for step, value in zip(series.step.tolist(), series.value.tolist(), strict=True):
            found.setdefault((step, name.startswith(("eval/", "test/"))), {})[name] = value
    return [(step, found[step, held_out]) for step, held_out in sorted(found)]


def lines(path: Path) -> list[Row]:
    """The records of a log of one run, line by line as they were written: resumes go back in it."""
    log, out = LogInput(str(path)), FrameBuilder()
    recognise(log).read(log, out)
    log.close()
    [points] = out.take().values()
    found: dict[tuple[int, int], dict[str, float]] = {}
    for name, series in points.items():
        for step, value, line in zip(series.step.tolist(), series.value.tolist(), series.line.tolist(), strict=True):
            found.setdefault((line, step), {})[name] = value
    return [(step, found[line, step]) for line, step in sorted(found)]


def frame_of(log: Iterable[Row], facts: Mapping[str, FactValue]) -> Frame:
    """What a reader makes of the lines of a log: its last run."""
    out = FrameBuilder()
    for line, (step, values) in enumerate(log, 1):
        out.add(step, values, line)
    return out.build(Source("<made>", "jsonl"), Facts(facts))[-1]


def watched(frame: Frame, log: Iterable[Row] | None = None, guardian: Guardian | None = None) -> Live:
    """The whole log (default: the frame's records) through a guardian, one record at a time, and the end of it."""
    guardian = guardian or Guardian(facts=frame.facts, on_finding=())
    told: list[tuple[Said, int]] = []
    for step, values in rows(frame) if log is None else log:
        told += [(said(finding), step) for finding in guardian.record(step, values)]
    told += [(said(finding), frame.last_step or 0) for finding in guardian.ask()]
    return Live(told, sorted(map(said, guardian.findings)), guardian)


def said(finding: Finding) -> Said:
    return Said(finding.rule, finding.severity.value, finding.flagged_step)


def finished(frame: Frame) -> list[Said]:
    """What `epoch` says of the log: every finding that moves the verdict, related ones too."""
    return sorted(said(finding) for finding in everything(judge_run(frame)) if finding.severity is not Severity.INFO)


def everything(run: RunReport) -> Iterator[Finding]:
    for finding in run.findings:
        yield finding
        yield from finding.related


def differences(frame: Frame, log: list[Row] | None = None) -> list[str]:
    """Where live and finished differ: what stands at the end, what was not said, and what was said at another record than the flagged."""
    live, offline = watched(frame, log), finished(frame)
    found = [] if live.standing == offline else [f"live {live.standing}, finished {offline}"]
    told = {(each.rule, each.flagged_step) for each, _ in live.said}
    found += [f"{each} was not said" for each in offline if (each.rule, each.flagged_step) not in told]
    return found + [
        f"{each} said at {step}" for each, step in live.said if step != each.flagged_step and each.rule not in LATE
    ]
