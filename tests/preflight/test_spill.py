"""Columns in files give what columns in memory give, and the memory does not grow with the rows."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tools.speech_faults import SPEECH_FAULTS, clean_items, write_pack
from tools.speech_faults import with_faults as with_speech_faults
from tools.text_faults import CHAT_FAULTS, clean_chats, with_faults, write
from trainproof.errors import InputError
from trainproof.judge import Settings
from trainproof.preflight import inputs, notes, rows, spill
from trainproof.preflight.found import DataFile, Found, Options, Partial, merged, place_of
from trainproof.preflight.judging import judge_found
from trainproof.preflight_command import DataOptions, run_data
from trainproof.verdict import Severity

JSON = {"output_format": "json", "no_html": True, "quiet": True}


@pytest.mark.parametrize("kind", ["chat", "speech"])
def test_files_give_the_bytes_of_memory(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "PIECE_BYTES", 50_000)
    monkeypatch.setattr(inputs, "CLIPS", 20)
    if kind == "chat":
        lines, _ = with_faults(list(clean_chats(500)), CHAT_FAULTS, 2)
        paths = write(tmp_path / "train.jsonl", lines[:400]), write(tmp_path / "valid.jsonl", lines[400:])
    else:
        items, _ = with_speech_faults(clean_items(120), 1, SPEECH_FAULTS)
        paths = write_pack(tmp_path / "train", items[:90]), write_pack(tmp_path / "valid", items[80:])
    own = DataOptions((str(paths[0]),), (str(paths[1]),), workers=1, rejects=str(tmp_path / "rejects"))
    texts = []
    for _ in range(2):
        assert run_data(own, {**JSON, "output": str(tmp_path / "report.json")}) == 1
        texts.append((tmp_path / "report.json").read_bytes() + (tmp_path / "rejects").read_bytes())
        monkeypatch.setattr(spill, "MOST_BYTES", 1000)
        monkeypatch.setattr(spill, "AT_ONCE", 50)
        monkeypatch.setattr("trainproof.preflight.found.AT_ONCE", 50)
    assert texts[0] == texts[1]


def made(pieces: int, each: int) -> Iterator[Partial]:
    """Pieces of text data, of which the tenth row of each repeats the first row of all."""
    rng = np.random.default_rng(3)
    for piece in range(pieces):
        part = Partial()
        part.rows = each
        text = rng.integers(1, 1 << 63, each).astype(np.uint64)
        text[9] = 77
        numbers = np.full(each, 100, np.int32)
        part.add_table(
            "samples", place=np.arange(each) + place_of(0, 1 + piece * each), text=text, prompt=np.zeros(each, np.uint64),
            length=numbers, answer=numbers, tokens=numbers, before=numbers, script=np.full(each, 2, np.uint8),
        )  # fmt: skip
        yield part


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """800,000 rows have columns of 33 MB; a report on them needs a small part of that."""
    monkeypatch.setattr(spill, "MOST_BYTES", 1_000_000)
    monkeypatch.setattr(spill, "AT_ONCE", 20_000)
    monkeypatch.setattr("trainproof.preflight.found.AT_ONCE", 20_000)
    judge_found(Found("text", [DataFile("a")], merged(made(1, 300)), Options(near=False)), "data", "text", Settings())
    tracemalloc.start()
    try:
        whole = merged(made(200, 4000))
        assert tracemalloc.get_traced_memory()[1] < 3_000_000
        report = judge_found(Found("text", [DataFile("a")], whole, Options(near=False)), "data", "text", Settings())
        assert tracemalloc.get_traced_memory()[1] < 16_000_000
    finally:
        tracemalloc.stop()
    told = next(finding for finding in report.findings if finding.rule == "TPD108")
    assert told.message.startswith("199 of 800,000 records")
    assert [point.line for point in told.evidence] == [10 + 4000 * piece for piece in range(1, 9)]


def test_groups_hold_equal_values_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spill, "AT_ONCE", 64)
    values = np.random.default_rng(1).choice(np.random.default_rng(2).integers(1, 1 << 63, 300), 1000)
    kept = list(spill.groups(values))
    assert len(kept) > 10
    assert sorted(np.concatenate(kept).tolist()) == list(range(1000))
    again, chiefs = spill.repeats(values)
    first: dict[int, int] = {}
    known = [(i, first.setdefault(int(value), i)) for i, value in enumerate(values)]
    assert list(zip(again.tolist(), chiefs.tolist(), strict=True)) == [pair for pair in known if pair[0] != pair[1]]
    assert spill.firsts(values).tolist() == sorted(first.values())
    assert spill.are_among(values[:5], values[5:]).tolist() == [value in values[5:] for value in values[:5]]
    assert spill.are_among(values[:0], values).tolist() == []


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9), st.text(st.characters(codec=None), max_size=5))))
@settings(max_examples=50)
@pytest.mark.parametrize("most", [0, 1 << 20])
def test_notes_come_back_by_place(most: int, added: list[tuple[str, int, str]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spill, "MOST_BYTES", most)
        patch.setattr(spill, "AT_ONCE", 3)
        patch.setattr(notes, "SOME", 4)
        kept = notes.Notes()
        for code, place, text in added:
            kept.add(code, [(place, float(place), text)])
        for code in "abcd":
            mine = [(place, float(place), text) for name, place, text in added if name == code]
            assert list(kept.of(code)) == sorted(mine, key=lambda note: note[0])


def test_reasons_wait_in_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """20,000 records that are named are 4 MB as objects."""
    monkeypatch.setattr(spill, "MOST_BYTES", 100_000)
    monkeypatch.setattr(notes, "SOME", 500)

    def told() -> Iterator[Partial]:
        for piece in range(40):
            part = Partial(1 << 40)
            for row in range(500):
                part.hit("TPD102", place_of(0, 1 + piece * 500 + row), f"row {row}")
            yield part

    tracemalloc.start()
    try:
        found = Found("text", [DataFile("a")], merged(told(), 1 << 40, notes.Notes()), Options(keep=1 << 40))
        (sighting,) = found.told("TPD102", Severity.WARN, "have control characters")
        count = sum(reason == f"row {(place - 1) % 500}" for place, reason in found.rejected("TPD102"))
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()
    assert count == 20_000
    assert [point.line for point in sighting.evidence] == list(range(1, 9))


def test_a_full_disk_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(spill, "MOST_BYTES", 10)
    monkeypatch.setattr("tempfile.TemporaryFile", full)
    with pytest.raises(InputError, match="No space left on device; name a folder with room by TMPDIR"):
        merged(made(1, 100))
