"""What the tests of checks before training share."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainproof.judge import Settings
from trainproof.preflight.found import Found, Options
from trainproof.preflight.inputs import plan_of
from trainproof.preflight.judging import judge_found
from trainproof.preflight.running import run_pieces, whole_of
from trainproof.verdict import RunReport

EVERYTHING = Options(keep=1 << 40)


def judged(
    paths: Path | Sequence[Path],
    *held_out: Path,
    kind: str | None = None,
    options: Options = EVERYTHING,
    workers: int = 1,
) -> tuple[RunReport, Found]:
    """The report on data, and what was found in it."""
    named = [paths] if isinstance(paths, Path) else paths
    plan = plan_of([str(p) for p in named], [str(p) for p in held_out], kind, options)
    found = Found(plan.kind, plan.files, whole_of(plan, run_pieces(plan, plan.pieces, workers)), options)
    return judge_found(found, "data", plan.kind, Settings()), found


def rows_told(report: RunReport, found: Found, code: str) -> set[int]:
    """The rows that a finding names."""
    if code not in {finding.rule for finding in report.findings}:
        return set()
    return {found.where(place)[1] for place, _ in found.rejected(code)}


def codes(report: RunReport) -> set[str]:
    return {finding.rule for finding in report.findings}


def jsonl(path: Path, *records: Any) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path
