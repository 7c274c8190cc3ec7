"""Frames with evaluations, for the tests of family TP5."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.rules.helpers import make_frame, run_rule
from trainproof.frame import Frame
from trainproof.rules.registry import CannotTell, Sighting


def frame_of(series: Mapping[str, Any], **more: Any) -> Frame:
    """`make_frame` for names that are no identifiers: `frame_of({"eval/loss": ([10, 20], [1.9, 1.8])}, loss=[2.0, 1.9])`."""
    return make_frame(**more, **dict(series))


def evals_frame(**metrics: Any) -> Frame:
    """Evaluations at steps 100, 200, ... of `eval/<name>` for each keyword."""
    return frame_of({f"eval/{name}": ([100 * (k + 1) for k in range(len(v))], v) for name, v in metrics.items()})


def said(code: str, frame: Frame) -> list[Sighting]:
    """What the rule says, nothing when it is skipped."""
    try:
        return run_rule(code, frame)
    except CannotTell:
        return []
