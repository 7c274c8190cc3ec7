"""What the user named, as data files; the kind of data by content; and the plan that every worker follows."""

from __future__ import annotations

import glob
import os
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from xxhash import xxh3_64_intdigest

from trainproof.errors import InputError, UsageError
from trainproof.preflight.clip import SOUNDS
from trainproof.preflight.clips import FOLDERS, clips_of, manifest_kind, sounds_below
from trainproof.preflight.found import DataFile, Options
from trainproof.preflight.loose import strings_of
from trainproof.preflight.rows import PACKED_ENDINGS, RECORD_ENDINGS, Piece, format_of, pieces_of, rows_of
from trainproof.preflight.stores import Stored, path_of, walked
from trainproof.preflight.turns import FIELDS, KINDS, layout_of

#: what a file or folder of the evaluation side is called
HELD_OUT = ("valid", "validation", "val", "dev", "test", "eval", "heldout")
#: files of a dataset's folder that hold no records
_BESIDE = ("dataset_info.json", "state.json", "dataset_dict.json", "dataset_infos.json", "config.json")
#: clips that one worker looks at at once
CLIPS = 200
MANIFESTS = (".csv", ".tsv", ".txt", ".list", ".jsonl", ".json", ".parquet", ".arrow")
#: folders below a pack's folder in which manifests are looked for, one in another
MOST_DEPTH = 3
#: more texts in one folder are those of clips
MOST_TEXTS = 32
#: records that are looked at to tell the kind
PROBED = 64
#: the field of records that were tokenised before
_IDS = "input_ids"


class Plan(NamedTuple):
    """What there is to do: the same on every machine that is given the same arguments."""

    kind: str
    layout: str | None
    files: tuple[DataFile, ...]
    formats: tuple[str, ...]
    pieces: tuple[Piece, ...]
    options: Options
    problems: tuple[tuple[int, str], ...] = ()
    unreferenced: tuple[str, ...] = ()  # sounds of a speech pack that no manifest names, as rows of the last file
    guarded: bool = False  # decoders that may crash are at work: never in this process


def without_pieces(plan: Plan) -> Plan:
    """What the result of a piece depends on, and not more."""
    return plan._replace(pieces=(), problems=(), unreferenced=())


def plan_of(paths: Sequence[str], held_out: Sequence[str], kind: str | None, options: Options) -> Plan:
    """Raises InputError when nothing can be read, and UsageError for a kind that the data cannot be."""
    if kind in (None, "speech"):
        speech = _speech_plan(paths, held_out, options)
        if speech is not None:
            return speech
        if kind == "speech":
            raise UsageError(
                f"--kind speech: {paths[0]} is no speech pack; expected a manifest with audio, or a folder of sounds"
            )
    files = [file for path in paths for file in files_of(path)] + [
        DataFile(file.path, True) for path in held_out for file in files_of(path)
    ]
    if len({os.path.realpath(file.path) for file in files}) < len(files):
        raise UsageError("a file of data is named twice; name each once, on one side")
    formats: list[str] = []
    problems: list[tuple[int, str]] = []
    pieces: list[Piece] = []
    for i, file in enumerate(files):
        try:
            formats.append(format_of(file.path))
            pieces += pieces_of(i, file.path, formats[-1])
        except InputError as error:
            formats.append("")
            problems.append((i, str(error)))
    if not pieces:
        raise InputError(problems[0][1] if problems else f"{paths[0]}: no data files")
    found_kind, layout = _probe(files, formats, pieces)
    if layout == FIELDS and kind not in (None, "text"):
        layout = None  # its records are to have roles or sides
    return Plan(kind or found_kind, layout, tuple(files), tuple(formats), tuple(pieces), options, tuple(problems))


def _speech_plan(paths: Sequence[str], held_out: Sequence[str], options: Options) -> Plan | None:
    """The plan for speech packs; None when a path is none."""
    sources: list[tuple[DataFile, str]] = []
    for side, group in ((False, paths), (True, held_out)):
        for path in group:
            found = list(_speech_sources(path))
            if not found:
                return None
            sources += [
                (DataFile(name, _side(name, path, side), kind if kind in FOLDERS else ""), kind) for name, kind in found
            ]
    files = [file for file, _ in sources]
    pieces: list[Piece] = []
    named = array("Q")
    sound = True
    for i, (file, kind) in enumerate(sources):
        clips = clips_of(file.path, kind)
        for clip in clips:
            if clip.audio:
                named.append(_number(clip.audio))
            is_wave = (clip.audio or ".wav").lower().endswith(".wav")
            sound = sound and is_wave and clip.data is None and clip.start is None
        pieces += [Piece(i, at, min(at + CLIPS, len(clips))) for at in range(0, len(clips), CLIPS)]
    known = array("Q", np.unique(named).tobytes())
    extra: list[str] = []
    for path in paths:
        if path_of(path).is_dir():
            extra += sorted(name for name in sounds_below(path_of(path)) if not _is_among(_number(name), known))
    extra = _unnamed(
        extra, {str(path_of(file.path).parent) for file in files if not file.layout}, {file.path for file in files}
    )
    if extra:
        files.append(DataFile(paths[0]))
    kinds = tuple(kind for _, kind in sources)
    return Plan("speech", None, tuple(files), kinds, tuple(pieces), options, (), tuple(extra), not sound)


def _number(path: str) -> int:
    """A number for a file: names of 10 million would take gigabytes."""
    return xxh3_64_intdigest(os.fsencode(os.path.realpath(path)))


def _is_among(number: int, known: array[int]) -> bool:
    at = bisect_left(known, number)
    return at < len(known) and known[at] == number


def _side(name: str, path: str, held_out: bool) -> bool:
    return held_out or (name != path and is_held_out(os.path.relpath(name, path)))


def _speech_sources(path: str) -> list[tuple[str, str]]:
    """(manifest or folder, its layout). Manifests of a folder lie in it, or in folders below it, as those of splits do."""
    folder = path_of(path)
    if not folder.is_dir():
        kind = manifest_kind(path) if folder.is_file() else None
        return [(path, kind)] if kind else []
    own = manifest_kind(path)
    if own == "kaldi":
        return [(path, own)]
    found = _manifests_in(path, [p.name for p in folder.iterdir() if p.is_file()])
    if not found:
        for root, below, names in walked(folder):
            below[:] = sorted(name for name in below if not name.startswith("."))
            if len(path_of(root).relative_to(folder).parts) >= MOST_DEPTH:  # type: ignore[arg-type]  # both are of one kind
                below.clear()
            if {"wav.scp", "text"} <= set(names):
                found.append((root, "kaldi"))
            elif root != path:
                found += _manifests_in(root, names)
    return found or ([(path, own)] if own else [])


def _manifests_in(folder: str, names: list[str]) -> list[tuple[str, str]]:
    """The manifests among the files of a folder; texts of single sounds are none."""
    stems = {path_of(name).stem for name in names if name.lower().endswith(SOUNDS)}
    lists = sorted(name for name in names if name.endswith(MANIFESTS) and path_of(name).stem not in stems)
    if sum(name.endswith(".txt") for name in lists) > MOST_TEXTS:
        lists = [name for name in lists if not name.endswith(".txt")]
    if any(path_of(name).stem == "train" for name in lists):  # as Common Voice: the other lists repeat these
        lists = [name for name in lists if path_of(name).stem in (*HELD_OUT, "train")]
    paths = (str(path_of(folder) / name) for name in lists)
    return [(path, kind) for path in paths if (kind := manifest_kind(path)) is not None]


def _unnamed(sounds: list[str], folders: set[str], read: set[str]) -> list[str]:
    """The sounds that are also in none of the lists that were not read, such as those of what Common Voice's voters refused."""
    wanted = {os.path.basename(name).encode() for name in sounds}
    for folder in folders if wanted else ():
        for path in path_of(folder).iterdir():
            if path.suffix == ".tsv" and str(path) not in read and path.is_file():
                with path.open("rb") as raw:
                    for line in raw:
                        wanted.difference_update(line.rstrip().split(b"\t"))
    return [name for name in sounds if os.path.basename(name).encode() in wanted]


def files_of(path: str) -> Iterator[DataFile]:
    """The data files that a path names. Raises InputError when there are none."""
    named = path_of(path)
    whole = named.is_dir()
    if whole:
        names = sorted(_below(path))
    elif glob.has_magic(path) and not os.path.lexists(path):
        names = named.glob() if isinstance(named, Stored) else sorted(glob.glob(path, recursive=True))
    else:
        names = [path]
    if not names:
        raise InputError(f"{path}: no data files; expected {', '.join(RECORD_ENDINGS)}, also packed")
    for name in names:
        yield DataFile(name, name != path and is_held_out(os.path.relpath(name, path) if whole else name))


def _below(folder: str) -> Iterator[str]:
    """Files of records below a folder; links to folders are not followed, so that no loop of them traps it."""
    for root, below, names in walked(path_of(folder)):
        below[:] = sorted(name for name in below if not name.startswith("."))
        for name in names:
            plain = name.lower()
            for packed in PACKED_ENDINGS:
                plain = plain.removesuffix(packed)
            if plain.endswith(RECORD_ENDINGS) and plain not in _BESIDE and not name.startswith("."):
                yield str(path_of(root) / name)


def is_held_out(path: str) -> bool:
    """Whether a name says that it is of the evaluation side: a part of it is one of HELD_OUT."""
    words = "".join(c if c.isalpha() else " " for c in path.lower()).split()
    return any(word in HELD_OUT for word in words)


def _probe(files: Sequence[DataFile], formats: Sequence[str], pieces: Sequence[Piece]) -> tuple[str, str | None]:
    """(kind, layout) that most of the first records have. Raises InputError for token ids without texts."""
    counts: dict[str, int] = {}
    for piece in pieces[:4]:
        try:
            for _, record, _ in islice(rows_of(files[piece.file].path, formats[piece.file], piece), PROBED):
                layout = _layout(record)
                counts[layout] = counts.get(layout, 0) + 1
        except InputError:
            continue
    layout = max(counts, key=counts.__getitem__, default="")
    if layout == _IDS:
        raise InputError(
            f"{files[0].path}: records of token ids without texts; give the texts, or a batch of the ids to `trainproof objective`"
        )
    return KINDS.get(layout, "text"), layout or None


def _layout(record: Any) -> str:
    """The layout of a record; nothing where there is no text in it."""
    if isinstance(record, str):
        return "text"
    if not isinstance(record, dict):
        return ""
    found = layout_of(frozenset(record))
    if found:
        return found[0]
    return FIELDS if strings_of(record) else _IDS if _IDS in record else ""
