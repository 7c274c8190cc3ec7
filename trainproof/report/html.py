"""The report as one self-contained page: no script, no outside address, light and dark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from trainproof.report.details import MOST_NAME, Details, details, tiles
from trainproof.report.escape import clipped, exact, printable, shown
from trainproof.report.svg import Mark, Picture, draw
from trainproof.report.wording import (
    before_training,
    counts,
    headline,
    place,
    plural,
    shared_folder,
    title,
    told,
    when,
    where,
)
from trainproof.verdict import Finding, Panel, Report, RunReport, Severity, Verdict

if TYPE_CHECKING:
    import jinja2

TEMPLATES = Path(__file__).parent / "templates"
#: in a report on several runs: runs whose curves are drawn, worst first; of a run that passes only the first panel is drawn
MOST_DRAWN = 20
#: findings that are told in full at first sight; of the others the page shows a line that opens
MOST_OPEN = 3
#: what stands inside an icon of 16 x 16 units: a shape of its own for each kind
ICONS = {
    "PASS": '<circle cx="8" cy="8" r="8"/><path d="M4.5 8.3l2.5 2.4 4.6-5"/>',
    "WARN": '<path class="solid" d="M8 .8l7.6 13.6H.4z"/><path d="M8 5.6v4M8 12.1h0"/>',
    "FAIL": '<rect width="16" height="16" rx="3"/><path d="M5 5l6 6M11 5l-6 6"/>',
    "SKIP": '<circle cx="8" cy="8" r="8"/><path d="M4.5 8h7"/>',
    "INFO": '<circle cx="8" cy="8" r="8"/><path d="M8 7.6v4M8 4.6h0"/>',
}
_WORST_FIRST = (Verdict.FAIL, Verdict.WARN, Verdict.SKIP, Verdict.PASS)


class Section(NamedTuple):
    """One run on the page. `findings` are numbered as on the pictures; `notes` are those that never move the verdict."""

    key: str
    run: RunReport
    tiles: list[tuple[str, str]]
    findings: list[Mark]
    notes: list[Finding]
    pictures: list[Picture]
    details: list[Details]


def render_html(report: Report) -> str:
    """The report as an HTML page; every value from outside is escaped."""
    ranked = sorted(enumerate(report.runs, 1), key=lambda item: _WORST_FIRST.index(item[1].verdict))
    alone = len(ranked) == 1
    sections = [_section(run, f"run-{i}", alone, rank < MOST_DRAWN) for rank, (i, run) in enumerate(ranked)]
    folder = shared_folder(report)
    return _template().render(report=report, sections=sections, alone=alone, folder=folder) + "\n"


def _section(run: RunReport, key: str, alone: bool, drawn: bool) -> Section:
    marks = [Mark(number, finding) for number, finding in enumerate(told(run), 1)]
    notes = [finding for finding in run.findings if finding.severity is Severity.INFO]
    panels = run.panels if alone or marks else run.panels[:1]
    pictures = _pictures(run, panels, marks, key) if drawn else []
    return Section(key, run, tiles(run), marks, notes, pictures, list(details(run)))


def _pictures(run: RunReport, panels: Sequence[Panel], marks: list[Mark], key: str) -> list[Picture]:
    """The panels over the same steps, each with the findings that concern it; the first also has those that concern none.

    After the first come the panels with findings, and those that compare with a level.
    """
    steps = (run.first_step or 0, run.last_step or 0)
    metrics = [{name for name, _, _ in panel.series} for panel in panels]
    drawn: set[str] = set().union(*metrics)
    drawings: list[tuple[Panel, list[Mark]]] = []
    for i, (panel, mine) in enumerate(zip(panels, metrics, strict=True)):
        drawings.append((panel, [seen for mark in marks for seen in _concern(mark, mine, None if i else drawn)]))
    drawings[1:] = sorted(drawings[1:], key=lambda drawing: drawing[0].level is None and not drawing[1])
    return [draw(panel, concern, steps, f"{key}-{i}") for i, (panel, concern) in enumerate(drawings, 1)]


def _concern(mark: Mark, metrics: set[str], drawn: set[str] | None) -> Iterator[Mark]:
    """The finding, and those related to it, that cite one of the metrics; with `drawn`, also the finding that cites none of those."""
    cited = _metrics(mark.finding)
    if cited & metrics or (drawn is not None and not cited & drawn):
        yield mark
    else:
        yield from (Mark(mark.number, other) for other in mark.finding.related if _metrics(other) & metrics)


def _metrics(finding: Finding) -> set[str]:
    return {point.metric for point in finding.evidence}


@cache
def _template() -> jinja2.Template:
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters.update(printable=_printable, name=_name, shown=shown, exact=exact, markup=Markup)
    environment.globals.update(
        style=Markup((TEMPLATES / "report.css").read_text(encoding="utf-8")),  # noqa: S704  our own style sheet
        icons={kind: Markup(_icon(kind)) for kind in ICONS},  # noqa: S704  our own drawings
        title=title, headline=headline, plural=plural, when=when, place=place, before_training=before_training, counts=counts, where=where, most_open=MOST_OPEN,
    )  # fmt: skip
    return environment.from_string((TEMPLATES / "report.html").read_text(encoding="utf-8"))


def _icon(kind: str) -> str:
    return f'<svg class="icon {kind}" viewBox="0 0 16 16" aria-hidden="true">{ICONS[kind]}</svg>'


def _printable(value: object) -> str:
    return printable(str(value))


def _name(value: object) -> str:
    return clipped(str(value), MOST_NAME)
