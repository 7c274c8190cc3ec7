"""What a report says of a comparison besides its findings: with what, over what, the figures, and what changed."""

from __future__ import annotations

from trainproof.report.escape import clipped, printable, shown
from trainproof.report.wording import plural, span
from trainproof.verdict import BaselineReport, Compared, Figure

#: characters of a label, a setting's name and its value that are shown
MOST_LABEL, MOST_SETTING, MOST_VALUE = 160, 80, 60
FIGURE_HEADER = ("figure", "run", "baseline", "change", "would have told", "matched")


def sentence(compared: Compared) -> str:
    """With what, along what, and over which part of both."""
    used = [one for one in compared.baselines if one.refused is None]
    if not used:
        return "nothing"
    how = {
        "intervals": "over the intervals of the run that logs more rarely",
        "stretches": "over the rows of the summary",
    }
    manner = f" {how[compared.how]}" if compared.how in how else ""
    return (
        f"{plural(len(used), 'baseline')}, matched by {compared.axis}{manner} ({printable(compared.why)}): "
        f"{plural(compared.matched, 'matched record')}, {span(compared.first_step, compared.last_step)}; {compared.seeds}"
    )


def baseline_row(one: BaselineReport) -> tuple[str, str, str, str]:
    """Label, verdict, records matched, and what there is to say of it."""
    said = f"refused: {one.refused}" if one.refused else "; ".join(one.notes)
    return clipped(one.label, MOST_LABEL), one.verdict.value, f"{one.matched:,} of {one.records:,}", printable(said)


def figure_row(figure: Figure) -> tuple[str, str, str, str, str, str]:
    """Name, the run's value, the baselines', the change, what would have been told, and the records behind it."""
    band = shown(figure.low) if figure.low == figure.high else f"{shown(figure.low)} to {shown(figure.high)}"
    told = "" if figure.resolves is None else _percent(figure.resolves)
    return (
        clipped(figure.name, MOST_SETTING),
        shown(figure.run),
        band,
        _percent(figure.change),
        told,
        f"{figure.matched:,}",
    )


def change_rows(compared: Compared) -> list[tuple[str, str, str]]:
    """Setting, the baselines' value and the run's."""
    return [(clipped(one.name, MOST_SETTING), _value(one.baselines), _value(one.run)) for one in compared.changes]


def _value(value: str | None) -> str:
    return "not declared" if value is None else clipped(value, MOST_VALUE)


def _percent(share: float | str) -> str:
    return share if isinstance(share, str) else f"{share:+.1%}"
