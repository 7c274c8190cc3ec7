"""How many tokens a tokenizer makes of the texts: by script, of numbers, for a second of sound; and what of it is never used."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from trainproof.preflight.checks.registry import INFO, WARN, check
from trainproof.preflight.checks.tokenizer import points_of, texts_of
from trainproof.preflight.encoding import Encoded, Tokenized
from trainproof.preflight.found import seen
from trainproof.rules.registry import CannotTell, Sighting
from trainproof.thresholds import TokenizerThresholds

#: scripts that write a syllable or a word with one character
_DENSE = ("Han", "Kana", "Hangul")
_NUMBER = re.compile(r"\d{4}(?<![\d.,]\d{4})(?![\d.,]?\d)")  # what it begins with is found at once
_DATE = re.compile(r"\b(?:\d{4}-\d\d-\d\d|\d{1,2}[./]\d{1,2}[./]\d{4})\b")
_UNIT = re.compile(r"\b\d+(?:[.,]\d+)? ?(?:km|kg|cm|mm|ms|GB|MB|kB|kHz|MHz|GHz|Hz|°C|%)")
#: byte -> 0 for a digit, or x: a pass over bytes costs a fraction of a search for a pattern
_SHAPE = bytes(ord("0") if byte in b"0123456789" else ord("x") for byte in range(256))
#: finds of one kind that are encoded; more tell nothing new
_MOST_FINDS = 2000


def _by_script(texts: list[Encoded], least: int) -> dict[str, list[Encoded]]:
    """Texts of at least `least` characters by the script of most of their letters."""
    groups: dict[str, list[Encoded]] = {}
    for text in texts:
        if len(text.text) >= least and text.script != "none":
            groups.setdefault(text.script, []).append(text)
    return groups


def _rates(texts: list[Encoded]) -> NDArray[np.float64]:
    """Tokens a character of each."""
    rates: NDArray[np.float64] = np.divide([text.tokens for text in texts], [len(text.text) for text in texts])
    return rates


def _overall_rate(texts: list[Encoded]) -> float:
    return sum(text.tokens for text in texts) / sum(len(text.text) for text in texts)


@check("TPT103", "token-blow-up", WARN, fix="Look at them: another encoding, or noise.")
def token_blow_up(found: Tokenized, t: TokenizerThresholds) -> Iterator[Sighting]:
    """A text has many times as many tokens a character as the others of its script; of all, where few are in its script.

    Why it matters
    It is as long as a page and says a line: cut off, and badly learned.

    False positives
    Numbers, addresses and code among prose: few such texts are told as INFO, unless their script is not that of the others.
    """
    groups = _by_script(texts_of(found), t.blow_characters)
    every = [text for group in groups.values() for text in group]
    if len(every) < t.blow_texts:
        raise CannotTell("too few texts")
    overall = np.median(_rates(every))
    bad: list[Encoded] = []
    odd = False
    for group in groups.values():
        rates = _rates(group)
        own = np.median(rates) if len(group) >= t.blow_texts else overall
        mine = np.flatnonzero(rates > t.blow_times * own)
        bad += [group[i] for i in mine]
        odd = odd or (len(mine) > 0 and len(group) < t.blow_texts)
    if bad:
        message = f"{len(bad):,} of {len(every):,} texts have over {t.blow_times:g} times the usual tokens a character"
        severity = WARN if odd or len(bad) >= t.blow_share * len(every) else INFO
        points = points_of(bad, "tokens/character", _rates(bad).tolist())
        yield seen(severity, message, points, blow_times=t.blow_times, blow_share=t.blow_share)


@check("TPT109", "script-in-pieces", WARN, fix="Use a tokenizer that was trained on the language, or extend this one.")
def script_in_pieces(found: Tokenized, t: TokenizerThresholds) -> Iterator[Sighting]:
    """Texts of a script have more tokens than characters: they are spelled in bytes.

    For Chinese, Japanese and Korean, whose characters are syllables or words, the limit is higher.

    Why it matters
    The context holds a fraction of the text, and the model learns to spell before it learns to speak.

    False positives
    Models of bytes or characters.
    """
    groups = {
        script: texts
        for script, texts in _by_script(texts_of(found), 1).items()
        if len(texts) >= t.script_texts and script != "other"
    }
    if not groups:
        raise CannotTell("too few texts")
    if all(len(piece) <= 1 or piece[:1] in "<[" for piece in found.tokenizer.vocabulary.values()):
        raise CannotTell("a vocabulary of characters")
    for script, texts in sorted(groups.items()):
        limit = t.script_dense if script in _DENSE else t.script_rate
        rate = _overall_rate(texts)
        if rate > limit:
            others = ", ".join(f"{name} {_overall_rate(group):.2f}" for name, group in sorted(groups.items()))
            points = points_of(texts, "tokens/character", _rates(texts).tolist())
            message = f"{len(texts):,} texts in {script} have {rate:.2f} tokens a character ({others})"
            yield seen(WARN, message, points, limit=limit)


def _finds(texts: list[Encoded], pattern: re.Pattern[str], shape: bytes) -> list[str]:
    """What the pattern finds, in the texts that have its shape: 0 for a digit, x for anything else and for both ends."""
    found: dict[str, None] = {}
    for text in texts:
        if not text.text.isascii() or shape in b"x%bx" % text.text.encode().translate(_SHAPE):
            found.update(dict.fromkeys(pattern.findall(text.text)))
            if len(found) >= _MOST_FINDS:
                break
    return list(found)[:_MOST_FINDS]


@check("TPT108", "numbers-in-pieces", INFO, fix="Split digits one by one, or in threes, before the merges are learned.")
def numbers_in_pieces(found: Tokenized, t: TokenizerThresholds) -> Iterator[Sighting]:
    """Numbers of four digits are split in several ways, such as 19 84 and 1 985; with it, what dates and units cost.

    Why it matters
    The same digit is another token in each number: reckoning, dates and prices are learned one by one.

    False positives
    Most tokenizers of before 2023 do so, and texts without numbers do not care: hence INFO.
    """
    tokenizer, texts = found.tokenizer, texts_of(found)
    numbers = _finds(texts, _NUMBER, b"x0000x")
    if len(numbers) < t.numbers:
        raise CannotTell(f"under {t.numbers} numbers of four digits")
    digits = {number: sum(map(str.isdigit, piece)) for number, piece in tokenizer.vocabulary.items()}
    ways = Counter(tuple(size for i in tokenizer.encode(one) if (size := digits.get(i, 0))) for one in numbers)
    usual = ways.most_common(1)[0][1] / len(numbers)
    if usual < t.numbers_usual:
        said = ", ".join(f"{'+'.join(map(str, way))} {n / len(numbers):.0%}" for way, n in ways.most_common(4))
        more = "".join(
            f"; {what} {math.fsum(len(tokenizer.encode(one)) for one in finds) / len(finds):.1f} tokens each"
            for what, pattern in (("dates", _DATE), ("numbers with units", _UNIT))
            if (finds := _finds(texts, pattern, b"0"))
        )
        yield seen(
            INFO, f"{len(numbers):,} numbers of four digits are split as {said}{more}", (), usual=t.numbers_usual
        )


@check(
    "TPT110",
    "tokens-per-second",
    WARN,
    fix="Use a tokenizer with larger pieces, or look whether texts and clips go together.",
)
def tokens_per_second(found: Tokenized, t: TokenizerThresholds) -> Iterator[Sighting]:
    """A text has more tokens than its clip has room for, by the seconds of the sound.

    Why it matters
    A model that goes through sound in frames has 25 to 50 of them a second: what has more tokens cannot be aligned.

    False positives
    Models of bytes.
    """
    texts = [text for text in texts_of(found) if text.seconds]
    if not texts:
        raise CannotTell("no sound beside the texts")
    rates = [text.tokens / (text.seconds or 1) for text in texts]
    fast = [i for i, rate in enumerate(rates) if rate > t.second_tokens]
    if fast:
        median = float(np.median(rates))
        message = (
            f"{len(fast):,} of {len(texts):,} clips have over {t.second_tokens:g} tokens a second (median {median:.1f})"
        )
        points = points_of([texts[i] for i in fast], "tokens/s", [rates[i] for i in fast])
        yield seen(WARN, message, points, second_tokens=t.second_tokens)


@check(
    "TPT118",
    "unused-vocabulary",
    INFO,
    fix="Train a smaller vocabulary on these texts, if the model is trained from scratch.",
)
def unused_vocabulary(found: Tokenized, t: TokenizerThresholds) -> Iterator[Sighting]:
    """Much of the vocabulary is in none of the texts, though there are many.

    Why it matters
    Its rows of the embedding cost memory and are never trained.

    False positives
    Fine-tuning of a model that knows more than the texts: hence INFO.
    """
    texts, total = texts_of(found), len(found.tokenizer.vocabulary)
    if len(found.ids) < t.unused_times * total:
        raise CannotTell(f"under {t.unused_times:g} tokens of text a token of the vocabulary")
    used = found.tokenizer.vocabulary.keys() & set(np.unique(found.ids).tolist())
    share = 1 - len(used) / total
    if share > t.unused_share:
        message = f"{share:.0%} of the {total:,} tokens are in none of the {len(texts):,} texts"
        yield seen(INFO, message, (), unused_share=t.unused_share)
