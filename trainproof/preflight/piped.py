"""Manifests with | between their columns: LJSpeech, CSS10, Piper, Coqui, VITS, StyleTTS 2, GPT-SoVITS."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainproof.preflight.clip import SOUNDS, Clip, sound_named, text_of
from trainproof.preflight.rows import Bad
from trainproof.preflight.stores import AnyPath, lies_there, path_of

#: names of manifests, whose sounds may all be missing
_NAMES = ("metadata", "transcript", "train", "val")
#: characters of a voice or language at most
_SHORT = 40


def is_piped(path: str, headers: Sequence[str]) -> bool:
    """Whether a file is such a manifest: its first column names sounds. Tables of Markdown and texts about pipes are none."""
    with path_of(path).open("rb") as raw:
        lines = [line.decode("utf-8", "replace") for line in raw.read(4096).split(b"\n")[:4] if line.strip()]
    if not lines or not all("|" in line[1:] and not line.startswith("|") for line in lines):
        return False
    names = [line.split("|")[0].strip() for line in lines]
    if names[0].lstrip("\ufeff") in headers or all(name.lower().endswith(SOUNDS) for name in names):
        return True
    if any(" " in name for name in names):
        return False
    base = path_of(path).parent
    return path_of(path).name.lower().startswith(_NAMES) or any(
        lies_there(path_of(sound_named(base, n))) for n in names
    )


def clips_in(path: AnyPath, headers: Sequence[str]) -> Iterator[tuple[int, dict[str, str]] | Clip]:
    """Each row as a clip, or as its fields where the first row has names, one of `headers` among them."""
    lines = text_of(path).split("\n")
    names = lines[0].rstrip("\r").split("|")
    headed = any(name in headers for name in names)
    rows = [line.rstrip("\r").split("|") for line in lines]
    counts = [len(cells) for cells in rows if cells != [""]]
    columns = max(set(counts), key=counts.count) if counts else 0
    speaker, texts = (None, []) if headed else _roles([cells for cells in rows if len(cells) == columns], columns)
    for row, cells in enumerate(rows, 1):
        if cells == [""] or (headed and row == 1):
            continue
        if len(cells) != columns:
            why = f"{len(cells)} columns instead of {columns}: {'|'.join(cells)[:60]}"
            yield Clip(row, None, None, wrong=Bad("TPD003", why))
        elif headed:
            yield row, dict(zip(names, cells, strict=False))
        else:
            text = next((cells[i] for i in texts if cells[i]), "")
            yield Clip(row, sound_named(path.parent, cells[0]), text, cells[speaker] if speaker else "")


def _roles(rows: list[list[str]], columns: int) -> tuple[int | None, list[int]]:
    """(the column of the voice, those of the text, the one that counts first): numbers that differ are neither."""
    if columns < 3:
        return None, list(range(1, columns))
    values = [[cells[i] for cells in rows] for i in range(columns)]
    labels = [i for i in range(1, columns) if _are_labels(values[i])]
    texts = [i for i in range(1, columns) if i not in labels and not all(map(_is_number, values[i]))]
    return (labels[0] if labels else None), texts[::-1] or [columns - 1]


def _are_labels(values: list[str]) -> bool:
    """Whether they are few and short: voices or languages, no texts."""
    return len(set(values)) <= max(1, len(values) // 3) and all(len(value) <= _SHORT for value in values)


def _is_number(value: str) -> bool:
    return value.strip().replace(".", "", 1).isdigit()
