"""Kaldi's data folders as clips: wav.scp, text, utt2spk, and segments where recordings have several clips."""

from __future__ import annotations

import math
import posixpath
import shlex
from collections.abc import Iterator

from trainproof.preflight.clip import SOUNDS, Clip, sound_named, table_of, text_of
from trainproof.preflight.rows import Bad
from trainproof.preflight.stores import AnyPath

#: programs that wav.scp has for sounds that they only decode or convert; none is run, their file is read
_DECODERS = ("sph2pipe", "flac", "sox", "ffmpeg", "cat", "mpg123", "opusdec", "lame", "wav-copy")


def is_kaldi(folder: AnyPath) -> bool:
    """Whether it is a data folder of Kaldi."""
    return (folder / "wav.scp").is_file() and (folder / "text").is_file()


def list_of(folder: AnyPath) -> AnyPath:
    """The file whose lines are the clips."""
    segments = folder / "segments"
    return segments if segments.is_file() else folder / "wav.scp"


def clips_in(folder: AnyPath) -> Iterator[Clip]:
    """The clips of a data folder; texts without a sound come last."""
    texts, speakers = table_of(folder / "text"), table_of(folder / "utt2spk")
    sounds = {name: _sound(folder, audio) for name, audio in table_of(folder / "wav.scp").items()}
    listed = list_of(folder)
    named: set[str] = set()
    row = 0
    for row, line in enumerate(text_of(listed).split("\n"), 1):
        if cells := line.split():
            named.add(cells[0])
            part = cells[1:4] if listed.name == "segments" else [cells[0]]
            yield _clip(row, cells[0], part, sounds)._replace(
                text=texts.get(cells[0]), speaker=speakers.get(cells[0], "")
            )
    for extra, name in enumerate((name for name in texts if name not in named), row):
        yield Clip(extra, None, None, wrong=Bad("TPD241", f"{name} has a text and no sound"))


def _clip(row: int, name: str, part: list[str], sounds: dict[str, str | None]) -> Clip:
    """part: the recording, and where the clip begins and ends in it."""
    if not part:
        return Clip(row, None, None, wrong=Bad("TPD003", f"{name} has no recording, beginning and end"))
    if part[0] not in sounds:
        return Clip(row, None, None, wrong=Bad("TPD241", f"{name} is of {part[0]}, which wav.scp does not have"))
    audio = sounds[part[0]]
    if audio is None:
        return Clip(row, None, None, wrong=Bad("TPD003", f"{name} has a command for its audio, which is not run"))
    if len(part) == 1:
        return Clip(row, audio, None)
    try:
        start, end = float(part[1]), float(part[2])
    except (ValueError, IndexError):
        start = end = math.nan
    if not 0 <= start < end < math.inf:
        return Clip(
            row, None, None, wrong=Bad("TPD003", f"{name} has no beginning before an end: {' '.join(part)[:60]}")
        )
    return Clip(row, audio, None, seconds=end - start, start=start)


def _sound(folder: AnyPath, audio: str) -> str | None:
    """The file of a line of wav.scp, also of a command that only decodes it; None for other commands, which are never run."""
    if not audio.endswith("|"):
        return sound_named(folder, audio) if audio else None
    try:
        words = shlex.split(audio.rstrip("|"))
    except ValueError:
        return None
    files = [word for word in words if word.lower().endswith(SOUNDS)]
    decodes = bool(words) and posixpath.basename(words[0]) in _DECODERS and not {"|", ";", "&&"} & set(words)
    return sound_named(folder, files[0]) if decodes and len(files) == 1 else None
