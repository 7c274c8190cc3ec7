"""What the page says of a run besides its findings and curves, as tables: what ran, facts, segments, dropped lines and the like."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from trainproof.report.compared import FIGURE_HEADER, baseline_row, change_rows, figure_row, sentence
from trainproof.report.escape import clipped, printable, shown
from trainproof.report.wording import UNITS, by_reason, plural, where
from trainproof.verdict import Compared, RunReport

MOST_NAME = 80


class Details(NamedTuple):
    """A table under a summary and a sentence; the first `numbers` columns hold numbers. Cells are printable."""

    summary: str
    note: str
    header: tuple[str, ...] = ()
    rows: Sequence[tuple[str, ...]] = ()
    numbers: int = 0


def tiles(run: RunReport) -> list[tuple[str, str]]:
    """The run in a few words: label and value."""
    told = [(run.kind.capitalize(), clipped(run.format, MOST_NAME))]
    if run.kind == "log":
        told.append(("Objective", clipped(run.objective, MOST_NAME)))
    told.append((f"{UNITS.get(run.kind, 'record').capitalize()}s", f"{run.records:,}"))
    if run.first_step is not None and run.last_step is not None:
        told.append(("Steps", f"{run.first_step:,} to {run.last_step:,}"))
    if len(run.segments) > 1:
        told.append(("Segments", str(len(run.segments))))
    return [*told, ("Rules", f"{len(run.checked)} ran, {len(run.skipped)} skipped")]


def details(run: RunReport) -> Iterator[Details]:
    """What it was compared with; what was checked and skipped; then whatever else there is to tell."""
    if run.compared is not None:
        yield from _compared(run.compared)
    rules = f"{plural(len(run.checked), 'rule')} ran, {len(run.skipped)} skipped"
    skipped = [(reason, ", ".join(codes)) for reason, codes in by_reason(run.skipped)]
    yield Details(rules, f"Ran: {', '.join(run.checked) or 'none'}", ("skipped because", "rules"), skipped)
    if run.repeat:
        yield Details("Do it again", "", ("command",), [(printable(command),) for command in run.repeat])
    if run.facts:
        facts = [(clipped(name, MOST_NAME), printable(str(value))) for name, value in run.facts.items()]
        yield Details(plural(len(facts), "declared fact"), "", ("fact", "value"), facts)
    if len(run.segments) > 1:
        segments = [(str(s.start), str(s.end), printable(s.why)) for s in run.segments]
        yield Details(f"{len(segments)} segments", "", ("from step", "to step", "began by"), segments, 2)
    if run.dropped:
        yield _dropped(run)
    if run.masked:
        names = ", ".join(clipped(name, MOST_NAME) for name in run.masked)
        note = f"This logger may hide non-finite values of {names}; that the log has none proves nothing."
        yield Details(plural(len(run.masked), "masked metric"), note)
    if run.overrides:
        changed = [(clipped(name, MOST_NAME), shown(value)) for name, value in run.overrides.items()]
        yield Details(plural(len(changed), "changed threshold"), "", ("threshold", "value"), changed)


def _compared(compared: Compared) -> Iterator[Details]:
    baselines = [baseline_row(one) for one in compared.baselines]
    yield Details(
        "Compared with", f"{sentence(compared)}.", ("baseline", "verdict", "records matched", "to say of it"), baselines
    )
    if compared.figures:
        note = "Change against the centre of the baselines, worse counted as +; would have told: the smallest change that noise does not hide."
        yield Details(
            plural(len(compared.figures), "figure"), note, FIGURE_HEADER, list(map(figure_row, compared.figures))
        )
    if compared.changes:
        note = "Declared facts, and the settings in the files beside the logs."
        rows = change_rows(compared)
        yield Details(plural(len(rows), "changed setting"), note, ("setting", "baseline", "run"), rows)


def _dropped(run: RunReport) -> Details:
    told = "1 line or cell was" if run.dropped == 1 else f"{run.dropped:,} lines or cells were"
    rows = [(str(dropped.line), printable(dropped.why)) for dropped in run.dropped_lines]
    note = f"The first {len(rows)}:" if run.dropped > len(rows) else ""
    return Details(f"{told} not understood", note, (where(run), "why"), rows, 1)
