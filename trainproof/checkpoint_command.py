"""What `trainproof checkpoint` does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainproof.checkpoint.inspecting import inspect_checkpoint
from trainproof.command import Options, check_outputs, finish, settings_of
from trainproof.judge import check_selectors, report_of


def run_checkpoint(
    path: str, older: str | None, frozen: tuple[str, ...], verify: bool, shared: Mapping[str, Any]
) -> int:
    """Open, scan, compare, print and write the reports; the exit code. Raises TrainproofError."""
    options = Options(paths=(path,) if older is None else (path, older), **shared)
    check_outputs(options)
    settings = settings_of(options)
    check_selectors(settings)
    report = report_of(inspect_checkpoint(path, older, settings, frozen=frozen, verify=verify), "checkpoint")
    return finish(report, options, (path,))
