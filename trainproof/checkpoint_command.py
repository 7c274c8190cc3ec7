"""What `trainproof checkpoint` does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainproof.checkpoint.inspecting import inspect_checkpoint
from trainproof.command import Options, check_outputs, exit_code, give_report, rules_of, write_html
from trainproof.judge import Settings, check_selectors, report_of
from trainproof.output import report_stem
from trainproof.verdict import Verdict


def run_checkpoint(
    path: str, older: str | None, frozen: tuple[str, ...], verify: bool, shared: Mapping[str, Any]
) -> int:
    """Open, scan, compare, print and write the reports; the exit code. Raises TrainproofError."""
    options = Options(paths=(path,) if older is None else (path, older), **shared)
    check_outputs(options)
    settings = Settings(rules_of(options.select) or ("ALL",), rules_of(options.ignore))
    check_selectors(settings)
    report = report_of(inspect_checkpoint(path, older, settings, frozen=frozen, verify=verify), "checkpoint")
    give_report(report, options)
    if not options.no_html:
        write_html(report, options, f"checkpoint-{report_stem((path,))}")
    return exit_code(report, report.verdict is Verdict.SKIP, options)
