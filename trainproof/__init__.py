"""trainproof proves training runs: `read` a log into a Frame, `judge` it into a Report, `compare` it with others.

Nothing heavy loads until it is used.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainproof.api import compare, judge, read, read_all
    from trainproof.errors import TrainproofError
    from trainproof.frame import Frame
    from trainproof.guardian import Guardian, guard
    from trainproof.record.recorder import Recorder
    from trainproof.replay.skipping import SkippingDataLoader
    from trainproof.resume_command import assert_resumes_exactly
    from trainproof.verdict import Finding, Report, Verdict

__version__ = "0.1.0"

__all__ = [
    "Finding",
    "Frame",
    "Guardian",
    "Recorder",
    "Report",
    "SkippingDataLoader",
    "TrainproofError",
    "Verdict",
    "assert_resumes_exactly",
    "compare",
    "guard",
    "judge",
    "read",
    "read_all",
]

_HOME = {
    "Finding": "trainproof.verdict",
    "Frame": "trainproof.frame",
    "Guardian": "trainproof.guardian",
    "Recorder": "trainproof.record.recorder",
    "Report": "trainproof.verdict",
    "SkippingDataLoader": "trainproof.replay.skipping",
    "TrainproofError": "trainproof.errors",
    "Verdict": "trainproof.verdict",
    "assert_resumes_exactly": "trainproof.resume_command",
    "compare": "trainproof.api",
    "guard": "trainproof.guardian",
    "judge": "trainproof.api",
    "read": "trainproof.api",
    "read_all": "trainproof.api",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'trainproof' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


class _Package(ModuleType):
    """Keeps `trainproof.judge` the function: importing the module of that name would bind the name to the module."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _HOME and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
