"""Which kind of objective this is."""

from __future__ import annotations

from trainproof.frame import Frame


def objective_of(frame: Frame) -> str:
    """One of lm, classification, regression, density, preference, rl, adversarial, unknown."""
    return "unknown"
