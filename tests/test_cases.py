"""Public cases, where their numbers lie beside the checkout: the verdict that a careful reader expects comes out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cases import DIFFERENT, RECIPES, UNTOLD
from trainproof.judge import judge_run

CASES = Path(__file__).resolve().parents[2] / "shared" / "cases" / "cases.jsonl"
SHARE = 0.9
#: events that stand for a value: their case has no values to build a log from
EVENTS_ONLY = {"staircase-epoch": "drop", "eval-rise-overfit": "eval_loss"}

pytestmark = pytest.mark.skipif(not CASES.is_file(), reason="no folder of public cases beside the checkout")


def cases() -> list[dict[str, Any]]:
    return [json.loads(line) for line in CASES.read_text(encoding="utf-8").splitlines()]


def reason_untold(case: dict[str, Any]) -> str | None:
    """Why no log can be built from the case, or None."""
    needed = EVENTS_ONLY.get(case["kind"])
    if needed and needed not in case["records"][0]:
        return "no values"
    return UNTOLD.get(case["kind"])


def test_every_kind_of_case_is_built_or_says_why_not() -> None:
    kinds = {case["kind"] for case in cases()}
    assert kinds <= RECIPES.keys() | UNTOLD.keys()
    assert not RECIPES.keys() & UNTOLD.keys()


def test_nine_of_ten_cases_get_their_verdict() -> None:
    told = [case for case in cases() if reason_untold(case) is None]
    wrong = {}
    for case in told:
        report = judge_run(RECIPES[case["kind"]](case["records"]))
        if report.verdict.value != case["expected_verdict"]:
            found = [f"{f.rule} {f.severity.value}" for f in report.findings]
            wrong[case["id"]] = f"{report.verdict.value}, not {case['expected_verdict']}: {found}"
    assert len(told) >= 50
    assert len(wrong) <= (1 - SHARE) * len(told), wrong
    assert wrong.keys() == DIFFERENT.keys(), wrong
