"""Texts that are odd by themselves."""

from __future__ import annotations

from collections.abc import Iterator

from trainproof.preflight.checks.registry import FAIL, INFO, TEXTUAL, WARN, check
from trainproof.preflight.found import Found
from trainproof.rules.registry import Sighting
from trainproof.thresholds import DataThresholds


@check("TPD101", "empty-text", FAIL, "text", fix="Leave it out.")
def empty_text(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """A record has no text, or only white space.

    Why it matters
    It trains on padding, and some losses divide by its length.

    False positives
    None known.
    """
    yield from found.told("TPD101", FAIL, "have no text")


@check("TPD102", "control-characters", WARN, "speech", *TEXTUAL, fix="Remove them.")
def control_characters(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """A text has null bytes or other control characters.

    Why it matters
    They come from binary data or broken exports, and tokenizers give them rare tokens.

    False positives
    Terminal output with colours.
    """
    yield from found.told("TPD102", WARN, "have control characters")


@check(
    "TPD104",
    "mojibake",
    WARN,
    "speech",
    *TEXTUAL,
    fix="Decode the source as UTF-8; what is damaged can often be encoded back.",
)
def mojibake(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """UTF-8 was read as Latin-1 or Windows-1252: letters became two or three signs.

    Why it matters
    The model learns the damage as spelling.

    False positives
    Texts about encodings.
    """
    yield from found.told("TPD104", WARN, "look as if UTF-8 had been read as another encoding")


@check("TPD105", "hidden-characters", WARN, "speech", *TEXTUAL, fix="Remove them.")
def hidden_characters(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """A text has characters that nobody sees: zero-width spaces, soft hyphens, direction marks, tags.

    Why it matters
    They split words for the tokenizer, and can carry instructions that no reviewer sees.

    False positives
    Texts in scripts that are written with direction marks; joiners of emoji and of Indic and Arabic scripts are not
    counted.
    """
    yield from found.told("TPD105", WARN, "have hidden characters")


@check("TPD107", "html-leftovers", INFO, "speech", *TEXTUAL, fix="Clean the text, unless it is about HTML.")
def html_leftovers(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """A text has tags or entities of HTML.

    Why it matters
    Scraped pages that were not cleaned teach the model to write markup.

    False positives
    Texts about web pages have them by right, hence INFO.
    """
    yield from found.told("TPD107", INFO, "have HTML tags or entities")


@check("TPD110", "repetition", WARN, *TEXTUAL, fix="Leave them out.")
def repetition(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """A text repeats itself: at least half of its windows of ten words are not new.

    Why it matters
    A model that learns loops writes loops.

    False positives
    Tables, poems with refrains, logs.
    """
    yield from found.told("TPD110", WARN, "repeat themselves")


@check("TPD112", "personal-data", INFO, "speech", *TEXTUAL, fix="Mask them, if the people did not agree.")
def personal_data(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """A text has what looks like an e-mail address, a telephone, card or social-security number.

    Why it matters
    A model can give back what it was trained on. Nothing of it is printed in full.

    False positives
    Invented addresses; those that documentation reserves (example.com) are not counted.
    """
    yield from found.told("TPD112", INFO, "have what looks like personal data")


@check("TPD113", "secret", INFO, *TEXTUAL, fix="Withdraw the key and remove it.")
def secret(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """A text has what looks like an access key or a private key.

    Why it matters
    A model can give back what it was trained on, and who reads the data can use the key. Nothing of it is printed in
    full.

    False positives
    Invented keys in tutorials.
    """
    yield from found.told("TPD113", INFO, "have what looks like a key or a password")


@check("TPD115", "escaped-characters", INFO, *TEXTUAL, fix="Decode the source once more.")
def escaped_characters(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """A text has escape sequences such as a backslash, u and four digits instead of the characters.

    Why it matters
    It was encoded twice; the model learns to write the escapes.

    False positives
    Source code has them by right, hence INFO.
    """
    yield from found.told("TPD115", INFO, "have escape sequences for characters")


@check("TPD119", "lone-surrogate", WARN, "speech", *TEXTUAL, fix="Replace it, or take the text from its source again.")
def lone_surrogate(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """A text has half of a pair of surrogates, which is no character.

    Why it matters
    It cannot be written as UTF-8: tokenizers and Arrow stop at it.

    False positives
    None known.
    """
    yield from found.told("TPD119", WARN, "have half of a surrogate pair")


@check(
    "TPD103", "replacement-character", FAIL, "speech", *TEXTUAL, fix="Decode the source with the encoding that it has."
)
def replacement_character(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """A text has the character U+FFFD, which stands where something could not be decoded.

    Why it matters
    What stood there is lost, and the model learns to write the sign.

    False positives
    Texts about encodings have a few; hence FAIL only from a share on.
    """
    severity = FAIL if found.share(len(found.places("TPD103"))) > t.replaced_fail else WARN
    yield from found.told("TPD103", severity, "have replacement characters", replaced_fail=t.replaced_fail)


@check("TPD106", "mixed-script-words", WARN, "speech", *TEXTUAL, fix="Replace the letters that only look alike.")
def mixed_script_words(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """A word mixes Latin with Cyrillic or Greek letters.

    Why it matters
    Letters that look alike are other tokens: the word is unknown to the model, and for speech it has no sound.

    False positives
    Formulas and brand names; data that does it often is meant to.
    """
    severity = WARN if found.share(len(found.places("TPD106"))) < t.odd_rare else INFO
    yield from found.told("TPD106", severity, "have words that mix scripts", odd_rare=t.odd_rare)


@check("TPD117", "decomposed-characters", WARN, "speech", *TEXTUAL, fix="Normalise all texts to NFC.")
def decomposed_characters(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """A text writes letters with accents as two characters (NFD), while most of the data does not.

    Why it matters
    The same word becomes different tokens.

    False positives
    Data that is decomposed throughout is told as INFO.
    """
    severity = WARN if found.share(len(found.places("TPD117"))) < t.odd_rare else INFO
    yield from found.told("TPD117", severity, "write accents as characters of their own", odd_rare=t.odd_rare)
