"""What differs between a run and its baselines besides the curves: declared facts and the settings that lie beside the logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trainproof.facts import FactValue
from trainproof.verdict import Change

#: differing settings told; baselines' values told for one setting
MOST_CHANGES, MOST_VALUES = 60, 4

Settings = Mapping[str, FactValue]


def changes(run: Settings, baselines: Sequence[Settings]) -> tuple[Change, ...]:
    """The settings that differ from at least one baseline, in the order of the run's own; those only baselines have come last."""
    names = dict.fromkeys([*run, *(name for one in baselines for name in one)])
    found = []
    for name in names:
        theirs = [one.get(name) for one in baselines]
        if any(value != run.get(name) for value in theirs):
            found.append(Change(name, _shown(run.get(name)), _listed(theirs)))
    return tuple(found[:MOST_CHANGES])


def _shown(value: FactValue | None) -> str | None:
    return None if value is None else str(value)


def _listed(values: Sequence[FactValue | None]) -> str | None:
    declared = list(dict.fromkeys(str(value) for value in values if value is not None))
    more = ", ..." if len(declared) > MOST_VALUES else ""
    return ", ".join(declared[:MOST_VALUES]) + more if declared else None
