"""The report as text for a terminal or a file: verdict first, one block a finding, then what ran and what did not."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from trainproof.report.compared import FIGURE_HEADER, baseline_row, change_rows, figure_row, sentence
from trainproof.report.escape import clipped, exact, printable, shown
from trainproof.report.spark import ASCII_BLOCKS, BLOCKS, marks, sparkline
from trainproof.report.wording import (
    before_training,
    by_reason,
    counts,
    described,
    headline,
    place,
    plural,
    span,
    title,
    told,
    when,
    where,
)
from trainproof.verdict import Compared, Finding, Report, RunReport, Severity, Verdict

_COLORS = {"PASS": "32", "WARN": "33", "FAIL": "31", "SKIP": "36", "INFO": "34", "dim": "2"}
INDENT = " " * 6
#: under a label
DEEPER = INDENT + " " * 10
#: width of the words that stand before a finding's limits, its fix and its page
LABEL = 10
#: evidence rows shown for one finding, characters of a metric's name, codes named for one reason, dropped lines shown
MOST_EVIDENCE, MOST_NAME, MOST_CODES, MOST_DROPPED = 8, 40, 3, 3
#: baselines and changed settings shown of a comparison
MOST_BASELINES, MOST_CHANGES = 8, 12
#: commands shown that do an experiment again
MOST_COMMANDS = 3
NARROWEST, WIDEST, WIDEST_CURVE = 40, 110, 64


class _Pen:
    """Colour, width and characters of the output."""

    def __init__(self, color: bool, width: int, encoding: str) -> None:
        self.color = color
        self.width = max(NARROWEST, min(width, WIDEST))
        self.blocks = BLOCKS if _spells(encoding, BLOCKS) else ASCII_BLOCKS

    def paint(self, text: str, kind: str, *, bold: bool = False) -> str:
        return f"\x1b[{'1;' if bold else ''}{_COLORS[kind]}m{text}\x1b[0m" if self.color else text

    def wrap(self, text: str, indent: str = INDENT) -> list[str]:
        return textwrap.wrap(
            text,
            self.width,
            initial_indent=indent,
            subsequent_indent=indent,
            break_long_words=False,  # a path or a name that is cut cannot be copied
            break_on_hyphens=False,
        )

    def labelled(self, label: str, text: str) -> Iterator[str]:
        """`text` in a column of its own, beside a label."""
        first, *rest = self.wrap(text, INDENT + " " * LABEL) or [INDENT]
        yield INDENT + self.paint(f"{label:<{LABEL}}", "dim") + first[len(INDENT) + LABEL :]
        yield from rest


def _spells(encoding: str, text: str) -> bool:
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def render_text(
    report: Report, *, color: bool = False, width: int = 100, quiet: bool = False, encoding: str = "utf-8"
) -> str:
    """The report as text.

    color: with ANSI colours. width: of the lines, in columns. quiet: one line a run. encoding: of the place where the text
    goes; curves are drawn in ASCII where it has no block characters.
    """
    pen = _Pen(color, width, encoding)
    if quiet:
        lines = [_one_line(run, pen) for run in report.runs]
    elif len(report.runs) == 1:
        lines = list(_run(report.runs[0], pen))
    else:
        lines = [*_runs(report, pen), "", _summary(report, pen)]
    return "\n".join(lines) + "\n"


def _runs(report: Report, pen: _Pen) -> Iterator[str]:
    """A block for each run with findings to act on; one line for each of the others."""
    after_block = False
    for i, run in enumerate(report.runs):
        block = bool(told(run))
        if i and (block or after_block):
            yield ""
        if block:
            yield from _run(run, pen)
        else:
            yield _one_line(run, pen)
        after_block = block


def _one_line(run: RunReport, pen: _Pen) -> str:
    return f"{_badge(run.verdict, pen)}  {title(run)}: {headline(run)}"


def _badge(kind: Verdict | Severity, pen: _Pen) -> str:
    return pen.paint(kind.value, kind.value, bold=True)


def _summary(report: Report, pen: _Pen) -> str:
    found = ", ".join(pen.paint(f"{count:,} {verdict.value}", verdict.value) for verdict, count in counts(report))
    return f"{_badge(report.verdict, pen)}  {plural(len(report.runs), 'run')}: {found}"


def _run(run: RunReport, pen: _Pen) -> Iterator[str]:
    yield f"{_badge(run.verdict, pen)}  {title(run)}"
    yield from (pen.paint(line, "dim") for line in pen.wrap(printable(_described(run))))
    if run.reason:
        yield from pen.wrap(printable(run.reason))
    yield from _curve(run, pen)
    for finding in run.findings:
        yield ""
        yield from _finding(finding, where(run), pen)
    yield ""
    if run.compared is not None:
        yield from _compared(run.compared, pen)
    yield from _what_ran(run, pen)
    for command in run.repeat[:MOST_COMMANDS]:
        yield from pen.labelled("again", printable(command))
    if len(run.repeat) > MOST_COMMANDS:
        yield f"{INDENT}{' ' * LABEL}and {plural(len(run.repeat) - MOST_COMMANDS, 'more command')}, in the HTML and the JSON report"


def _described(run: RunReport) -> str:
    pieces = [described(run)]
    if run.first_step is not None:
        pieces.append(span(run.first_step, run.last_step))
    if len(run.segments) > 1:
        pieces.append(f"{len(run.segments)} segments")
    pieces.append(plural(len(told(run)), "finding"))
    return ", ".join(pieces)


def _curve(run: RunReport, pen: _Pen) -> Iterator[str]:
    """The first curve of the run in one line, and under it the findings at their steps."""
    if not run.panels:
        return
    name, steps, _ = run.panels[0].series[0]
    if len(steps) < 2 or steps[0] == steps[-1]:
        return
    label = clipped(name, 20)
    width = min(WIDEST_CURVE, pen.width - len(INDENT) - len(label) - 2)
    yield ""
    yield f"{INDENT}{pen.paint(label, 'dim')}  {sparkline(run.panels[0], width, pen.blocks)}"
    indent = INDENT + " " * (len(label) + 2)
    for finding, mark in marks(told(run), steps, width):
        yield indent + pen.paint(mark, finding.severity.value)


def _finding(finding: Finding, line: str, pen: _Pen) -> Iterator[str]:
    head = pen.paint(f"{finding.rule} {finding.name}", finding.severity.value)
    at = when(finding)
    yield f"{_badge(finding.severity, pen)}  {head}{pen.paint(f', {at}' if at else '', 'dim')}"
    yield from pen.wrap(printable(finding.message))
    yield from _evidence(finding, line)
    if finding.severity is Severity.INFO:
        return
    if limits := _limits(finding):
        yield from pen.labelled("limits", limits)
    yield from pen.labelled("try", printable(finding.fix))
    for other in finding.related:
        seen = f"{other.severity.value} {other.rule} {other.name}, {when(other)}"
        yield from pen.labelled("with it", seen)
    page = f"{finding.page}, or: " if finding.page else ""
    yield from pen.labelled("page", f"{page}trainproof rule {finding.rule}")


def _limits(finding: Finding) -> str:
    limits = [f"{printable(name)} {shown(value)}" for name, value in finding.threshold.items()]
    crossed = [] if before_training(finding) else [f"crossed at step {finding.flagged_step}"]
    return ", ".join([*limits, *crossed])


def _evidence(finding: Finding, line: str) -> Iterator[str]:
    if before_training(finding):
        yield from _places(finding)
        return
    rows = [
        (clipped(e.metric, MOST_NAME), str(e.step), exact(e.value), str(e.line))
        for e in finding.evidence[:MOST_EVIDENCE]
    ]
    widths = [max((len(row[i]) for row in rows), default=0) for i in range(4)]
    for metric, step, value, number in rows:
        cells = (f"{metric:<{widths[0]}}", f"step {step:>{widths[1]}}", f"{value:<{widths[2]}}")
        yield f"{INDENT}  {'  '.join(cells)}  {line} {number:>{widths[3]}}"
    if len(finding.evidence) > MOST_EVIDENCE:
        yield f"{INDENT}  and {plural(len(finding.evidence) - MOST_EVIDENCE, 'more point')}"


def _places(finding: Finding) -> Iterator[str]:
    """Where in the data: place, value, excerpt."""
    for point in finding.evidence[:MOST_EVIDENCE]:
        value = "" if point.value == "NaN" else f"  {clipped(point.metric, MOST_NAME)} {shown(point.value)}"
        excerpt = f"  {printable(point.excerpt)}" if point.excerpt else ""
        yield f"{INDENT}  {place(point)}{value}{excerpt}"
    if len(finding.evidence) > MOST_EVIDENCE:
        yield f"{INDENT}  and {plural(len(finding.evidence) - MOST_EVIDENCE, 'more place')}"


def _compared(compared: Compared, pen: _Pen) -> Iterator[str]:
    yield from pen.labelled("compared", f"with {sentence(compared)}")
    for one in compared.baselines[:MOST_BASELINES]:
        label, verdict, matched, said = baseline_row(one)
        yield from pen.wrap(f"{label} ({verdict}, {matched} records matched{', ' + said if said else ''})", DEEPER)
    if len(compared.baselines) > MOST_BASELINES:
        yield f"{DEEPER}and {plural(len(compared.baselines) - MOST_BASELINES, 'more baseline')}"
    if compared.figures:
        yield ""
        yield from _table([FIGURE_HEADER, *map(figure_row, compared.figures)], pen)
        yield ""
    for number, (name, theirs, mine) in enumerate(change_rows(compared)[:MOST_CHANGES]):
        yield from pen.labelled("" if number else "changed", f"{name}: {theirs} -> {mine}")
    if len(compared.changes) > MOST_CHANGES:
        yield f"{DEEPER}and {plural(len(compared.changes) - MOST_CHANGES, 'more setting')}"


def _table(rows: Sequence[tuple[str, ...]], pen: _Pen) -> Iterator[str]:
    """Columns as wide as they need; the first is text, the others are numbers."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for number, row in enumerate(rows):
        cells = [
            f"{row[0]:<{widths[0]}}",
            *(f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True)),
        ]
        line = "  ".join(cells)
        yield INDENT + (line if number else pen.paint(line, "dim"))


def _what_ran(run: RunReport, pen: _Pen) -> Iterator[str]:
    yield from pen.labelled("checked", plural(len(run.checked), "rule"))
    if run.skipped:
        yield from pen.labelled("skipped", f"{len(run.skipped)}: {'; '.join(_skipped(run))}")
    if run.dropped:
        first = "; ".join(f"line {d.line}: {printable(d.why)}" for d in run.dropped_lines[:MOST_DROPPED])
        more = "; ..." if run.dropped > MOST_DROPPED else ""
        yield from pen.labelled(
            "dropped", f"{'1 line or cell' if run.dropped == 1 else f'{run.dropped:,} lines or cells'}: {first}{more}"
        )
    if run.masked:
        names = ", ".join(clipped(name, MOST_NAME) for name in run.masked)
        yield from pen.labelled("masked", f"this logger may hide non-finite values of {names}")
    if run.overrides:
        changed = ", ".join(f"{printable(name)} = {shown(value)}" for name, value in run.overrides.items())
        yield from pen.labelled("changed", f"thresholds {changed}")


def _skipped(run: RunReport) -> Iterator[str]:
    for reason, codes in by_reason(run.skipped):
        more = " ..." if len(codes) > MOST_CODES else ""
        yield f"{reason} ({', '.join(codes[:MOST_CODES])}{more})"
