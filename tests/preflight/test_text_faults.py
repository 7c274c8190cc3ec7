"""Every kind of fault is named by its check, at its rows; the clean twin has no finding at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.preflight.helpers import judged, rows_told
from tools.text_faults import CHAT_FAULTS, PAIR_FAULTS, clean_chats, clean_pairs, with_faults, write
from trainproof.preflight.found import Found
from trainproof.verdict import RunReport

Judged = tuple[RunReport, Found, dict[str, list[int]]]


@pytest.fixture(scope="module")
def chats(tmp_path_factory: pytest.TempPathFactory) -> Judged:
    lines, where = with_faults(list(clean_chats(3000)), CHAT_FAULTS, 4)
    return *judged(write(tmp_path_factory.mktemp("chats") / "chats.jsonl", lines)), where


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Judged:
    lines, where = with_faults(list(clean_pairs(500)), PAIR_FAULTS, 4)
    return *judged(write(tmp_path_factory.mktemp("pairs") / "pairs.jsonl", lines)), where


@pytest.mark.parametrize("name", CHAT_FAULTS)
def test_a_fault_in_chats_is_named(name: str, chats: Judged) -> None:
    report, found, where = chats
    assert set(where[name]) <= rows_told(report, found, CHAT_FAULTS[name][0])


@pytest.mark.parametrize("name", PAIR_FAULTS)
def test_a_fault_in_pairs_is_named(name: str, pairs: Judged) -> None:
    report, found, where = pairs
    assert set(where[name]) <= rows_told(report, found, PAIR_FAULTS[name][0])


def test_no_row_without_a_fault_is_told(chats: Judged) -> None:
    report, found, where = chats
    broken = {row for rows in where.values() for row in rows}
    for finding in report.findings:
        assert rows_told(report, found, finding.rule) <= broken, finding.rule


@pytest.mark.parametrize("clean", [clean_chats, clean_pairs])
def test_the_clean_twin_has_no_finding(clean: object, tmp_path: Path) -> None:
    records = list(clean(2000))  # type: ignore[operator]
    report, _ = judged(write(tmp_path / "clean.jsonl", [json.dumps(record).encode() for record in records]))
    assert report.findings == ()
    assert report.verdict == "PASS"
    assert len(report.checked) > 30
