"""Checks of text and pairs that no single row of the fault set shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.preflight.helpers import codes, jsonl, judged, rows_told
from tools.text_faults import clean_pairs
from trainproof.thresholds import DataThresholds


def test_an_empty_text_is_named_by_its_row(tmp_path: Path) -> None:
    records = [{"text": f"{pair['prompt']} {pair['chosen']}"} for pair in clean_pairs(30)]
    records[4]["text"] = " \t"
    report, found = judged(jsonl(tmp_path / "a.jsonl", *records), kind="text")
    assert rows_told(report, found, "TPD101") == {5}


def test_answers_that_win_by_their_length(tmp_path: Path) -> None:
    pairs = list(clean_pairs(int(DataThresholds().longer_records) + 50))
    longer = [{**pair, "chosen": pair["chosen"] + " " + pair["rejected"] + " and so on"} for pair in pairs]
    assert "TPD154" in codes(judged(jsonl(tmp_path / "long.jsonl", *longer))[0])
    assert "TPD154" not in codes(judged(jsonl(tmp_path / "even.jsonl", *pairs))[0])


@pytest.mark.parametrize(("labels", "told"), [((1, 0), False), ((1, 1), True)])
def test_labels_that_are_all_the_same(labels: tuple[int, int], told: bool, tmp_path: Path) -> None:
    count = int(DataThresholds().label_records) + 50
    records = [
        {"text": f"{pair['prompt']} {pair['chosen']}", "label": labels[i % 2]}
        for i, pair in enumerate(clean_pairs(count))
    ]
    report, _ = judged(jsonl(tmp_path / "a.jsonl", *records), kind="text")
    assert ("TPD155" in codes(report)) is told
