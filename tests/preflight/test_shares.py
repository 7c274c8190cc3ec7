"""Checks that no single row of the fault set shows."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from tests.preflight.helpers import EVERYTHING, codes, jsonl, judged, rows_told
from tools.speech_faults import clean_items, write_pack
from tools.text_faults import clean_pairs
from trainproof.preflight.checks.transcripts import rate_outlier
from trainproof.preflight.found import DataFile, Found, Partial, place_of
from trainproof.readers import source
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


def test_a_row_that_is_too_long_to_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "MOST_LINE_BYTES", 300_000)
    rows = [json.dumps({"text": f"{pair['prompt']} {pair['chosen']}"}) for pair in clean_pairs(20)]
    rows[2] = json.dumps({"text": "long " * 200_000})
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress("".join(f"{row}\n" for row in rows).encode()))
    report, found = judged(path, kind="text")
    assert rows_told(report, found, "TPD004") == {3}


@pytest.mark.parametrize(("rare", "told"), [(20, False), (2, True)])
def test_a_voice_of_few_clips(rare: int, told: bool, tmp_path: Path) -> None:
    items = clean_items(48)
    write_pack(tmp_path, items)
    rows = [
        f"wavs/clip{row:05}.wav|{item.text}|{'bob' if row <= rare else 'eve'}\n" for row, item in enumerate(items, 1)
    ]
    (tmp_path / "metadata.csv").write_text("audio_file|text|speaker_name\n" + "".join(rows), encoding="utf-8")
    report, _ = judged(tmp_path)
    assert ("TPD243" in codes(report)) is told


def test_each_voice_has_a_rate_of_its_own() -> None:
    """One voice speaks three times as fast as the other; only the clip that is unlike its voice's is told."""
    speech = np.full(60, 4.0)
    fast = np.arange(60) % 2 == 0
    characters = np.where(fast, 90, 30) + np.arange(60) % 5
    characters[7] = 92  # of the slow voice
    part = Partial()
    part.add_table(
        "clips",
        place=np.arange(60) + place_of(0, 1),
        characters=characters,
        speech=speech,
        speaker=fast.astype(np.int64),
    )
    found = Found("speech", [DataFile("a")], part, EVERYTHING)
    (told,) = rate_outlier(found, DataThresholds())
    assert [point.line for point in told.evidence] == [8]
