"""What a tokenizer makes of texts."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainproof.preflight.audio import seconds_of
from trainproof.preflight.characters import SCRIPTS, scripts_of
from trainproof.preflight.clips import clips_of
from trainproof.preflight.embedding import Embedding, embedding_of
from trainproof.preflight.found import DataFile, Options
from trainproof.preflight.inputs import plan_of
from trainproof.preflight.rows import rows_of
from trainproof.preflight.templates import Rendering, rendering_of
from trainproof.preflight.tokens import NOT_ALONE, Tokenizer, declared, read_tokenizer, spelled
from trainproof.preflight.turns import FIELDS, layout_of, sample_of

#: texts that are encoded; more tell nothing new
MOST_TEXTS = 50_000
#: texts that are encoded together
AT_ONCE = 64

#: (file, row, text, seconds of sound)
Named = tuple[str, int, str, float | None]


class Encoded(NamedTuple):
    """One text: its place, and what became of it. `loss` says how it comes back: "", case, accents, forms, spaces or other."""

    file: str
    row: int
    text: str
    tokens: int
    loss: str
    script: str  # of most of its letters
    seconds: float | None = None  # of the sound beside it


class Tokenized(NamedTuple):
    """What the checks look at. ids: the tokens of all texts, one text after the other."""

    tokenizer: Tokenizer
    texts: list[Encoded]
    ids: NDArray[np.int64]
    rendering: Rendering | None
    base: Tokenizer | None
    embedding: Embedding | None = None

    def counts(self, these: NDArray[np.bool_]) -> NDArray[np.int64]:
        """How many of these tokens each text has."""
        text = np.repeat(np.arange(len(self.texts)), [text.tokens for text in self.texts])
        return np.bincount(text[these], minlength=len(self.texts))


def tokenized(model: str, paths: Sequence[str], base: str | None) -> Tokenized:
    """Read the tokenizers, encode the texts, render the probe. Raises InputError."""
    tokenizer = read_tokenizer(model)
    named_texts = islice(_texts(paths), MOST_TEXTS)
    texts: list[Encoded] = []
    every = [np.zeros(0, np.int64)]
    while some := list(islice(named_texts, AT_ONCE)):
        ids = tokenizer.encode_all([spelled(text) for _, _, text, _ in some])
        if not texts and not _only_joins(tokenizer, ids):
            tokenizer = tokenizer._replace(joined=None)
        texts += _encoded(tokenizer, some, ids)
        every.append(np.fromiter(chain.from_iterable(ids), np.int64))
    template = tokenizer.template
    named = {f"{name}_token": piece for name, piece in declared(tokenizer.settings).items()}
    rendering = None if template is None else rendering_of(template, named)
    embedding = embedding_of(Path(model)) if Path(model).is_dir() else None
    other = read_tokenizer(base) if base else None
    return Tokenized(tokenizer, texts, np.concatenate(every), rendering, other, embedding)


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


def _only_joins(tokenizer: Tokenizer, ids: list[list[int]]) -> bool:
    """Whether the library's decoding of the first texts is what `joined` says."""
    if tokenizer.joined is None:
        return False
    mine = [_together(tokenizer.joined, one) for one in ids]
    theirs = tokenizer.decode_all(ids)
    return all(NOT_ALONE in one or one.strip() == other.strip() for one, other in zip(mine, theirs, strict=True))


def _encoded(tokenizer: Tokenizer, named: list[Named], ids: list[list[int]]) -> Iterator[Encoded]:
    scripts = scripts_of([text for _, _, text, _ in named])
    losses = _losses(tokenizer, named, ids)
    for (file, row, text, seconds), mine, loss, script in zip(named, ids, losses, scripts, strict=True):
        yield Encoded(file, row, text, len(mine), loss, SCRIPTS[script], seconds)


def _losses(tokenizer: Tokenizer, named: list[Named], ids: list[list[int]]) -> list[str]:
    """How each text comes back. The library decodes those that joining their tokens does not give back as they were."""
    texts = [spelled(text) for _, _, text, _ in named]
    if tokenizer.lowers:
        texts = list(map(str.lower, texts))
    left = [i for i, text in enumerate(texts) if text.strip()]
    if tokenizer.joined is not None:
        joined = tokenizer.joined
        left = [i for i in left if _together(joined, ids[i]).strip() != texts[i].strip()]
    losses = [""] * len(texts)
    for i, again in zip(left, tokenizer.decode_all([ids[i] for i in left]), strict=True):
        losses[i] = _loss(texts[i], again)
    return losses


def _together(joined: list[str], ids: list[int]) -> str:
    return "".join(itemgetter(*ids)(joined)) if ids else ""


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
