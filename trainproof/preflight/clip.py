"""One clip of a speech pack, and the sound file that a manifest means."""

from __future__ import annotations

from typing import NamedTuple

from trainproof.preflight.rows import Bad
from trainproof.preflight.stores import AnyPath, lies_there, normal, path_of

SOUNDS = (".wav", ".flac", ".ogg", ".mp3", ".opus", ".m4a", ".aiff", ".sph")
_FOLDERS = ("wavs", "wav", "clips", "audio", ".")


class Clip(NamedTuple):
    """One clip of a pack. audio: a path, or None where the manifest names none; `wrong` is what is wrong with its row.

    start: where it begins in a recording of several clips, whose `seconds` it lasts; None for a file of its own.
    """

    row: int
    audio: str | None
    text: str | None
    speaker: str = ""
    seconds: float | None = None
    data: bytes | None = None
    wrong: Bad | None = None
    start: float | None = None


def sound_named(base: AnyPath, name: str) -> str:
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


def table_of(path: AnyPath) -> dict[str, str]:
    """Lines of a name and what belongs to it, as Kaldi and LibriSpeech write them."""
    if not path.is_file():
        return {}
    lines = (line.split(maxsplit=1) for line in path.read_text("utf-8", "replace").split("\n") if line.strip())
    return {cells[0]: cells[1].strip() if len(cells) > 1 else "" for cells in lines}
