"""What a tokenizer makes of texts."""

from __future__ import annotations

import unicodedata
from array import array
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from trainproof.preflight.audio import seconds_of
from trainproof.preflight.clips import clips_of
from trainproof.preflight.embedding import Embedding, embedding_of
from trainproof.preflight.found import DataFile, Options
from trainproof.preflight.inputs import plan_of
from trainproof.preflight.rows import rows_of
from trainproof.preflight.templates import Rendering, rendering_of
from trainproof.preflight.tokens import Tokenizer, declared, read_tokenizer, spelled
from trainproof.preflight.turns import FIELDS, layout_of, sample_of

#: texts that are encoded; more tell nothing new
MOST_TEXTS = 50_000
#: texts that are encoded together
AT_ONCE = 64

#: (file, row, text, seconds of sound)
Named = tuple[str, int, str, float | None]


class Encoded(NamedTuple):
    """One text: its place, and what became of it. `loss` says how it comes back: "", case, accents, spaces or other."""

    file: str
    row: int
    text: str
    ids: Sequence[int]
    loss: str
    seconds: float | None = None  # of the sound beside it


class Tokenized(NamedTuple):
    """What the checks look at."""

    tokenizer: Tokenizer
    texts: list[Encoded]
    rendering: Rendering | None
    base: Tokenizer | None
    embedding: Embedding | None = None


def tokenized(model: str, paths: Sequence[str], base: str | None) -> Tokenized:
    """Read the tokenizers, encode the texts, render the probe. Raises InputError."""
    tokenizer = read_tokenizer(model)
    named_texts = islice(_texts(paths), MOST_TEXTS)
    texts: list[Encoded] = []
    while some := list(islice(named_texts, AT_ONCE)):
        texts += _encoded(tokenizer, some)
    template = tokenizer.template
    named = {f"{name}_token": piece for name, piece in declared(tokenizer.settings).items()}
    rendering = None if template is None else rendering_of(template, named)
    embedding = embedding_of(Path(model)) if Path(model).is_dir() else None
    return Tokenized(tokenizer, texts, rendering, read_tokenizer(base) if base else None, embedding)


def _texts(paths: Sequence[str]) -> Iterator[Named]:
    """The texts of data, transcripts of speech packs too."""
    if not paths:
        return
    plan = plan_of(paths, [], None, Options())
    for piece in plan.pieces:
        file: DataFile = plan.files[piece.file]
        if plan.kind == "speech":
            for clip in clips_of(file.path, plan.formats[piece.file])[piece.start : piece.stop]:
                yield file.path, clip.row, clip.text or "", clip.seconds or seconds_of(clip.audio)
            continue
        for row, record, _ in rows_of(file.path, plan.formats[piece.file], piece):
            if isinstance(record, str):
                yield file.path, row, record, None
            elif isinstance(record, dict):
                layout = layout_of(frozenset(record)) or (FIELDS, ())
                yield from ((file.path, row, turn.text, None) for turn in sample_of(record, *layout).turns)


def _encoded(tokenizer: Tokenizer, named: list[Named]) -> Iterator[Encoded]:
    texts = [spelled(text) for _, _, text, _ in named]
    ids = tokenizer.encode_all(texts)
    again = tokenizer.decode_all(ids)
    for (file, row, _, seconds), text, mine, back in zip(named, texts, ids, again, strict=True):
        loss = _loss(text.lower() if tokenizer.lowers else text, back) if text.strip() else ""
        yield Encoded(file, row, text, array("i", mine), loss, seconds)  # a number of a list takes eight times as much


def _loss(text: str, again: str) -> str:
    """What the way through the tokenizer costs the text."""
    if text == again or text.strip() == again.strip():
        return ""
    if text.split() == again.split():
        return "spaces"
    mine, theirs = "".join(text.split()), "".join(again.split())
    if mine == theirs:
        return "spaces"
    if mine.casefold() == theirs.casefold():
        return "case"
    if unicodedata.normalize("NFKC", mine) == unicodedata.normalize("NFKC", theirs):
        return "forms"
    return "accents" if _bare(mine) == _bare(theirs) else "other"


def _bare(text: str) -> str:
    return "".join(c for c in unicodedata.normalize("NFKD", text.casefold()) if not unicodedata.combining(c))
