"""The report as one self-contained page: no script, no outside address, light and dark."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from trainproof.report.escape import printable, shown
from trainproof.report.svg import render_panel
from trainproof.verdict import Finding, Report, RunReport, Severity

if TYPE_CHECKING:
    import jinja2

ICONS = {"PASS": "✓", "WARN": "▲", "FAIL": "✕", "SKIP": "–", "INFO": "i"}
#: panels are drawn for this many runs, worst first; a page for a thousand runs stays readable and small
MOST_DRAWN = 30


def render_html(report: Report) -> str:
    """The report as an HTML page; every value from outside is escaped."""
    order = {"FAIL": 0, "WARN": 1, "SKIP": 3, "PASS": 2}
    drawn = sorted(range(len(report.runs)), key=lambda i: (order[report.runs[i].verdict.value], i))[:MOST_DRAWN]
    return _template().render(report=report, runs=list(enumerate(report.runs, 1)), drawn={i + 1 for i in drawn}) + "\n"


@cache
def _template() -> jinja2.Template:
    import jinja2

    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined)
    environment.filters.update(safe_text=_safe_text, shown=shown, exact=_exact)
    environment.globals.update(icons=ICONS, panels=_panels, numbered=_numbered, by_reason=_by_reason)
    source = (Path(__file__).parent / "templates" / "report.html").read_text(encoding="utf-8")
    return environment.from_string(source)


def _safe_text(value: object) -> str:
    return printable(str(value))


def _exact(value: float | str) -> str:
    return value if isinstance(value, str) else repr(value)


def _numbered(run: RunReport) -> list[tuple[int, Finding]]:
    return list(enumerate(run.findings, 1))


def _panels(run: RunReport) -> list[object]:
    from markupsafe import Markup

    # Built from numbers and from text that render_panel has escaped.
    return [Markup(render_panel(panel, _told(run))) for panel in run.panels]  # noqa: S704


def _told(run: RunReport) -> tuple[Finding, ...]:
    return tuple(f for f in run.findings if f.severity is not Severity.INFO)


def _by_reason(skipped: dict[str, str]) -> list[tuple[str, list[str]]]:
    reasons: dict[str, list[str]] = {}
    for code, reason in skipped.items():
        reasons.setdefault(reason, []).append(code)
    return list(reasons.items())
