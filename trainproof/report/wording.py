"""Phrases that the text and the HTML report share."""

from __future__ import annotations

import posixpath

from trainproof.report.escape import clipped, printable
from trainproof.verdict import Evidence, Finding, Report, RunReport, Severity, Verdict

#: characters of a path or a run's name that are shown
MOST_TITLE = 300
#: formats without lines: there `line` is the number of the record
RECORD_FORMATS = frozenset({"tensorboard", "table", "dict"})


def title(run: RunReport, below: str = "") -> str:
    """The run as the user named it, and its own name where one file holds several. below: the folder to leave out."""
    return clipped(run.source.removeprefix(below), MOST_TITLE) + (
        f" [{clipped(run.name, MOST_TITLE)}]" if run.name else ""
    )


def shared_folder(report: Report) -> str:
    """The folder, with a slash at its end, that all runs are below; empty where there is none."""
    folders = [run.source.rpartition("/")[0] for run in report.runs]
    shared = posixpath.commonpath(folders) if all(folders) and len({f[0] == "/" for f in folders}) == 1 else ""
    return f"{shared}/" if shared else ""


def told(run: RunReport) -> tuple[Finding, ...]:
    """The findings that move the verdict."""
    return tuple(finding for finding in run.findings if finding.severity is not Severity.INFO)


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def span(first: int | None, last: int | None) -> str:
    if first is None or last is None:
        return "no steps"
    return f"step {first}" if first == last else f"steps {first} to {last}"


#: what was judged -> what its records are
UNITS = {
    "checkpoint": "tensor",
    "job": "step",
    "recording": "step",
    "data": "record",
    "batch": "row",
    "tokenizer": "text",
    "machine": "module",
}


def described(run: RunReport) -> str:
    """What was judged, in a few words."""
    if run.kind == "log":
        return f"{run.format} log, {run.objective} objective, {plural(run.records, 'record')}"
    return f"{run.format} {run.kind}, {plural(run.records, UNITS[run.kind])}"


def before_training(finding: Finding) -> bool:
    """Whether the finding is of data, a tokenizer, a batch or a machine: these have files and rows, no steps."""
    return finding.rule.startswith(("TPD", "TPT", "TPO", "TPE"))


def when(finding: Finding) -> str:
    """The steps of a finding, with the word for them; the first place where there are no steps."""
    if not before_training(finding):
        return span(finding.first_step, finding.last_step)
    return next((place(point) for point in finding.evidence if point.file), "")


def place(point: Evidence) -> str:
    """File and row."""
    return f"{clipped(point.file, MOST_TITLE)}:{point.line}" if point.line else clipped(point.file, MOST_TITLE)


def headline(run: RunReport) -> str:
    """The verdict's reason in one line."""
    findings = told(run)
    if findings:
        first = findings[0]
        more = f", and {plural(len(findings) - 1, 'more finding')}" if len(findings) > 1 else ""
        at = when(first)
        return f"{first.rule} {first.name}{f' at {at}' if at else ''}{more}"
    if run.reason:
        return printable(run.reason)
    return f"{plural(len(run.checked), 'rule')} ran on {plural(run.records, UNITS.get(run.kind, 'record'))} and found nothing to warn of"


def counts(report: Report) -> list[tuple[Verdict, int]]:
    """How many runs got each verdict, worst first; verdicts that no run got are left out."""
    worst_first = (Verdict.FAIL, Verdict.WARN, Verdict.SKIP, Verdict.PASS)
    found = [(verdict, sum(run.verdict is verdict for run in report.runs)) for verdict in worst_first]
    return [(verdict, count) for verdict, count in found if count]


def by_reason(skipped: dict[str, str]) -> list[tuple[str, list[str]]]:
    """The skipped rules under each reason, the most frequent reason first."""
    reasons: dict[str, list[str]] = {}
    for code, reason in skipped.items():
        reasons.setdefault(printable(reason), []).append(code)
    return sorted(reasons.items(), key=lambda item: -len(item[1]))


def where(run: RunReport) -> str:
    """What the number of an evidence's `line` counts."""
    if run.kind != "log":
        return "tensor" if run.kind == "checkpoint" else "row"
    return "record" if run.format in RECORD_FORMATS else "line"
