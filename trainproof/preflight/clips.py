"""Speech packs as clips: which sound, which text, whose voice. One function a layout; `clips_of` finds out which it is."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from trainproof.preflight.rows import Bad, Piece, format_of, rows_of
from trainproof.preflight.stores import AnyPath, lies_there, normal, path_of, walked

SOUNDS = (".wav", ".flac", ".ogg", ".mp3", ".opus", ".m4a", ".aiff", ".sph")
#: names of fields -> what they hold, in manifests with named fields
_AUDIO = ("audio_filepath", "audio_file", "audio_path", "wav_path", "file_name", "path", "audio", "wav", "file")
_TEXT = ("text", "sentence", "transcription", "transcript", "normalized_text", "raw_transcription", "label")
_SPEAKER = ("speaker", "speaker_id", "speaker_name", "client_id", "spk")
_FOLDERS = ("wavs", "wav", "clips", "audio", ".")


class Clip(NamedTuple):
    """One clip of a pack. audio: a path, or None where the manifest names none; `wrong` is what is wrong with its row."""

    row: int
    audio: str | None
    text: str | None
    speaker: str = ""
    seconds: float | None = None
    data: bytes | None = None
    wrong: Bad | None = None


def manifest_kind(path: str) -> str | None:
    """The layout of a speech pack or manifest; None when it is none."""
    folder = path_of(path)
    if folder.is_dir():
        if (folder / "wav.scp").is_file() and (folder / "text").is_file():
            return "kaldi"
        return "pairs" if _has_sounds(folder) else None
    try:
        kind = format_of(path)
        if kind in ("lines", "csv") and _is_piped(path):
            return "piped"
        if kind in ("jsonl", "tsv", "csv", "parquet", "arrow", "json"):
            _, record, _ = next(rows_of(path, kind, _WHOLE), (0, None, False))
            if isinstance(record, dict) and _field(record, _AUDIO) is not None and _is_sound(record):
                return kind
    except Exception:  # whatever is wrong with it is told when it is read as data
        return None
    return None


_WHOLE = Piece(0)


def _is_sound(record: dict[str, Any]) -> bool:
    value = record[_field(record, _AUDIO) or ""]
    return isinstance(value, dict) or (isinstance(value, str) and value.lower().endswith(SOUNDS))


def _field(record: dict[str, Any], names: tuple[str, ...]) -> str | None:
    return next((name for name in names if name in record), None)


def _has_sounds(folder: AnyPath) -> bool:
    for count, (_, _, names) in enumerate(walked(folder)):
        if any(name.lower().endswith(SOUNDS) for name in names):
            return True
        if count > 1000:
            return False
    return False


def _is_piped(path: str) -> bool:
    with path_of(path).open("rb") as raw:
        lines = [line for line in raw.read(4096).split(b"\n")[:4] if line.strip()]
    return bool(lines) and all(
        b"|" in line[1:] and not line.startswith(b"|") for line in lines
    )  # else a table of Markdown


@lru_cache(maxsize=4)
def clips_of(path: str, kind: str) -> list[Clip]:
    """All clips of a manifest or folder, in order."""
    makers = {"kaldi": _kaldi, "pairs": _pairs, "piped": _piped}
    return list(makers[kind](path_of(path)) if kind in makers else _named(path, kind))


def _found(base: AnyPath, name: str) -> str:
    """The file that a manifest means: as it stands, or in one of the usual folders, with or without its ending."""
    if path_of(name).is_absolute():
        return name
    bases = [base / folder for folder in _FOLDERS] + [base.parent]
    for start in bases:
        if lies_there(start / name):
            return normal(start / name)
        if not name.lower().endswith(SOUNDS):
            for ending in SOUNDS[:4]:
                if lies_there(start / (name + ending)):
                    return normal(start / (name + ending))
    return normal(base / name)


def _piped(path: AnyPath) -> Iterator[Clip]:
    """LJSpeech (id|text|normalised), Piper (id|text, id|speaker|text) and Coqui (audio_file|text|speaker_name, with a header)."""
    lines = path.read_bytes().decode("utf-8-sig", "replace").split("\n")
    names = lines[0].rstrip("\r").split("|")
    headed = any(name in _AUDIO for name in names)
    columns = max(set(counts := [line.count("|") for line in lines if line.strip()]), key=counts.count) + 1
    speakers = columns == 3 and not headed and _second_is_speaker(lines)
    for row, line in enumerate(lines, 1):
        if not line.strip() or (headed and row == 1):
            continue
        cells = line.rstrip("\r").split("|")
        if len(cells) != columns:
            yield Clip(row, None, None, wrong=Bad("TPD003", f"{len(cells)} columns instead of {columns}: {line[:60]}"))
        elif headed:
            yield _record(row, dict(zip(names, cells, strict=False)), path.parent)
        else:
            text = cells[2] if speakers else cells[-1] or (cells[1] if columns > 2 else "")
            yield Clip(row, _found(path.parent, cells[0]), text, cells[1] if speakers else "")


def _second_is_speaker(lines: list[str]) -> bool:
    """Whether the second column has few, short values: a voice, not a text."""
    values = [line.split("|")[1] for line in lines if line.count("|") == 2]
    return len(set(values)) <= max(1, len(values) // 3) and all(len(value) <= 40 for value in values)


def _named(path: str, kind: str) -> Iterator[Clip]:
    base = path_of(path).parent
    for row, record, _ in rows_of(path, kind, _WHOLE):
        if isinstance(record, Bad):
            yield Clip(row, None, None, wrong=record)
        elif isinstance(record, dict):
            yield _record(row, record, base)
        else:
            yield Clip(row, None, None, wrong=Bad("TPD003", f"a {type(record).__name__} instead of an object"))


def _record(row: int, record: dict[str, Any], base: AnyPath) -> Clip:
    audio_field, text_field, speaker_field = (_field(record, names) for names in (_AUDIO, _TEXT, _SPEAKER))
    audio = record.get(audio_field or "")
    text = record.get(text_field or "")
    seconds = record.get("duration")
    data = audio.get("bytes") if isinstance(audio, dict) else None
    name = str(audio.get("path") or f"row {row}") if isinstance(audio, dict) else audio
    if not isinstance(name, str) or not name:
        return Clip(row, None, None, wrong=Bad("TPD003", "no audio is named"))
    return Clip(
        row,
        name if data is not None else _found(base, name),
        text if isinstance(text, str) else None,
        str(record.get(speaker_field or "") or ""),
        float(seconds) if isinstance(seconds, int | float) else None,
        data if isinstance(data, bytes) else None,
    )


def _kaldi(folder: AnyPath) -> Iterator[Clip]:
    """wav.scp, text and utt2spk. Commands in wav.scp are never run: their clips are told as unreadable."""
    texts, speakers = _table(folder / "text"), _table(folder / "utt2spk")
    for row, line in enumerate((folder / "wav.scp").read_text("utf-8", "replace").split("\n"), 1):
        if not line.strip():
            continue
        name, _, audio = line.strip().partition(" ")
        if not audio or audio.rstrip().endswith("|"):
            yield Clip(
                row, None, texts.get(name), wrong=Bad("TPD003", f"{name} has a command for its audio, which is not run")
            )
        else:
            yield Clip(row, _found(folder, audio.strip()), texts.get(name), speakers.get(name, ""))


def _table(path: AnyPath) -> dict[str, str]:
    if not path.is_file():
        return {}
    lines = (line.split(maxsplit=1) for line in path.read_text("utf-8", "replace").split("\n") if line.strip())
    return {cells[0]: cells[1].strip() if len(cells) > 1 else "" for cells in lines}


def _pairs(folder: AnyPath) -> Iterator[Clip]:
    """Sounds with a text of the same name beside them, or below txt/ as in VCTK; the folder's name is the voice."""
    sounds: list[AnyPath] = []
    for root, below, names in walked(folder):
        below.sort()
        sounds += [path_of(root) / name for name in sorted(names) if name.lower().endswith(SOUNDS)]
    for row, sound in enumerate(sounds, 1):
        inner = sound.relative_to(folder)  # type: ignore[arg-type]  # both are of one kind
        beside = [sound.with_suffix(".txt"), sound.with_suffix(".lab"), sound.with_suffix(".normalized.txt")]
        stem = inner.stem.removesuffix("_mic1").removesuffix("_mic2")
        beside += [folder / "txt" / "/".join(inner.parts[1:-1]) / f"{stem}.txt", folder / "txt" / f"{stem}.txt"]
        text = next((path.read_text("utf-8", "replace").strip() for path in beside if lies_there(path)), None)
        yield Clip(row, str(sound), text, inner.parent.name)


def sounds_below(folder: AnyPath) -> list[str]:
    """Every sound file below a folder."""
    return sorted(
        normal(path_of(root) / name)
        for root, _, names in walked(folder)
        for name in names
        if name.lower().endswith(SOUNDS)
    )
