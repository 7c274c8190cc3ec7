"""Speech packs as clips: which sound, which text, whose voice. One function a layout; `clips_of` finds out which it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import lru_cache
from typing import Any

from trainproof.preflight import kaldi, piped
from trainproof.preflight.clip import SOUNDS, Clip, sound_named, table_of, text_of
from trainproof.preflight.cliplist import ClipList
from trainproof.preflight.rows import Bad, DataInput, Piece, format_of, rows_of
from trainproof.preflight.stores import AnyPath, lies_there, normal, path_of, walked

#: names of fields -> what they hold, in manifests with named fields
_AUDIO = ("audio_filepath", "audio_file", "audio_path", "wav_path", "file_name", "path", "audio", "wav", "file")
_TEXT = ("text", "sentence", "transcription", "transcript", "normalized_text", "raw_transcription", "label")
#: with these a record is a conversation about a sound
_TURNS = {"messages", "conversations"}
_SPEAKER = ("speaker", "speaker_id", "speaker_name", "client_id", "spk")


def manifest_kind(path: str) -> str | None:
    """The layout of a speech pack or manifest; None when it is none."""
    folder = path_of(path)
    if folder.is_dir():
        if kaldi.is_kaldi(folder):
            return "kaldi"
        return "pairs" if _has_sounds(folder) else None
    try:
        kind = format_of(path)
        if kind in ("lines", "csv") and piped.is_piped(path, _AUDIO):
            return "piped"
        if kind == "json" and not _names_sounds(path):
            return None
        if kind in ("jsonl", "tsv", "csv", "parquet", "arrow", "json"):
            _, record, _ = next(rows_of(path, kind, _WHOLE), (0, None, False))
            if isinstance(record, dict) and not _TURNS & record.keys() and _field(record, _AUDIO) and _is_sound(record):
                return kind
    except Exception:  # whatever is wrong with it is told when it is read as data
        return None
    return None


_WHOLE = Piece(0)
#: bytes of the text of one clip at most
MOST_TEXT = 1024 * 1024
#: layouts of folders that have no manifest
FOLDERS = ("kaldi", "pairs")


def _names_sounds(path: str) -> bool:
    """Whether a document begins with names of sounds: it is not read as a whole for that."""
    with closing(DataInput(path)) as log:
        return any(ending.encode() in log.head for ending in SOUNDS)


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


@lru_cache(maxsize=4)
def clips_of(path: str, kind: str) -> ClipList:
    """All clips of a manifest or folder, in order."""
    makers = {"kaldi": kaldi.clips_in, "pairs": _pairs, "piped": _piped}
    return ClipList(makers[kind](path_of(path)) if kind in makers else _named(path, kind))


def clip_at(folder: str, layout: str, row: int) -> tuple[str, int]:
    """(file, row in it) that the clip of a folder is known by: its sound and 0, or a line of Kaldi's list."""
    if layout == "kaldi":
        return str(kaldi.list_of(path_of(folder))), row
    clips = clips_of(folder, layout)
    return (clips[row - 1].audio or folder, 0) if row <= len(clips) else (folder, row)


def _piped(path: AnyPath) -> Iterator[Clip]:
    for found in piped.clips_in(path, _AUDIO):
        yield found if isinstance(found, Clip) else _record(*found, path.parent)


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
    seconds, start = record.get("duration"), record.get("offset")
    data = audio.get("bytes") if isinstance(audio, dict) else None
    name = str(audio.get("path") or f"row {row}") if isinstance(audio, dict) else audio
    if not isinstance(name, str) or not name:
        return Clip(row, None, None, wrong=Bad("TPD003", "no audio is named"))
    return Clip(
        row,
        name if data is not None else sound_named(base, name),
        text if isinstance(text, str) else None,
        str(record.get(speaker_field or "") or ""),
        float(seconds) if isinstance(seconds, int | float) else None,
        data if isinstance(data, bytes) else None,
        start=float(start)
        if isinstance(start, int | float) and isinstance(seconds, int | float) and data is None
        else None,
    )


def _pairs(folder: AnyPath) -> Iterator[Clip]:
    """Sounds with a text of the same name beside them, below txt/ as in VCTK, or in a list of their folder as in LibriSpeech; the
    folder's name is the voice."""
    listed: dict[str, str] = {}
    for root, _, names in walked(folder):
        for name in names:
            if name.endswith(".trans.txt"):
                listed |= table_of(path_of(root) / name)
    for row, sound in enumerate(_sounds_in(folder), 1):
        inner = sound.relative_to(folder)  # type: ignore[arg-type]  # both are of one kind
        beside = [sound.with_suffix(".txt"), sound.with_suffix(".lab"), sound.with_suffix(".normalized.txt")]
        stem = inner.stem.removesuffix("_mic1").removesuffix("_mic2")
        beside += [folder / "txt" / "/".join(inner.parts[1:-1]) / f"{stem}.txt", folder / "txt" / f"{stem}.txt"]
        text = next((text_of(path, MOST_TEXT).strip() for path in beside if lies_there(path)), None)
        yield Clip(row, str(sound), listed.get(sound.stem) if text is None else text, inner.parent.name)


def _sounds_in(folder: AnyPath) -> Iterator[AnyPath]:
    """Every sound file below a folder, one folder after the other."""
    for root, below, names in walked(folder):
        below.sort()
        yield from (path_of(root) / name for name in sorted(names) if name.lower().endswith(SOUNDS))


def sounds_below(folder: AnyPath) -> Iterator[str]:
    """Every sound file below a folder."""
    return map(normal, _sounds_in(folder))
