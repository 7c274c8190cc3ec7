"""Special tokens of a tokenizer, its embedding, and the tokenizer of the base model."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trainproof.preflight.checks.registry import FAIL, INFO, WARN, check
from trainproof.preflight.encoding import Tokenized
from trainproof.preflight.found import seen
from trainproof.preflight.templates import markers_of
from trainproof.rules.registry import CannotTell, Sighting
from trainproof.thresholds import TokenizerThresholds


@check("TPT111", "no-end-token", FAIL, fix="Declare eos_token.")
def no_end_token(found: Tokenized, t: TokenizerThresholds) -> Iterator[Sighting]:
    """No end token is declared.

    A tokenizer.json by itself declares none: name the folder with its tokenizer_config.json.

    Why it matters
    A model that never sees an end never ends.

    False positives
    Tokenizers for speech recognition by CTC. Those of encoders, which have a mask token, are told as INFO.
    """
    if not found.tokenizer.settings and found.tokenizer.kind != "SentencePiece":
        raise CannotTell("no tokenizer_config.json; name the folder")
    if "eos" not in found.tokenizer.special:
        encoder = bool(found.tokenizer.settings.get("mask_token")) or "[MASK]" in found.tokenizer.vocabulary.values()
        yield seen(INFO if encoder else FAIL, "no end token is declared", ())


@check("TPT112", "no-padding-token", INFO, fix="Declare a padding token of its own before training in batches.")
def no_padding_token(found: Tokenized, t: TokenizerThresholds) -> Iterator[Sighting]:
    """No padding token is declared.

    Why it matters
    Trainers take the end token for it, and mask every end with the padding.

    False positives
    Packed training needs none: hence INFO.
    """
    if found.tokenizer.settings and "pad" not in found.tokenizer.special:
        yield seen(INFO, "no padding token is declared", ())


def _same(found: Tokenized, one: str, other: str) -> bool:
    special = found.tokenizer.special
    return one in special and special[one] >= 0 and special[one] == special.get(other)


@check(
    "TPT113",
    "padding-is-end",
    WARN,
    fix="Add a padding token, or mask padding by the attention mask and not by its number.",
)
def padding_is_end(found: Tokenized, t: TokenizerThresholds) -> Iterator[Sighting]:
    """The padding token is the end token.

    Why it matters
    Collators that mask labels by the number of the padding mask every end: the model never learns to end.

    False positives
    Collators that mask by position.
    """
    if _same(found, "pad", "eos"):
        yield seen(WARN, f"padding and end are both token {found.tokenizer.special['pad']}", ())


@check("TPT114", "padding-is-unknown", WARN, fix="Add a padding token.")
def padding_is_unknown(found: Tokenized, t: TokenizerThresholds) -> Iterator[Sighting]:
    """The padding token is the unknown token.

    Why it matters
    What is unknown in a text is masked with the padding, without a word.

    False positives
    Tokenizers that know every byte never use it.
    """
    if _same(found, "pad", "unk"):
        yield seen(WARN, f"padding and unknown are both token {found.tokenizer.special['pad']}", ())


@check("TPT115", "beyond-embedding", FAIL, fix="Resize the embedding to the tokenizer.")
def beyond_embedding(found: Tokenized, t: TokenizerThresholds) -> Iterator[Sighting]:
    """A token has a number that the embedding does not reach: that of a safetensors file in the folder, or vocab_size of config.json.

    Why it matters
    On a GPU it is an assertion far from its cause.

    False positives
    A config.json of before the embedding was resized.
    """
    rows = found.tokenizer.rows if found.embedding is None else len(found.embedding.size)
    if rows is None:
        raise CannotTell("no config.json with vocab_size, no safetensors file with the embedding; name the folder")
    over = sorted(number for number in found.tokenizer.vocabulary if number >= rows)
    if over:
        names = ", ".join(f"{found.tokenizer.vocabulary[i][:30]} ({i})" for i in over[:5])
        yield seen(FAIL, f"{len(over):,} tokens are beyond the {rows:,} rows of the embedding: {names}", ())


@check("TPT116", "special-token-missing", FAIL, fix="Add the token to the vocabulary, or declare one that is there.")
def special_token_missing(found: Tokenized, t: TokenizerThresholds) -> Iterator[Sighting]:
    """A declared special token is not in the vocabulary.

    Why it matters
    It is added on loading with a number that has no trained row, or split into pieces.

    False positives
    None known.
    """
    for name, number in sorted(found.tokenizer.special.items()):
        if number < 0:
            yield seen(FAIL, f"the {name} token is declared, and is not in the vocabulary", ())


@check(
    "TPT117",
    "untrained-token",
    WARN,
    fix="Train the embedding too, copy the row of a token that means the same, or use the template of the base model.",
)
def untrained_token(found: Tokenized, t: TokenizerThresholds) -> Iterator[Sighting]:
    """The embedding's row of a marker that the chat template writes, or of the end token, was never trained.

    It is zero or nearly, or equal to the row of another token.

    Why it matters
    Adapters leave the embedding as it is: the model cannot tell one such marker from another.

    False positives
    Runs that train the whole embedding.
    """
    if found.embedding is None:
        raise CannotTell("no safetensors file with the embedding; name the folder")
    written = markers_of(found.rendering.whole) if found.rendering else []
    numbers = {piece: number for number, piece in found.tokenizer.vocabulary.items()}
    used = {numbers[marker] for marker in written if marker in numbers} | {found.tokenizer.special.get("eos", -1)}
    size, mark = found.embedding
    _, inverse, counts = np.unique(mark, return_inverse=True, return_counts=True)
    bad = (size < t.untrained_size * np.median(size)) | (counts[inverse] > 1)
    names = [f"{found.tokenizer.vocabulary[i][:30]} ({i})" for i in sorted(used) if 0 <= i < len(bad) and bad[i]]
    if names:
        message = f"{len(names)} of the tokens that end or mark turns have no row of their own: {', '.join(names[:6])}"
        yield seen(WARN, message, (), untrained_size=t.untrained_size)


@check(
    "TPT131", "other-than-base", FAIL, fix="Fine-tune with the tokenizer of the base model; add tokens only at its end."
)
def other_than_base(found: Tokenized, t: TokenizerThresholds) -> Iterator[Sighting]:
    """A token has another number than in the tokenizer of the base model.

    Why it matters
    Every such row of the embedding means something else than what it was trained for.

    False positives
    Training from scratch.
    """
    if found.base is None:
        raise CannotTell("give --base")
    mine, base = found.tokenizer.vocabulary, found.base.vocabulary
    other = sorted(number for number, piece in base.items() if mine.get(number) != piece)
    if other:
        names = ", ".join(f"{i}: {base[i][:20]!r} -> {mine.get(i, '(none)')[:20]!r}" for i in other[:4])
        yield seen(FAIL, f"{len(other):,} of {len(base):,} tokens of the base are others: {names}", ())
    new = len(set(mine) - set(base))
    if new:
        yield seen(INFO, f"{new:,} tokens are new: their rows are untrained", ())
