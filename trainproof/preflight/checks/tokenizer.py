"""What a tokenizer loses of the texts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trainproof.preflight.checks.registry import FAIL, INFO, WARN, check
from trainproof.preflight.encoding import Encoded, Tokenized
from trainproof.preflight.found import MOST_EXAMPLES, MOST_EXCERPT, seen
from trainproof.preflight.tokens import spelled
from trainproof.rules.registry import CannotTell, Sighting
from trainproof.thresholds import TokenizerThresholds
from trainproof.verdict import Evidence


def texts_of(found: Tokenized) -> list[Encoded]:
    """The texts. Raises CannotTell when there are none."""
    if not found.texts:
        raise CannotTell("no texts; name a file of them")
    return found.texts


def points_of(
    texts: list[Encoded], metric: str, values: list[float], excerpts: list[str] | None = None
) -> list[Evidence]:
    """The first of the texts as evidence, each with its value."""
    said = excerpts or [text.text for text in texts]
    return [
        Evidence(metric, text.row, value, text.row, text.file, excerpt[:MOST_EXCERPT])
        for text, value, excerpt in list(zip(texts, values, said, strict=True))[:MOST_EXAMPLES]
    ]


@check(
    "TPT101",
    "unknown-tokens",
    FAIL,
    fix="Train the tokenizer on such texts, add the characters, or normalise them away.",
)
def unknown_tokens(found: Tokenized, t: TokenizerThresholds) -> Iterator[Sighting]:
    """Texts have characters that become the unknown token.

    Numbers are compared, not pieces: SentencePiece gives back the text itself for what it does not know.

    Why it matters
    What is unknown is lost: the model can neither read nor write it.

    False positives
    Emoji and other signs that are not meant to be learned; FAIL from a share of the tokens on.
    """
    unknown = found.tokenizer.unknown
    if unknown is None:
        raise CannotTell("the tokenizer has no unknown token")
    every = texts_of(found)
    counts = found.counts(found.ids == unknown)
    having = np.flatnonzero(counts)
    if len(having):
        share = int(counts.sum()) / len(found.ids)
        first = [every[i] for i in having[:MOST_EXAMPLES]]
        which = [_unknown_in(found, text.text, unknown) for text in first]
        said = [f"{characters or 'whole words'} in {text.text}" for characters, text in zip(which, first, strict=True)]
        severity = FAIL if share > t.unknown_fail else WARN
        message = f"{len(having):,} of {len(every):,} texts have unknown tokens ({share:.3%} of all tokens)"
        points = points_of(first, "unknown", counts[having[:MOST_EXAMPLES]].astype(float).tolist(), said)
        yield seen(severity, message, points, unknown_fail=t.unknown_fail)


def _unknown_in(found: Tokenized, text: str, unknown: int) -> str:
    return " ".join(
        f"U+{ord(c):04X}" for c in sorted(set(text)) if not c.isspace() and unknown in found.tokenizer.encode(c)
    )


@check("TPT102", "byte-fallback", WARN, fix="Train the tokenizer on such texts, or expect long sequences for them.")
def byte_fallback(found: Tokenized, t: TokenizerThresholds) -> Iterator[Sighting]:
    """Many tokens are single bytes that stand for a part of a character.

    Why it matters
    A character costs two to four tokens that are hardly trained.

    False positives
    A few emoji: WARN from a share on, silent below it.
    """
    texts = texts_of(found)
    single = found.tokenizer.byte_tokens()
    if not single:
        return
    counts = found.counts(np.isin(found.ids, list(single)))
    total = int(counts.sum()) / max(1, len(found.ids))
    if total > t.bytes_warn:
        shares = counts / np.maximum(1, [text.tokens for text in texts])
        worst = np.argsort(-shares, kind="stable")[:MOST_EXAMPLES]
        points = points_of([texts[i] for i in worst], "share", shares[worst].tolist())
        yield seen(WARN, f"{total:.2%} of the tokens are bytes", points, bytes_warn=t.bytes_warn)


def _lost(found: Tokenized, loss: str) -> list[Encoded]:
    texts = texts_of(found)
    if all(text.loss != loss for text in texts):
        return []
    unknown = found.counts(found.ids == found.tokenizer.unknown) if found.tokenizer.unknown is not None else None
    return [text for i, text in enumerate(texts) if text.loss == loss and (unknown is None or not unknown[i])]


@check("TPT104", "no-round-trip", FAIL, fix="Use the normaliser and decoder that the model was trained with.")
def no_round_trip(found: Tokenized, t: TokenizerThresholds) -> Iterator[Sighting]:
    """A text does not come back from its tokens, and neither case, accents, spaces nor Unicode forms explain it.

    Texts with unknown tokens are told by TPT101 and not counted here.

    Why it matters
    The model cannot write what it is trained to write.

    False positives
    Tokenizers that drop characters on purpose; FAIL from a share of the texts on.
    """
    texts = _lost(found, "other")
    if texts:
        share = len(texts) / len(found.texts)
        first, tokenizer = texts[:MOST_EXAMPLES], found.tokenizer
        again = [tokenizer.decode(tokenizer.encode(spelled(text.text)))[:45] for text in first]
        said = [f"{text.text[:45]} -> {back}" for text, back in zip(first, again, strict=True)]
        points = points_of(first, "tokens", [float(text.tokens) for text in first], said)
        message = f"{len(texts):,} of {len(found.texts):,} texts do not come back from their tokens"
        yield seen(FAIL if share > t.round_trip_fail else WARN, message, points, round_trip_fail=t.round_trip_fail)


def _gone(found: Tokenized, loss: str, what: str, share: float, meant: bool = False) -> Iterator[Sighting]:
    texts = _lost(found, loss)
    if len(texts) > share * len(found.texts):
        yield seen(
            INFO if meant else WARN,
            f"{len(texts):,} of {len(found.texts):,} texts come back without their {what}",
            points_of(texts, "tokens", [float(text.tokens) for text in texts]),
        )


@check("TPT105", "case-lost", WARN, fix="Use a cased tokenizer, or lower the texts and know it.")
def case_lost(found: Tokenized, t: TokenizerThresholds) -> Iterator[Sighting]:
    """Texts come back in another case.

    Why it matters
    The model cannot write capitals, nor tell names from words.

    False positives
    Models that are meant to be uncased: where do_lower_case says so it is INFO.
    """
    yield from _gone(found, "case", "case", 0, found.tokenizer.settings.get("do_lower_case") is True)


@check("TPT106", "accents-lost", WARN, fix="Use a normaliser that keeps accents.")
def accents_lost(found: Tokenized, t: TokenizerThresholds) -> Iterator[Sighting]:
    """Texts come back without their accents.

    Why it matters
    In most languages these are other letters, and other sounds.

    False positives
    Models that are meant to be without: where do_lower_case says so, which takes accents too, it is INFO.
    """
    yield from _gone(found, "accents", "accents", 0, found.tokenizer.settings.get("do_lower_case") is True)


@check("TPT107", "spaces-lost", WARN, fix="Use a tokenizer that keeps white space, if the data is code or poetry.")
def spaces_lost(found: Tokenized, t: TokenizerThresholds) -> Iterator[Sighting]:
    """Texts come back with other white space: line breaks, tabs or runs of spaces are gone, or words are joined.

    Why it matters
    Code and tables lose their meaning.

    False positives
    Prose with double spaces; told when it concerns more than a share of the texts.
    """
    yield from _gone(found, "spaces", "white space", t.spaces_share)
