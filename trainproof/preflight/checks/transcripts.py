"""Texts of a speech pack, and how they go with their sounds."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainproof.preflight.checks.audio import clips, told
from trainproof.preflight.checks.registry import FAIL, INFO, WARN, check
from trainproof.preflight.found import Example, Found
from trainproof.preflight.spill import repeats
from trainproof.rules.registry import CannotTell, Sighting
from trainproof.thresholds import DataThresholds


@check(
    "TPD221",
    "rate-outlier",
    WARN,
    "speech",
    fix="Listen to them: the text may be another's, or a part of it or of the sound is missing.",
)
def rate_outlier(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """A clip has far more or fewer characters a second of speech than the others of its speaker.

    The seconds are those between the first and the last sound; the logarithm of the rate is compared by its median and MAD.

    Why it matters
    The text is not what is said: babble, swallowed words and hallucinations come from it.

    False positives
    Very short clips, numbers and abbreviations that are not written out.
    """
    table = clips(found)
    usable = (table["characters"] > 0) & (table["speech"] > 0.2)
    rate = np.full(len(usable), np.nan)
    rate[usable] = np.log(table["characters"][usable] / table["speech"][usable])
    bad = np.zeros(len(usable), bool)
    order = np.flatnonzero(usable)
    order = order[np.argsort(table["speaker"][order], kind="stable")]
    ends = np.flatnonzero(np.diff(table["speaker"][order])) + 1
    judged = False
    for mine in np.split(order, ends):
        if len(mine) >= t.rate_clips:
            judged = True
            bad[mine] = _far(rate[mine], t)
    if not judged:
        raise CannotTell("too few clips of any speaker")
    limits = {"rate_z": t.rate_z, "rate_times": t.rate_times}
    yield from told(
        found,
        "TPD221",
        WARN,
        bad,
        np.exp(rate),
        "have a text that does not go with their length",
        "characters/s",
        **limits,
    )


def _far(rate: NDArray[Any], t: DataThresholds) -> NDArray[np.bool_]:
    distance = np.abs(rate - np.median(rate))
    spread = 1.4826 * float(np.median(distance))
    return np.asarray((distance > t.rate_z * spread) & (distance > math.log(t.rate_times)), bool)


@check("TPD231", "no-transcript", FAIL, "speech", fix="Add the text, or leave the clip out.")
def no_transcript(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """A clip has no text, or only white space.

    Why it matters
    Trainers skip it without a word, or learn that sound needs no text.

    False positives
    Clips without text on purpose; where no clip at all has one it is WARN.
    """
    severity = FAIL if found.counters.get("texts") else WARN
    yield from found.told("TPD231", severity, "have no text")


@check("TPD232", "digits", WARN, "speech", fix="Write numbers and dates as they are spoken.")
def digits(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """A text has digits: numbers, dates or times that are not written out.

    Why it matters
    Digits do not tell how they are spoken; many alphabets of speech models do not have them.

    False positives
    Data that writes digits throughout, for models that are to write them, is told as INFO.
    """
    severity = WARN if found.share(len(found.places("TPD232"))) < t.odd_rare else INFO
    yield from found.told("TPD232", severity, "have digits", odd_rare=t.odd_rare)


@check("TPD233", "abbreviations", WARN, "speech", fix="Write abbreviations and signs as they are spoken.")
def abbreviations(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """A text has an abbreviation such as Dr. or km, or a sign such as % or &.

    Why it matters
    What is written is not what is said; the model has to guess.

    False positives
    Data that has them throughout is told as INFO; acronyms are not counted.
    """
    severity = WARN if found.share(len(found.places("TPD233"))) < t.odd_rare else INFO
    yield from found.told("TPD233", severity, "have abbreviations or signs", odd_rare=t.odd_rare)


@check("TPD234", "white-space", WARN, "speech", fix="Strip the text, and make white space single.")
def white_space(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """A text begins or ends with white space, or has runs of it.

    Why it matters
    Spaces are tokens: pauses are learned where there are none.

    False positives
    None known.
    """
    yield from found.told("TPD234", WARN, "have white space at an end, or runs of it")


@check(
    "TPD235", "rare-characters", WARN, "speech", fix="Replace them, or make sure that the model's alphabet has them."
)
def rare_characters(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """A character that hardly any other text has.

    Why it matters
    It has no training; alphabets drop it without a word, or stop. Often it is a quotation mark or a dash of another kind.

    False positives
    Rare letters of the language.
    """
    counts = found.counters.get("characters")
    if not counts or found.rows < t.character_records:
        raise CannotTell("too few records")
    rare = sorted(c for c, count in counts.items() if count < t.character_clips and not c.isascii())
    examples = {
        e.place: Example(e.place, math.nan, f"U+{ord(c):04X} in {e.excerpt}")
        for c in rare
        for e in found.examples(f"character {c}")
    }
    if examples:
        message = f"{found.counted(len(examples))} have characters that hardly any other has: {' '.join(rare[:10])}"
        yield found.tell("TPD235", WARN, message, list(examples.values()), character_clips=t.character_clips)


@check("TPD236", "duplicate-text", INFO, "speech", fix="Look whether the sounds differ.")
def duplicate_text(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """A text comes again with another sound.

    Why it matters
    For one voice it often is a wrong line of the manifest.

    False positives
    Several speakers read the same sentences: hence INFO.
    """
    table = clips(found)
    mine = np.flatnonzero(table["text"] != 0)
    again, chief = repeats(table["text"][mine])
    place = table["place"][mine]
    if len(again):
        examples = (
            Example(int(place[i]), math.nan, f"the text of {found.named(int(place[j]))}")
            for i, j in zip(again, chief, strict=True)
        )
        yield found.tell("TPD236", INFO, f"{found.counted(len(again))} have the text of an earlier one", examples)


@check("TPD241", "missing-audio", FAIL, "speech", fix="Find the file, or remove the line.")
def missing_audio(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """A file that the manifest names does not exist.

    Why it matters
    Trainers stop at it, or leave it out without a word.

    False positives
    Paths that are meant from another folder.
    """
    yield from found.told("TPD241", FAIL, "name a file that is not there")


def _leaks(found: Found, column: str) -> tuple[list[Example], int]:
    table = clips(found)
    sides = found.held_out(table["place"])
    if not sides.any() or sides.all():
        raise CannotTell("the data has one side; name the other with --eval")
    known, first = np.unique(table[column][~sides], return_index=True)
    values, place = table[column][sides], table["place"][sides]
    at = np.minimum(np.searchsorted(known, values), len(known) - 1)
    chiefs = table["place"][~sides][first[at]]
    return [
        Example(int(p), math.nan, f"as in {found.named(int(q))}")
        for p, q, same in zip(place, chiefs, (known[at] == values) & (values != 0), strict=True)
        if same
    ], len(values)


@check("TPD251", "transcript-leak", FAIL, "speech", fix="Split by text, not by clip.")
def transcript_leak(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """A text of the evaluation side is in the training data.

    Why it matters
    The model has learned the sentence: error rates are far too good.

    False positives
    Short sentences that everyone says; FAIL from a share on.
    """
    examples, total = _leaks(found, "text")
    if examples:
        severity = FAIL if len(examples) > t.leak_share * total else WARN
        message = f"{len(examples):,} of {total:,} clips of the evaluation side have a text of the training data"
        yield found.tell("TPD251", severity, message, examples, leak_share=t.leak_share)


@check("TPD252", "audio-leak", FAIL, "speech", fix="Take the clips out of one side.")
def audio_leak(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """A clip of the evaluation side is in the training data: the same samples, or the same file name.

    Why it matters
    The evaluation measures memory.

    False positives
    File names that are counted anew on each side; names alone are told only where they agree for under half of the side.
    """
    examples, total = _leaks(found, "digest")
    names, _ = _leaks(found, "name")
    if len(names) < total / 2:
        known = {e.place for e in examples}
        examples += [e._replace(excerpt=f"the same name {e.excerpt}") for e in names if e.place not in known]
    if examples:
        message = f"{len(examples):,} of {total:,} clips of the evaluation side are in the training data"
        yield found.tell("TPD252", FAIL, message, examples)
