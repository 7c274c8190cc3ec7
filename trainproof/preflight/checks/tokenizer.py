"""A tokenizer, what it makes of the texts, its special tokens, and its chat template."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

import numpy as np

from trainproof.preflight.checks.registry import FAIL, INFO, WARN, check
from trainproof.preflight.encoding import PROBE, Encoded, Rendering, Tokenized
from trainproof.preflight.found import MOST_EXAMPLES, MOST_EXCERPT, seen
from trainproof.rules.registry import CannotTell, Sighting
from trainproof.thresholds import TokenizerThresholds
from trainproof.verdict import Evidence

_MARKERS = re.compile(r"<\|[^<>|\s]{1,40}\|>|<(?:start|end)_of_turn>|\[/?INST\]")


def _texts(found: Tokenized) -> list[Encoded]:
    if not found.texts:
        raise CannotTell("no texts; name a file of them")
    return found.texts


def _points(
    texts: list[Encoded], metric: str, values: list[float], excerpts: list[str] | None = None
) -> list[Evidence]:
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
    texts = [text for text in _texts(found) if unknown in text.ids]
    if texts:
        counts = [float(list(text.ids).count(unknown)) for text in texts]
        share = math.fsum(counts) / max(1, sum(len(text.ids) for text in found.texts))
        which = [_unknown_in(found, text.text, unknown) for text in texts[:MOST_EXAMPLES]]
        said = [f"{characters or 'whole words'} in {text.text}" for characters, text in zip(which, texts, strict=False)]
        severity = FAIL if share > t.unknown_fail else WARN
        message = f"{len(texts):,} of {len(found.texts):,} texts have unknown tokens ({share:.3%} of all tokens)"
        points = _points(texts[:MOST_EXAMPLES], "unknown", counts[:MOST_EXAMPLES], said)
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
    texts = _texts(found)
    shares = [sum(map(found.tokenizer.is_byte, text.ids)) / max(1, len(text.ids)) for text in texts]
    total = math.fsum(share * len(text.ids) for share, text in zip(shares, texts, strict=True)) / max(
        1, sum(len(x.ids) for x in texts)
    )
    if total > t.bytes_warn:
        worst = sorted(range(len(texts)), key=lambda i: (-shares[i], i))[:MOST_EXAMPLES]
        points = _points([texts[i] for i in worst], "share", [shares[i] for i in worst])
        yield seen(WARN, f"{total:.2%} of the tokens are bytes", points, bytes_warn=t.bytes_warn)


@check("TPT103", "token-blow-up", WARN, fix="Look at them: another script, another encoding, or noise.")
def token_blow_up(found: Tokenized, t: TokenizerThresholds) -> Iterator[Sighting]:
    """A text has many times as many tokens a character as the others.

    Why it matters
    It is as long as a page and says a line: cut off, and badly learned.

    False positives
    Numbers and code among prose.
    """
    texts = [text for text in _texts(found) if len(text.text) >= t.blow_characters]
    if len(texts) < t.blow_texts:
        raise CannotTell("too few texts")
    rates = np.array([len(text.ids) / len(text.text) for text in texts])
    limit = t.blow_times * float(np.median(rates))
    bad = np.flatnonzero(rates > limit)
    if len(bad):
        message = f"{len(bad):,} of {len(texts):,} texts have over {limit:.2f} tokens a character"
        yield seen(
            WARN,
            message,
            _points([texts[i] for i in bad], "tokens/character", [float(rates[i]) for i in bad]),
            blow_times=t.blow_times,
        )


def _lost(found: Tokenized, loss: str) -> list[Encoded]:
    unknown = found.tokenizer.unknown
    return [text for text in _texts(found) if text.loss == loss and unknown not in text.ids]


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
        again = [f"{text.text[:45]} -> {found.tokenizer.decode(text.ids)[:45]}" for text in texts[:MOST_EXAMPLES]]
        points = _points(
            texts[:MOST_EXAMPLES], "tokens", [float(len(text.ids)) for text in texts[:MOST_EXAMPLES]], again
        )
        message = f"{len(texts):,} of {len(found.texts):,} texts do not come back from their tokens"
        yield seen(FAIL if share > t.round_trip_fail else WARN, message, points, round_trip_fail=t.round_trip_fail)


def _gone(found: Tokenized, loss: str, what: str, share: float) -> Iterator[Sighting]:
    texts = _lost(found, loss)
    if len(texts) > share * len(found.texts):
        yield seen(
            WARN,
            f"{len(texts):,} of {len(found.texts):,} texts come back without their {what}",
            _points(texts, "tokens", [float(len(x.ids)) for x in texts]),
        )


@check("TPT105", "case-lost", WARN, fix="Use a cased tokenizer, or lower the texts and know it.")
def case_lost(found: Tokenized, t: TokenizerThresholds) -> Iterator[Sighting]:
    """Texts come back in another case.

    Why it matters
    The model cannot write capitals, nor tell names from words.

    False positives
    Models that are meant to be uncased.
    """
    yield from _gone(found, "case", "case", 0)


@check("TPT106", "accents-lost", WARN, fix="Use a normaliser that keeps accents.")
def accents_lost(found: Tokenized, t: TokenizerThresholds) -> Iterator[Sighting]:
    """Texts come back without their accents.

    Why it matters
    In most languages these are other letters, and other sounds.

    False positives
    Models that are meant to be without.
    """
    yield from _gone(found, "accents", "accents", 0)


@check("TPT107", "spaces-lost", WARN, fix="Use a tokenizer that keeps white space, if the data is code or poetry.")
def spaces_lost(found: Tokenized, t: TokenizerThresholds) -> Iterator[Sighting]:
    """Texts come back with other white space: line breaks, tabs or runs of spaces are gone, or words are joined.

    Why it matters
    Code and tables lose their meaning.

    False positives
    Prose with double spaces; told when it concerns more than a share of the texts.
    """
    yield from _gone(found, "spaces", "white space", t.spaces_share)


@check("TPT111", "no-end-token", FAIL, fix="Declare eos_token.")
def no_end_token(found: Tokenized, t: TokenizerThresholds) -> Iterator[Sighting]:
    """No end token is declared.

    A tokenizer.json by itself declares none: name the folder with its tokenizer_config.json.

    Why it matters
    A model that never sees an end never ends.

    False positives
    Tokenizers for classifiers and for speech recognition by CTC.
    """
    if not found.tokenizer.settings and found.tokenizer.kind != "SentencePiece":
        raise CannotTell("no tokenizer_config.json; name the folder")
    if "eos" not in found.tokenizer.special:
        yield seen(WARN if "[SEP]" in found.tokenizer.vocabulary.values() else FAIL, "no end token is declared", ())


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
    """A token has a number that the embedding of config.json (vocab_size) does not reach.

    Why it matters
    On a GPU it is an assertion far from its cause.

    False positives
    A config.json of before the embedding was resized.
    """
    rows = found.tokenizer.rows
    if rows is None:
        raise CannotTell("no config.json with vocab_size; name the folder")
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


def _rendering(found: Tokenized) -> Rendering:
    if found.rendering is None:
        raise CannotTell("no chat template")
    if found.rendering.error is not None:
        raise CannotTell("the chat template cannot be rendered")
    return found.rendering


@check("TPT121", "template-fails", FAIL, fix="Repair the template; TRL, vLLM and others render it as this does.")
def template_fails(found: Tokenized, t: TokenizerThresholds) -> Iterator[Sighting]:
    """The chat template cannot be rendered for a conversation of two exchanges, neither with a system turn nor without.

    It is rendered in a sandbox, in a process of its own, for at most 20 seconds.

    Why it matters
    Training stops at it, or goes on without it.

    False positives
    Templates that need tools or other variables.
    """
    if found.rendering is None:
        raise CannotTell("no chat template")
    if found.rendering.error is not None:
        yield seen(FAIL, f"the chat template cannot be rendered: {found.rendering.error}", ())


@check(
    "TPT122",
    "no-generation-prompt",
    WARN,
    fix="Let add_generation_prompt append the beginning of the assistant's turn.",
)
def no_generation_prompt(found: Tokenized, t: TokenizerThresholds) -> Iterator[Sighting]:
    """The template gives the same with and without add_generation_prompt.

    Why it matters
    The model is asked to go on with the user's turn.

    False positives
    Templates whose user turns end with the marker of the answer, such as [/INST].
    """
    rendering = _rendering(found)
    if rendering.open == rendering.closed and not rendering.open.rstrip().endswith("[/INST]"):
        yield seen(WARN, "the template does not know add_generation_prompt", ())


@check(
    "TPT123",
    "no-end-after-answer",
    FAIL,
    fix="Let the template end each answer with the end token, or declare the one that it writes.",
)
def no_end_after_answer(found: Tokenized, t: TokenizerThresholds) -> Iterator[Sighting]:
    """The template does not put the end token, or a special token, after an answer.

    Why it matters
    The model never learns to end its turn.

    False positives
    Trainers that append the end token themselves.
    """
    rendering = _rendering(found)
    after = rendering.whole.rpartition(PROBE[-1]["content"])[2].strip()
    pieces = set(found.tokenizer.vocabulary.values())
    ends = found.tokenizer.vocabulary.get(found.tokenizer.special.get("eos", -1))
    marker = _MARKERS.match(after)
    if not (ends and after.startswith(ends)) and not (marker and marker[0] in pieces):
        yield seen(
            FAIL,
            f"after the last answer the template writes {after[:40]!r}, expected the end token {ends or '(none)'}",
            (),
        )


@check(
    "TPT124",
    "double-begin-token",
    FAIL,
    fix="Encode rendered text without special tokens, or take the begin token out of the template.",
)
def double_begin_token(found: Tokenized, t: TokenizerThresholds) -> Iterator[Sighting]:
    """The template writes the begin token, and the tokenizer is set to add it (add_bos_token) too; or the template writes it twice.

    Why it matters
    Two begin tokens are a text that the base model never saw.

    False positives
    Trainers that know it and encode without special tokens: told as WARN when only the setting says so.
    """
    rendering = _rendering(found)
    begin = found.tokenizer.vocabulary.get(found.tokenizer.special.get("bos", -1))
    if not begin:
        raise CannotTell("no begin token is declared")
    if rendering.whole.startswith(begin + begin):
        yield seen(FAIL, f"the template begins with {begin} twice", ())
    elif rendering.whole.startswith(begin) and found.tokenizer.settings.get("add_bos_token") is True:
        yield seen(WARN, f"the template writes {begin}, and add_bos_token adds it again", ())


@check("TPT125", "turn-lost", FAIL, fix="Repair the template, or leave that role out of the data.")
def turn_lost(found: Tokenized, t: TokenizerThresholds) -> Iterator[Sighting]:
    """The template leaves a turn out, or puts them in another order.

    Why it matters
    The model is trained on conversations that nobody had.

    False positives
    Templates that refuse a system turn by raising are rendered without one; those that drop it silently are told.
    """
    whole = _rendering(found).whole
    places = [whole.find(message["content"]) for message in PROBE]
    lost = [f"{message['role']} {message['content']}" for message, at in zip(PROBE, places, strict=True) if at < 0]
    if lost:
        yield seen(
            FAIL if len(lost) > 1 or PROBE[0]["content"] not in lost[0] else WARN,
            f"the template leaves out: {', '.join(lost)}",
            (),
        )
    elif places != sorted(places):
        yield seen(FAIL, "the template puts turns in another order", ())


@check(
    "TPT126",
    "marker-in-pieces",
    FAIL,
    fix="Add the markers of the template to the tokenizer, before anything is tokenized, and train their rows.",
)
def marker_in_pieces(found: Tokenized, t: TokenizerThresholds) -> Iterator[Sighting]:
    """A marker that the chat template writes, such as <|im_start|>, is split into several tokens.

    Why it matters
    The base model never saw such pieces as a marker, and a user can write them.

    False positives
    Templates whose markers are plain text on purpose, such as [INST], which is told as INFO.
    """
    broken = sorted({m for m in _MARKERS.findall(_rendering(found).whole) if len(found.tokenizer.encode(m)) > 1})
    if broken:
        plain = all(marker.startswith("[") for marker in broken)
        yield seen(
            INFO if plain else FAIL, f"markers of the template are split into pieces: {', '.join(broken[:6])}", ()
        )


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
