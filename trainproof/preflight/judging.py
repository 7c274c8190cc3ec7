"""From what was found to a report: every check that is for this kind of data, or the reason why it could not run."""

from __future__ import annotations

from trainproof.apart import Subject, judge_apart
from trainproof.judge import Settings, check_selectors
from trainproof.preflight.checks.registry import KINDS
from trainproof.preflight.found import Found
from trainproof.verdict import RunReport, Verdict


def judge_found(found: Found, source: str, what: str, settings: Settings) -> RunReport:
    """Judge data by the selected checks. what: its kind and format in a few words. Data without a record is SKIP."""
    from msgspec.structs import replace

    check_selectors(settings)
    subject = Subject(source, "data", what, found.rows)
    report = judge_apart("data", found, subject, settings, lambda code: found.kind in KINDS[code])
    if report.verdict is Verdict.PASS and not found.rows:
        return replace(report, verdict=Verdict.SKIP, reason="no records")
    return report
