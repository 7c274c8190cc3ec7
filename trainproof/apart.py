"""Judging what is no log: the rules of one family, asked about one subject, and the report of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from trainproof.frame import Frame, Source
from trainproof.judge import Settings, finding_of, matching
from trainproof.rules import rules_of
from trainproof.rules.registry import CannotTell
from trainproof.verdict import SEVERITY_RANK, Finding, Number, RunReport, Verdict, fold_severities


class Subject(NamedTuple):
    """What was judged, for the report: where it came from, its kind and format, how much of it there is, and over which steps."""

    path: str
    kind: str
    format: str
    records: int
    first_step: int | None = None
    last_step: int | None = None
    facts: dict[str, str | int | float | bool] = {}  # noqa: RUF012  a NamedTuple's default, never written to
    repeat: tuple[str, ...] = ()


def judge_apart(
    family: str, seen: Any, subject: Subject, settings: Settings, meant: Callable[[str], bool] = lambda _: True
) -> RunReport:
    """The report on `seen` by the selected rules of a family. Where none of them could run the verdict is SKIP.

    meant: whether the rule of a code is meant for such a subject at all.
    """
    findings: list[Finding] = []
    checked: list[str] = []
    skipped: dict[str, str] = {}
    nothing = Frame({}, Source(subject.path, subject.format))
    for rule in matching({code: rule for code, rule in rules_of(family).items() if meant(code)}, settings):
        try:
            said = list(rule.check(seen, getattr(settings.thresholds, family)))
        except CannotTell as reason:
            skipped[rule.code] = str(reason)
        else:
            checked.append(rule.code)
            findings += [finding_of(rule, one, nothing) for one in said]
    findings.sort(key=lambda finding: -SEVERITY_RANK[finding.severity])
    verdict = fold_severities(finding.severity for finding in findings)
    why = None if checked else next(iter(skipped.values()), "no rule was selected")
    overrides: dict[str, Number] = dict(settings.thresholds.overrides())
    return RunReport(
        source=subject.path,
        format=subject.format,
        name=None,
        verdict=verdict if checked else Verdict.SKIP,
        reason=why,
        objective="unknown",
        records=subject.records,
        first_step=subject.first_step,
        last_step=subject.last_step,
        segments=(),
        facts=subject.facts,
        dropped=0,
        dropped_lines=(),
        masked=(),
        overrides=overrides,
        findings=tuple(findings),
        checked=tuple(checked),
        skipped=skipped,
        kind=subject.kind,
        repeat=subject.repeat,
    )
