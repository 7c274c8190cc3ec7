"""A finished log record by record, and what `epoch` says of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from trainproof.frame import Frame
from trainproof.guardian import Guardian
from trainproof.judge import judge_run
from trainproof.verdict import Finding, RunReport, Severity


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


def rows(frame: Frame) -> list[tuple[int, dict[str, float]]]:
    """The log's records as (step, values), in order; an evaluation is a record of its own, after the training record of its step."""
    found: dict[tuple[int, bool], dict[str, float]] = {}
    for name, series in frame.items():
        for step, value in zip(series.step.tolist(), series.value.tolist(), strict=True):
            found.setdefault((step, name.startswith(("eval/", "test/"))), {})[name] = value
    return [(step, found[step, held_out]) for step, held_out in sorted(found)]


def watched(frame: Frame) -> Live:
    """The whole log through a guardian, one record at a time, and the end of it."""
    guardian = Guardian(facts=frame.facts, on_finding=())
    told: list[tuple[Said, int]] = []
    for step, values in rows(frame):
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


def differences(frame: Frame) -> list[str]:
    """Where live and finished differ: what stands at the end, and what was not said at the record of its flagged step."""
    live, offline = watched(frame), finished(frame)
    found = [] if live.standing == offline else [f"live {live.standing}, finished {offline}"]
    for finding in offline:
        steps = [
            step for told, step in live.said if (told.rule, told.flagged_step) == (finding.rule, finding.flagged_step)
        ]
        if steps[:1] != [finding.flagged_step]:
            found.append(f"{finding} said at {steps}")
    return found
