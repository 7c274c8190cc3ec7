"""The report as text for a terminal or a file: verdict first, one block a finding, then what ran and what did not."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Iterator

from trainproof.report.escape import printable, shown
from trainproof.verdict import Finding, Report, RunReport, Severity, Verdict

_COLORS = {"PASS": "32", "WARN": "33", "FAIL": "31", "SKIP": "36", "INFO": "34"}
_BLOCKS = "▁▂▃▄▅▆▇█"
#: evidence rows shown for one finding
MOST_EVIDENCE = 8
SPARK_WIDTH = 60


class _Pen:
    """Colour and width of the output."""

    def __init__(self, color: bool, width: int) -> None:
        self.color = color
        self.width = max(60, min(width, 120))

    def paint(self, text: str, kind: str, *, bold: bool = False) -> str:
        if not self.color:
            return text
        code = _COLORS.get(kind, "2")
        return f"\x1b[{'1;' if bold else ''}{code}m{text}\x1b[0m"

    def wrap(self, text: str, indent: str, first: str | None = None) -> list[str]:
        start = indent if first is None else first
        return textwrap.wrap(
            text, self.width, initial_indent=start, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        )


def render_text(report: Report, *, color: bool = False, width: int = 100, quiet: bool = False) -> str:
    """The report as text. color: with ANSI colours; width: of the lines, in columns; quiet: one line a run."""
    pen = _Pen(color, width)
    lines: list[str] = []
    brief = quiet or len(report.runs) > 1
    for run in report.runs:
        if quiet or (brief and run.verdict is Verdict.PASS):
            lines.append(_one_line(run, pen))
        else:
            lines += [*_run(run, pen), ""]
    if len(report.runs) > 1:
        lines.append(_summary(report, pen))
    return "\n".join(lines).rstrip("\n") + "\n"


def _title(run: RunReport) -> str:
    return printable(run.source) + (f" [{printable(run.name)}]" if run.name else "")


def _one_line(run: RunReport, pen: _Pen) -> str:
    found = ", ".join(f"{f.rule} {f.name}" for f in run.findings if f.severity is not Severity.INFO)
    what = found or run.reason or f"{run.records} records"
    return f"{pen.paint(run.verdict.value, run.verdict.value, bold=True)} {_title(run)}: {printable(what)}"


def _summary(report: Report, pen: _Pen) -> str:
    counts = [(v.value, sum(run.verdict is v for run in report.runs)) for v in Verdict]
    told = ", ".join(pen.paint(f"{count} {name}", name) for name, count in counts if count)
    return f"{pen.paint(report.verdict.value, report.verdict.value, bold=True)} {len(report.runs)} runs: {told}"


def _run(run: RunReport, pen: _Pen) -> Iterator[str]:
    counted = [f for f in run.findings if f.severity is not Severity.INFO]
    findings = f"{len(counted)} finding{'' if len(counted) == 1 else 's'}"
    yield f"{pen.paint(run.verdict.value, run.verdict.value, bold=True)}  {_title(run)}"
    yield pen.paint(f"      {_described(run, findings)}", "dim")
    if run.reason:
        yield from pen.wrap(printable(run.reason), "      ")
    yield from _sparkline(run)
    for finding in run.findings:
        yield ""
        yield from _finding(finding, pen)
    yield ""
    yield from _what_ran(run, pen)


def _described(run: RunReport, findings: str) -> str:
    steps = "no steps" if run.first_step is None else f"steps {run.first_step} to {run.last_step}"
    pieces = [f"{run.format}, {run.objective} objective", f"{run.records} records", steps, findings]
    if len(run.segments) > 1:
        pieces.append(f"{len(run.segments)} segments")
    return "; ".join(pieces)


def _finding(finding: Finding, pen: _Pen) -> Iterator[str]:
    severity = finding.severity.value
    yield f"{pen.paint(severity, severity, bold=True)}  {finding.rule} {finding.name}"
    yield from pen.wrap(printable(finding.message), "      ")
    yield from _evidence(finding)
    limits = ", ".join(f"{name} {shown(value)}" for name, value in finding.threshold.items())
    if limits:
        yield from pen.wrap(f"threshold: {limits}; first detectable at step {finding.flagged_step}", "        ", "      ")
    yield from pen.wrap(f"try: {printable(finding.fix)}", "        ", "      ")
    for other in finding.related:
        told = f"with it: {other.severity.value} {other.rule} {other.name}, from step {other.first_step}: {printable(other.message)}"
        yield from pen.wrap(told, "        ", "      ")
    yield f"      page: {finding.page} (trainproof rule {finding.rule})"


def _evidence(finding: Finding) -> Iterator[str]:
    rows = [(printable(e.metric), str(e.step), _exact(e.value), str(e.line)) for e in finding.evidence[:MOST_EVIDENCE]]
    if not rows:
        return
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    for metric, step, value, line in rows:
        yield f"        {metric:<{widths[0]}}  step {step:>{widths[1]}}  {value:<{widths[2]}}  line {line:>{widths[3]}}"
    if len(finding.evidence) > MOST_EVIDENCE:
        yield f"        ... and {len(finding.evidence) - MOST_EVIDENCE} more points"


def _exact(value: float | str) -> str:
    return value if isinstance(value, str) else repr(value)


def _what_ran(run: RunReport, pen: _Pen) -> Iterator[str]:
    told = f"checked {len(run.checked)} rules"
    if run.skipped:
        told += f", skipped {len(run.skipped)}: " + "; ".join(_by_reason(run.skipped))
    yield from pen.wrap(told, "  ")
    if run.dropped:
        first = ", ".join(f"line {d.line} ({printable(d.why)})" for d in run.dropped_lines[:3])
        yield from pen.wrap(f"dropped {run.dropped} lines or cells: {first}{' ...' if run.dropped > 3 else ''}", "  ")
    if run.masked:
        yield from pen.wrap(f"the logger may hide non-finite values of: {', '.join(map(printable, run.masked))}", "  ")
    if run.overrides:
        changed = ", ".join(f"{name} = {shown(value)}" for name, value in run.overrides.items())
        yield from pen.wrap(f"thresholds changed: {changed}", "  ")


def _by_reason(skipped: dict[str, str]) -> Iterable[str]:
    reasons: dict[str, list[str]] = {}
    for code, reason in skipped.items():
        reasons.setdefault(reason, []).append(code)
    return (f"{printable(reason)} ({', '.join(codes)})" for reason, codes in reasons.items())


def _sparkline(run: RunReport) -> Iterator[str]:
    """The first curve of the run in one line, and under it the findings at their steps."""
    panel = next((p for p in run.panels if p.series), None)
    if panel is None:
        return
    name, steps, values = panel.series[0]
    if len(steps) < 2 or steps[0] == steps[-1]:
        return
    yield f"      {sparkline(steps, values, panel.log_scale)}  {printable(name)}"
    marks = [" "] * SPARK_WIDTH
    for finding in reversed([f for f in run.findings if f.severity is not Severity.INFO]):
        marks[_column(finding.first_step, steps)] = "^"
    if "^" in marks:
        yield f"      {''.join(marks).rstrip()} {', '.join(f.rule for f in run.findings if f.severity is not Severity.INFO)}"


def _column(step: int, steps: tuple[int, ...]) -> int:
    share = (step - steps[0]) / (steps[-1] - steps[0])
    return min(SPARK_WIDTH - 1, max(0, int(share * SPARK_WIDTH)))


def sparkline(steps: tuple[int, ...], values: tuple[float, ...], log_scale: bool) -> str:
    """The curve in SPARK_WIDTH blocks: the largest value of each stretch of steps; x where a value is not finite."""
    cells: list[list[float]] = [[] for _ in range(SPARK_WIDTH)]
    for step, value in zip(steps, values, strict=True):
        cells[_column(step, steps)].append(value)
    finite = [math.log(v) if log_scale else v for v in values if math.isfinite(v)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    drawn, last = [], " "
    for cell in cells:
        last = _block(cell, low, high, log_scale) if cell else last
        drawn.append(last)
    return "".join(drawn)


def _block(cell: list[float], low: float, high: float, log_scale: bool) -> str:
    if any(not math.isfinite(v) for v in cell):
        return "x"
    top = max(math.log(v) if log_scale else v for v in cell)
    span = high / 2 - low / 2
    share = 0.0 if span <= 0 else (top / 2 - low / 2) / span
    return _BLOCKS[min(len(_BLOCKS) - 1, int(share * len(_BLOCKS)))]
