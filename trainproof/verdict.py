"""Verdict, Evidence, Finding, Report, and how findings fold into a verdict. A renderer sees nothing else."""

from __future__ import annotations

import math
from collections.abc import Iterable
from enum import StrEnum
from typing import Literal

import msgspec

SCHEMA_VERSION = 1

Number = float | Literal["NaN", "Infinity", "-Infinity"]


class Verdict(StrEnum):
    """What is said of a run, from best to worst; SKIP means that nothing could be judged."""

    PASS = "PASS"
    WARN = "WARN"
    FAIL = "FAIL"
    SKIP = "SKIP"


class Severity(StrEnum):
    """What is said of a finding; INFO is told and never moves the verdict."""

    INFO = "INFO"
    WARN = "WARN"
    FAIL = "FAIL"


SEVERITY_RANK = {Severity.INFO: 0, Severity.WARN: 1, Severity.FAIL: 2}


def number(value: float) -> Number:
    """`value` as JSON can carry it: non-finite values become the strings "NaN", "Infinity" and "-Infinity"."""
    if math.isfinite(value):
        return float(value)
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


class Evidence(msgspec.Struct, frozen=True):
    """One logged point: metric, step, value and source line (from 1; the record's number where a log has no lines)."""

    metric: str
    step: int
    value: Number
    line: int


class Finding(msgspec.Struct, frozen=True):
    """What a rule saw: never a cause, only what was seen and what that is consistent with.

    `first_step` and `last_step` bound what was seen; `flagged_step` is the step at which a judge that reads the log record by record
    says so first. `threshold` names the limits that were crossed, with their values.
    """

    rule: str
    name: str
    severity: Severity
    message: str
    first_step: int
    last_step: int
    flagged_step: int
    evidence: tuple[Evidence, ...]
    threshold: dict[str, Number]
    fix: str
    page: str
    related: tuple[Finding, ...] = ()


class Panel(msgspec.Struct, frozen=True):
    """A curve that a renderer may draw: at most 1,000 points a series, min/max-decimated, the findings' own points kept.

    `series` is (metric, steps, values); a missing value is NaN and marks a non-finite record, whose steps are in `nonfinite`.
    """

    title: str
    unit: str
    series: tuple[tuple[str, tuple[int, ...], tuple[float, ...]], ...]
    nonfinite: tuple[int, ...] = ()
    log_scale: bool = False


class SegmentReport(msgspec.Struct, frozen=True):
    start: int
    end: int
    why: str


class DroppedLine(msgspec.Struct, frozen=True):
    line: int
    why: str


class RunReport(msgspec.Struct, frozen=True):
    """One judged run. `panels` feeds the HTML report and is left out of the JSON."""

    source: str
    format: str
    name: str | None
    verdict: Verdict
    reason: str | None
    objective: str
    records: int
    first_step: int | None
    last_step: int | None
    segments: tuple[SegmentReport, ...]
    facts: dict[str, str | int | float | bool]
    dropped: int
    dropped_lines: tuple[DroppedLine, ...]
    masked: tuple[str, ...]
    overrides: dict[str, Number]
    findings: tuple[Finding, ...]
    checked: tuple[str, ...]
    skipped: dict[str, str]
    panels: tuple[Panel, ...] = ()


class Report(msgspec.Struct, frozen=True):
    """Everything that one command judged."""

    schema_version: int
    trainproof: str
    command: str
    verdict: Verdict
    runs: tuple[RunReport, ...]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The primary findings of all runs, in order."""
        return tuple(finding for run in self.runs for finding in run.findings)


def fold_severities(severities: Iterable[Severity]) -> Verdict:
    """FAIL if any FAIL, WARN if any WARN, else PASS."""
    worst = max(severities, key=SEVERITY_RANK.__getitem__, default=Severity.INFO)
    return Verdict.PASS if worst is Severity.INFO else Verdict(worst.value)


def fold_verdicts(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict over several runs: the worst that was judged; SKIP only when nothing was."""
    found = set(verdicts)
    for verdict in (Verdict.FAIL, Verdict.WARN, Verdict.PASS):
        if verdict in found:
            return verdict
    return Verdict.SKIP
