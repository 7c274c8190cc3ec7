"""Related findings fold under the primary one of the same window, so that one fault is told once."""

from __future__ import annotations

import numpy as np

from trainproof.frame import Frame
from trainproof.verdict import SEVERITY_RANK, Finding

#: records on either side of a finding within which others are taken for the same event
WINDOW_RECORDS = 50

#: which finding names the event, most telling first: what broke the numbers, then the scaler, then the loss, then its gradients
PRECEDENCE = (
    "TP101",
    "TP103",
    "TP104",
    "TP208",
    "TP110",
    "TP102",
    "TP106",
    "TP105",
    "TP703",
    "TP702",
    "TP701",
    "TP301",
    "TP402",
    "TP205",
    "TP203",
    "TP202",
    "TP201",
    "TP107",
    "TP210",
    "TP401",
    "TP403",
    "TP404",
    "TP406",
)

#: pairs that tell one thing: the first says what it is, the second only that something is there; they fold wherever they overlap
PAIRS = (
    ("TP807", "TP810"),
    ("TP921", "TP002"),
    ("TP924", "TP302"),
    ("TP925", "TP303"),
    ("TP927", "TP201"),
    ("TP927", "TP601"),
)
_CHIEFS = frozenset(chief for chief, _ in PAIRS)


def fold_related(findings: list[Finding], frame: Frame) -> tuple[Finding, ...]:
    """Primary findings, worst first, each with its related ones; a finding never hides a worse one."""
    primaries: list[Finding] = []
    for finding in sorted(findings, key=_order):
        at = next((i for i, other in enumerate(primaries) if _same_event(finding, other, frame)), None)
        if at is None:
            primaries.append(finding)
        else:
            chief = primaries[at]
            primaries[at] = _with_related(chief, finding)
    return tuple(primaries)


def _order(finding: Finding) -> tuple[int, int, int, str]:
    rank = PRECEDENCE.index(finding.rule) if finding.rule in PRECEDENCE else len(PRECEDENCE)
    rank = -1 if finding.rule in _CHIEFS else rank
    return -SEVERITY_RANK[finding.severity], rank, finding.flagged_step, finding.rule


def _same_event(finding: Finding, chief: Finding, frame: Frame) -> bool:
    if (chief.rule, finding.rule) in PAIRS:
        return finding.first_step <= chief.last_step and finding.last_step >= chief.first_step
    if finding.rule not in PRECEDENCE or chief.rule not in PRECEDENCE or finding.rule == chief.rule:
        return False
    begin, end = _records(frame, chief.first_step, chief.last_step)
    first, flagged = _records(frame, finding.first_step, finding.flagged_step)
    return first <= end + WINDOW_RECORDS and flagged >= begin - WINDOW_RECORDS


def _records(frame: Frame, first_step: int, last_step: int) -> tuple[int, int]:
    """The record numbers of two steps on the run's main series."""
    if frame.main is None:
        return first_step, last_step
    first, last = np.searchsorted(frame.main.step, [first_step, last_step])
    return int(first), int(last)


def _with_related(chief: Finding, finding: Finding) -> Finding:
    from msgspec.structs import replace

    return replace(chief, related=(*chief.related, finding))
