"""Speech packs as the ecosystem writes them: sound ones have no finding over INFO, and faults are cited by the file that has them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.preflight.helpers import codes, judged, rows_told
from tools.speech_faults import RATE, Item, clean_items, encoded
from trainproof.verdict import RunReport, Severity

ITEMS = clean_items(12)
Words = list[str]


def loud(report: RunReport) -> set[str]:
    return {finding.rule for finding in report.findings if finding.severity != Severity.INFO}


def written(folder: Path, names: Words) -> Words:
    """The texts of the sounds that are written."""
    for name, item in zip(names, ITEMS, strict=False):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(encoded(item))
    return [item.text for item in ITEMS[: len(names)]]


def put(path: Path, rows: Words) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{row}\n" for row in rows))


def filelists(folder: Path) -> None:
    texts = written(folder, [f"wavs/{i}.wav" for i in range(12)])
    rows = [f"wavs/{i}.wav|{text}" for i, text in enumerate(texts)]
    put(folder / "filelists" / "train.txt", rows[:9])
    put(folder / "filelists" / "val.txt", rows[9:])


def css10(folder: Path) -> None:
    texts = written(folder, [f"book/{i}.wav" for i in range(12)])
    put(folder / "transcript.txt", [f"book/{i}.wav|{text}|{text}|{3 + i / 7:.2f}" for i, text in enumerate(texts)])


def style_tts(folder: Path) -> None:
    texts = written(folder, [f"wavs/{i}.wav" for i in range(12)])
    put(folder / "train_list.txt", [f"{i}.wav|{text}|{i % 3}" for i, text in enumerate(texts)])


def sovits(folder: Path) -> None:
    texts = written(folder, [f"cut/{i}.wav" for i in range(12)])
    put(folder / "out.list", [f"{folder}/cut/{i}.wav|eve|EN|{text}" for i, text in enumerate(texts)])


def librispeech(folder: Path) -> None:
    texts = written(folder, [f"dev/{i % 2}/1/{i % 2}-1-{i:04}.wav" for i in range(12)])
    for voice in range(2):
        rows = [f"{voice}-1-{i:04} {texts[i].upper()}" for i in range(voice, 12, 2)]
        put(folder / "dev" / str(voice) / "1" / f"{voice}-1.trans.txt", rows)


def audiofolder(folder: Path) -> None:
    texts = written(folder, [f"{'train' if i < 9 else 'test'}/{i}.wav" for i in range(12)])
    rows = [json.dumps({"file_name": f"{i}.wav", "text": text}) for i, text in enumerate(texts)]
    put(folder / "train" / "metadata.jsonl", rows[:9])
    put(folder / "test" / "metadata.jsonl", rows[9:])


def common_voice(folder: Path) -> None:
    texts = written(folder, [f"clips/{i}.wav" for i in range(12)])
    rows = [f"c\t{i}.wav\t{text}" for i, text in enumerate(texts)]
    for name, part in (("train", rows[:6]), ("test", rows[6:8]), ("validated", rows[:10]), ("invalidated", rows[10:])):
        put(folder / f"{name}.tsv", ["client_id\tpath\tsentence", *part])


def _recording(path: Path) -> list[tuple[float, float]]:
    """One sound of all clips, and where each begins and ends."""
    ends = np.cumsum([len(item.sound) for item in ITEMS]) / RATE
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encoded(Item(np.concatenate([item.sound for item in ITEMS]), "")))
    return list(zip([0.0, *ends[:-1]], ends, strict=True))


def nemo_offsets(folder: Path) -> None:
    parts = zip(_recording(folder / "long.wav"), ITEMS, strict=True)
    put(folder / "manifest.json", [
        json.dumps({"audio_filepath": "long.wav", "offset": start, "duration": end - start, "text": item.text})
        for (start, end), item in parts
    ])  # fmt: skip


def kaldi_segments(folder: Path) -> None:
    parts = _recording(folder / "long.wav")
    put(folder / "wav.scp", [f"rec sox -t wav {folder}/long.wav -t wav - |"])
    put(folder / "segments", [f"u{i:02} rec {start:.4f} {end:.4f}" for i, (start, end) in enumerate(parts)])
    put(folder / "text", [f"u{i:02} {item.text.upper()}" for i, item in enumerate(ITEMS)])
    put(folder / "utt2spk", [f"u{i:02} eve" for i in range(12)])


def parquet(folder: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    file = pytest.importorskip("pyarrow.parquet")

    rows = [{"audio": {"bytes": encoded(item), "path": f"{i}.wav"}, "text": item.text} for i, item in enumerate(ITEMS)]
    (folder / "data").mkdir(parents=True)
    file.write_table(pyarrow.Table.from_pylist(rows[:9]), folder / "data" / "train-00000-of-00001.parquet")
    file.write_table(pyarrow.Table.from_pylist(rows[9:]), folder / "data" / "test-00000-of-00001.parquet")


PACKS = (
    filelists,
    css10,
    style_tts,
    sovits,
    librispeech,
    audiofolder,
    common_voice,
    nemo_offsets,
    kaldi_segments,
    parquet,
)


@pytest.mark.parametrize("make", PACKS)
def test_sound_packs_have_no_finding(make: Callable[[Path], None], tmp_path: Path) -> None:
    if make in (nemo_offsets, kaldi_segments):
        pytest.importorskip("soundfile")
    make(tmp_path / "pack")
    report, found = judged(tmp_path / "pack")
    assert (found.kind, loud(report)) == ("speech", set())
    assert "TPD232" not in codes(report)  # a number of a column is no text
    assert found.rows == (8 if make is common_voice else 12)
    assert found.held_out(np.array([i << 40 for i in range(len(found.files))])).any() == (len(found.files) > 1)


def test_a_clip_of_a_folder_is_cited_by_its_file(tmp_path: Path) -> None:
    librispeech(tmp_path / "pack")
    path = tmp_path / "pack" / "dev" / "1" / "1" / "1-1-0003.wav"
    path.write_bytes(encoded(ITEMS[3]._replace(sound=ITEMS[3].sound * 0)))
    report, _ = judged(tmp_path / "pack")
    silent = next(finding for finding in report.findings if finding.rule == "TPD211")
    assert [(point.file, point.line) for point in silent.evidence] == [(str(path), 0)]


def test_faults_of_segments_are_cited_by_their_line(tmp_path: Path) -> None:
    pytest.importorskip("soundfile")
    kaldi_segments(tmp_path / "pack")
    lines = (tmp_path / "pack" / "segments").read_text().splitlines()
    lines[2], lines[4], lines[6] = "u02 rec 900.0 903.0", "u04 rec 5.0 4.0", "u06 other 1.0 2.0"
    put(tmp_path / "pack" / "segments", lines[:11])
    report, found = judged(tmp_path / "pack")
    assert [rows_told(report, found, code) for code in ("TPD201", "TPD003")] == [{3}, {5}]
    assert 7 in rows_told(report, found, "TPD241")
    assert any("u11 has a text and no sound" in reason for _, reason in found.rejected("TPD241"))
    assert {point.file for f in report.findings for point in f.evidence} == {str(tmp_path / "pack" / "segments")}


def test_sounds_without_any_text_warn(tmp_path: Path) -> None:
    written(tmp_path, [f"{'cat' if i % 2 else 'dog'}/{i}.wav" for i in range(12)])
    report, _ = judged(tmp_path)
    assert {f.rule: f.severity for f in report.findings} == {"TPD231": Severity.WARN}


@pytest.mark.parametrize(
    ("form", "coding"), [("WAV", "ULAW"), ("WAV", "ALAW"), ("WAV", "IMA_ADPCM"), ("NIST", "PCM_16")]
)
def test_codings_of_telephones_are_decoded(form: str, coding: str, tmp_path: Path) -> None:
    soundfile = pytest.importorskip("soundfile")
    for i, item in enumerate(ITEMS):
        name = f"{i}.{'sph' if form == 'NIST' else 'wav'}"
        soundfile.write(tmp_path / name, item.sound, RATE, format=form, subtype=coding)
        (tmp_path / f"{i}.txt").write_text(item.text)
    assert loud(judged(tmp_path)[0]) == set()


def test_texts_about_pipes_are_no_pack(tmp_path: Path) -> None:
    put(tmp_path / "pipes.txt", [f"cat file{i} | sort | uniq: {item.text}" for i, item in enumerate(ITEMS)])
    report, found = judged(tmp_path / "pipes.txt")
    assert (found.kind, loud(report)) == ("text", set())
