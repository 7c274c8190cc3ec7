"""One clip of a speech pack, and the sound file that a manifest means."""

from __future__ import annotations

from typing import NamedTuple

from trainproof.errors import InputError
from trainproof.preflight.rows import Bad
from trainproof.preflight.stores import AnyPath, lies_there, normal, path_of, version_of
from trainproof.readers.source import MOST_DOCUMENT_BYTES

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
    name = name.replace("\0", "\\0")  # no file can be called so
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


def text_of(path: AnyPath, most: int = MOST_DOCUMENT_BYTES) -> str:
    """A list or a text. Raises InputError for what is larger than `most` bytes."""
    if version_of(str(path))[0] > most:
        raise InputError(f"{path}: more than {most >> 20} MiB, expected a list of clips or the text of one")
    return path.read_bytes().decode("utf-8-sig", "replace")


def table_of(path: AnyPath) -> dict[str, str]:
    """Lines of a name and what belongs to it, as Kaldi and LibriSpeech write them."""
    if not path.is_file():
        return {}
    lines = (line.split(maxsplit=1) for line in text_of(path).split("\n") if line.strip())
    return {cells[0]: cells[1].strip() if len(cells) > 1 else "" for cells in lines}
