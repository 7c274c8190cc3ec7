"""How many tokens a tokenizer makes of the texts: by script, of numbers, for a second of sound; and what of it is never used."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator

import numpy as np

from trainproof.preflight.checks.registry import INFO, WARN, check
from trainproof.preflight.checks.tokenizer import points_of, texts_of
from trainproof.preflight.encoding import Encoded, Tokenized
from trainproof.preflight.found import seen
from trainproof.preflight.screens import script_of
from trainproof.rules.registry import CannotTell, Sighting
from trainproof.thresholds import TokenizerThresholds

#: scripts that write a syllable or a word with one character
_DENSE = ("Han", "Kana", "Hangul")
_NUMBER = re.compile(r"\d{4}(?<![\d.,]\d{4})(?![\d.,]?\d)")  # what it begins with is found at once
_DATE = re.compile(r"\b(?:\d{4}-\d\d-\d\d|\d{1,2}[./]\d{1,2}[./]\d{4})\b")
_UNIT = re.compile(r"\b\d+(?:[.,]\d+)? ?(?:km|kg|cm|mm|ms|GB|MB|kB|kHz|MHz|GHz|Hz|°C|%)")
#: finds of one kind that are encoded; more tell nothing new
_MOST_FINDS = 2000


def _by_script(texts: list[Encoded], least: int) -> dict[str, list[Encoded]]:
    """Texts of at least `least` characters by the script of most of their letters."""
    groups: dict[str, list[Encoded]] = {}
    for text in texts:
        if len(text.text) >= least and (script := script_of(text.text)) != "none":
            groups.setdefault(script, []).append(text)
    return groups


def _rate(text: Encoded) -> float:
    return len(text.ids) / len(text.text)


@check("TPT103", "token-blow-up", WARN, fix="Look at them: another encoding, or noise.")
def token_blow_up(found: Tokenized, t: TokenizerThresholds) -> Iterator[Sighting]:
    """A text has many times as many tokens a character as the others of its script; of all, where few are in its script.

    Why it matters
    It is as long as a page and says a line: cut off, and badly learned.

    False positives
    Numbers and code among prose.
    """
    groups = _by_script(texts_of(found), t.blow_characters)
    every = [text for group in groups.values() for text in group]
    if len(every) < t.blow_texts:
        raise CannotTell("too few texts")
    overall = float(np.median([_rate(text) for text in every]))
    bad: list[Encoded] = []
    for group in groups.values():
        own = float(np.median([_rate(text) for text in group])) if len(group) >= t.blow_texts else overall
        bad += [text for text in group if _rate(text) > t.blow_times * own]
    if bad:
        message = f"{len(bad):,} of {len(every):,} texts have over {t.blow_times:g} times the usual tokens a character"
        yield seen(WARN, message, points_of(bad, "tokens/character", list(map(_rate, bad))), blow_times=t.blow_times)


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
        rate = sum(len(text.ids) for text in texts) / sum(len(text.text) for text in texts)
        if rate > limit:
            others = ", ".join(
                f"{name} {sum(len(x.ids) for x in group) / sum(len(x.text) for x in group):.2f}"
                for name, group in sorted(groups.items())
            )
            points = points_of(texts, "tokens/character", list(map(_rate, texts)))
            message = f"{len(texts):,} texts in {script} have {rate:.2f} tokens a character ({others})"
            yield seen(WARN, message, points, limit=limit)


def _finds(texts: list[Encoded], pattern: re.Pattern[str]) -> list[str]:
    found: dict[str, None] = {}
    for text in texts:
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
    numbers = _finds(texts, _NUMBER)
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
            if (finds := _finds(texts, pattern))
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
    rates = [len(text.ids) / (text.seconds or 1) for text in texts]
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
    total, tokens = len(found.tokenizer.vocabulary), sum(len(text.ids) for text in texts_of(found))
    if tokens < t.unused_times * total:
        raise CannotTell(f"under {t.unused_times:g} tokens of text a token of the vocabulary")
    used = np.unique(np.concatenate([np.asarray(text.ids, np.int64) for text in found.texts]))
    share = 1 - len(found.tokenizer.vocabulary.keys() & set(used.tolist())) / total
    if share > t.unused_share:
        message = f"{share:.0%} of the {total:,} tokens are in none of the {len(found.texts):,} texts"
        yield seen(INFO, message, (), unused_share=t.unused_share)
