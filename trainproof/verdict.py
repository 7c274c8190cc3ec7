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


class Evidence(msgspec.Struct, frozen=True, omit_defaults=True):
    """One logged point: metric, step, value and source line (from 1; the record's number where a log has no lines).

    Of data before training: what was measured, the row (twice), the value, the file and an excerpt of what is there.
    """

    metric: str
    step: int
    value: Number
    line: int
    file: str = ""
    excerpt: str = ""


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
    `band` is (name, steps, lows, highs), drawn under the curves; `level` is a value to mark across the picture, and `marks` are
    (step, text) to mark from top to bottom.
    """

    title: str
    unit: str
    series: tuple[tuple[str, tuple[int, ...], tuple[float, ...]], ...]
    nonfinite: tuple[int, ...] = ()
    log_scale: bool = False
    band: tuple[str, tuple[int, ...], tuple[float, ...], tuple[float, ...]] | None = None
    level: float | None = None
    marks: tuple[tuple[int, str], ...] = ()


class SegmentReport(msgspec.Struct, frozen=True):
    start: int
    end: int
    why: str


class DroppedLine(msgspec.Struct, frozen=True):
    line: int
    why: str


class Figure(msgspec.Struct, frozen=True):
    """One figure of a comparison: the run's value beside the lowest and highest of the baselines.

    `change` is the run against the centre of the baselines, as a share, worse counted as positive where a direction is known;
    `resolves` is the smallest change that would have been told, None where noise plays no part.
    """

    rule: str
    name: str
    run: Number
    low: Number
    high: Number
    change: Number
    resolves: Number | None
    matched: int


class Change(msgspec.Struct, frozen=True):
    """A declared fact or a setting that differs: its value in the run and in the baselines, None where it was not declared."""

    name: str
    run: str | None
    baselines: str | None


class BaselineReport(msgspec.Struct, frozen=True):
    """A baseline: where it came from, its own verdict, the records matched with the run, and why it was refused, if it was."""

    label: str
    source: str
    format: str
    name: str | None
    verdict: Verdict
    records: int
    matched: int
    refused: str | None = None
    notes: tuple[str, ...] = ()


class Compared(msgspec.Struct, frozen=True):
    """What a run was compared with, along what, over which of its steps, and what came of it beside the findings."""

    axis: str
    why: str
    first_step: int | None
    last_step: int | None
    matched: int
    how: str
    seeds: str
    first_divergence: int | None
    baselines: tuple[BaselineReport, ...]
    figures: tuple[Figure, ...]
    changes: tuple[Change, ...]


class RunReport(msgspec.Struct, frozen=True):
    """One judged run, or what else was judged. `panels` feeds the HTML report and is left out of the JSON; `compared` is there in
    comparisons only. `kind` is what was judged where it is no log, and `repeat` are the commands that do an experiment again.
    """

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
    compared: Compared | None = None
    kind: str = "log"
    repeat: tuple[str, ...] = ()


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
