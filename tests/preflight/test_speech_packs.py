"""The layouts of speech packs, public reports that are decidable before training, and sounds that kill their decoder."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from tests.preflight.helpers import codes, judged, rows_told
from tools.speech_faults import RATE, SPEECH_FAULTS, Item, clean_items, encoded, write_pack
from trainproof.preflight.audio import measured, read_sound
from trainproof.preflight.clip import Clip
from trainproof.preflight.clips import clips_of, manifest_kind
from trainproof.preflight.found import Options
from trainproof.preflight.running import partial_of


def sounds(folder: Path, names: list[str]) -> list[Item]:
    items = clean_items(len(names))
    for name, item in zip(names, items, strict=True):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(encoded(item))
    return items


LAYOUTS = {
    "piper": ("metadata.csv", "one|first text\ntwo|second text\n", ["wav/one.wav", "wav/two.wav"], ""),
    "piper, several voices": (
        "metadata.csv",
        "".join(f"{i}|{'ab'[i % 2]}|text {'xy'[i % 2] * (i + 1)}\n" for i in range(8)),
        [f"wavs/{i}.wav" for i in range(8)],
        "a",
    ),
    "coqui": (
        "metadata.csv",
        "audio_file|text|speaker_name\nwavs/1.wav|first text|eve\nwavs/2.wav|second text|eve\n",
        ["wavs/1.wav", "wavs/2.wav"],
        "eve",
    ),
    "common voice": (
        "train.tsv",
        "client_id\tpath\tsentence\tage\nc1\tx1.wav\tfirst text\t\nc1\tx2.wav\tsecond text\t\n",
        ["clips/x1.wav", "clips/x2.wav"],
        "c1",
    ),
    "nemo": (
        "train_manifest.json",
        '{"audio_filepath": "a.wav", "duration": 2.0, "text": "first text"}\n{"audio_filepath": "b.wav", "text": "second text"}\n',
        ["a.wav", "b.wav"],
        "",
    ),
    "audiofolder": ("metadata.csv", 'file_name,transcription\nd/a.wav,"first, text"\nd/b.wav,second text\n', ["d/a.wav", "d/b.wav"], ""),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYOUTS)
def test_manifests_are_read(name: str, tmp_path: Path) -> None:
    manifest, content, names, speaker = LAYOUTS[name]
    sounds(tmp_path, names)
    (tmp_path / manifest).write_text(content)
    kind = manifest_kind(str(tmp_path / manifest))
    assert kind is not None
    clips = clips_of(str(tmp_path / manifest), kind)
    assert [clip.audio for clip in clips] == [str(tmp_path / n) for n in names]
    assert all(clip.text and "text" in clip.text for clip in clips)
    assert clips[0].speaker == speaker
    report, found = judged(tmp_path)
    assert (found.kind, found.rows) == ("speech", len(names))
    assert not codes(report) & {"TPD003", "TPD241", "TPD242", "TPD231"}


def test_kaldi_never_runs_a_command(tmp_path: Path) -> None:
    sounds(tmp_path, ["a.wav"])
    (tmp_path / "wav.scp").write_text(f"utt1 a.wav\nutt2 touch {tmp_path}/ran |\n")
    (tmp_path / "text").write_text("utt1 the text\nutt2 other text\n")
    (tmp_path / "utt2spk").write_text("utt1 eve\nutt2 eve\n")
    report, found = judged(tmp_path)
    assert clips_of(str(tmp_path), "kaldi")[0] == Clip(1, str(tmp_path / "a.wav"), "the text", "eve")
    assert rows_told(report, found, "TPD003") == {2}
    assert not (tmp_path / "ran").exists()


def test_pairs_in_folders(tmp_path: Path) -> None:
    sounds(tmp_path, ["wav48/p1/p1_001_mic1.wav", "p2/x.wav", "p2/y.wav"])
    (tmp_path / "txt" / "p1").mkdir(parents=True)
    (tmp_path / "txt" / "p1" / "p1_001.txt").write_text("as in VCTK")
    (tmp_path / "p2" / "x.txt").write_text("beside it")
    report, found = judged(tmp_path)
    assert {clip.text for clip in clips_of(str(tmp_path), "pairs")} == {"as in VCTK", "beside it", None}
    assert "TPD231" in codes(report)
    assert [found.where(place) for place, _ in found.rejected("TPD231")] == [(str(tmp_path / "p2" / "y.wav"), 0)]


def test_parquet_with_embedded_audio(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    rows = [
        {"audio": {"bytes": encoded(item), "path": f"{i}.wav"}, "text": item.text}
        for i, item in enumerate(clean_items(3))
    ]
    rows[1]["audio"] = {"bytes": b"nothing", "path": "1.wav"}
    pytest.importorskip("pyarrow.parquet").write_table(pyarrow.Table.from_pylist(rows), tmp_path / "train.parquet")
    report, found = judged(tmp_path)
    assert rows_told(report, found, "TPD201") == {2}


def test_flac_by_soundfile_and_wrong_endings(tmp_path: Path) -> None:
    soundfile = pytest.importorskip("soundfile")
    items = clean_items(2)
    (tmp_path / "metadata.csv").write_text("".join(f"{i}.{e}|{items[i].text}\n" for i, e in enumerate(("flac", "wav"))))
    for i, ending in enumerate(("flac", "wav")):
        with (tmp_path / f"{i}.{ending}").open("wb") as out:
            soundfile.write(out, items[i].sound, 16_000, format="FLAC")
    report, found = judged(tmp_path)
    assert rows_told(report, found, "TPD207") == {2}
    assert codes(report) == {"TPD207"}


def test_leaks_between_sides(tmp_path: Path) -> None:
    """kaldi-asr/kaldi#2141 (sentences of the test set in training) and espnet/espnet#6131 (its ids)."""
    items = clean_items(40)
    for side, mine in (("train", items[:30]), ("test", items[30:])):
        (tmp_path / side).mkdir()
        for i, item in enumerate(mine):
            (tmp_path / side / f"{side}{i}.wav").write_bytes(encoded(item))
    lines = {"train": items[:30], "test": [*items[30:38], items[4], *items[39:]]}
    (tmp_path / "test" / "test0.wav").write_bytes(encoded(items[7]))
    for side, mine in lines.items():
        rows = [{"audio_filepath": f"{side}/{side}{i}.wav", "text": item.text} for i, item in enumerate(mine)]
        (tmp_path / f"{side}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    report, found = judged(tmp_path)
    assert rows_told(report, found, "TPD251") == {9}
    assert rows_told(report, found, "TPD252") == {1}


@pytest.mark.parametrize(
    ("report_of", "change", "code"),
    [
        ("NVIDIA/waveglow#103: NaN became files of zeros", {"sound": np.zeros(20_000)}, "TPD211"),
        ("NVIDIA/tacotron2#263: a second of silence at the end", {"sound": np.concatenate([clean_items(1)[0].sound, np.zeros(20_000)])}, "TPD212"),
        ("daswer123/xtts-finetune-webui#20: Max=0.00", {"sound": np.zeros(30_000)}, "TPD211"),
        ("erew123/alltalk_tts#29: the last syllable is missing", {"sound": SPEECH_FAULTS["the last syllable is cut"][1](clean_items(1)[0], clean_items(1)[0]).sound}, "TPD219"),
        ("coqui-ai/TTS#1270: shorter than the kernel", {"sound": clean_items(1)[0].sound[2000:4000]}, "TPD217"),
    ],
)  # fmt: skip
def test_public_reports(report_of: str, change: dict[str, object], code: str, tmp_path: Path) -> None:
    items = clean_items(30)
    items[20] = items[20]._replace(**change)  # type: ignore[arg-type]  # fields by name
    report, found = judged(write_pack(tmp_path / "pack", items))
    assert rows_told(report, found, code) == {21}, report_of


def test_rate_of_the_trainer(tmp_path: Path) -> None:
    """rhasspy/piper#604: the configuration says 44.1 kHz, and the voice speaks too fast."""
    folder = write_pack(tmp_path / "pack", clean_items(5))
    assert "TPD203" not in codes(judged(folder)[0])
    assert "TPD203" in codes(judged(folder, options=Options(sample_rate=44_100))[0])


def test_declared_duration(tmp_path: Path) -> None:
    """NVIDIA-NeMo/Speech#2354: the manifest's durations are wrong, and nothing is left to train on."""
    sounds(tmp_path, ["a.wav", "b.wav"])
    rows = [{"audio_filepath": f"{name}.wav", "text": "text", "duration": 0.01} for name in "ab"]
    (tmp_path / "manifest.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    report, found = judged(tmp_path)
    assert rows_told(report, found, "TPD222") == {1, 2}


def _dies(plan: object, piece: object) -> object:
    clips = clips_of(plan.files[piece.file].path, plan.formats[piece.file])[piece.start : piece.stop]  # type: ignore[attr-defined]
    if any("killer" in (clip.audio or "") for clip in clips):
        os._exit(11)
    return partial_of(plan, piece)  # type: ignore[arg-type]


def test_a_sound_that_kills_its_decoder_costs_one_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    items = clean_items(8)
    for i, item in enumerate(items):
        (tmp_path / f"{'killer' if i == 5 else i}.wav").write_bytes(encoded(item))
    rows = [f"{'killer' if i == 5 else i}.wav|{item.text}\n" for i, item in enumerate(items)]
    (tmp_path / "metadata.csv").write_text("".join(rows))
    monkeypatch.setattr("trainproof.preflight.inputs.CLIPS", 4)
    monkeypatch.setattr("trainproof.preflight.running.partial_of", _dies)
    report, found = judged(tmp_path, workers=2)
    assert rows_told(report, found, "TPD009") == {6}
    assert found.rows == 8


def test_transcripts_of_other_clips(tmp_path: Path) -> None:
    """rhasspy/piper#81: the voices babble; some transcripts are those of other clips."""
    items = clean_items(60)
    order = sorted(range(60), key=lambda i: len(items[i].text))
    for short, long in zip(order[:6], order[-6:], strict=True):
        texts = items[short].text, items[long].text
        items[short], items[long] = items[short]._replace(text=texts[1]), items[long]._replace(text=texts[0])
    report, found = judged(write_pack(tmp_path / "pack", items))
    assert rows_told(report, found, "TPD221") == {i + 1 for i in (*order[:6], *order[-6:])}


def test_two_sounds_of_one_envelope_are_no_copies_and_one_at_another_level_is(tmp_path: Path) -> None:
    """Whole periods fill each frame of 20 ms, so that two tones under the same steps rise at the same frames."""
    rng, time = np.random.default_rng(4), np.arange(2 * RATE) / RATE
    levels = rng.uniform(0.2, 0.6, 100)
    low, high = (
        np.repeat(levels * rng.choice([-1, 1], 100), RATE // 50) * np.sin(2 * np.pi * pitch * time + 0.3)
        for pitch in (250, 350)
    )
    assert (
        measured(read_sound("", encoded(Item(low, "")))).shape
        == measured(read_sound("", encoded(Item(high, "")))).shape
    )
    sounds = [low, high, 0.5 * low, -0.7 * high]
    texts = [
        "He has the first of them.",
        "She takes the second one.",
        "They keep what is left.",
        "We say no more of it.",
    ]
    items = [Item(sound, text) for sound, text in zip(sounds, texts, strict=True)]
    report, found = judged(write_pack(tmp_path / "pack", items))
    assert rows_told(report, found, "TPD223") == {3, 4}
    assert [why[-1] for _, why in found.rejected("TPD223")] == ["1", "2"]
