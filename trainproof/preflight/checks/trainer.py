"""What the trainer that the user named will do with the records: leave out, cut, or stop at."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainproof.preflight.checks.registry import DIALOGUE, FAIL, INFO, TEXTUAL, WARN, check
from trainproof.preflight.found import Example, Found, Places, seen
from trainproof.preflight.trainers import CUTS, LEAVES_OUT, PHONEMES, STOPS, TRAINERS, Limit, Trainer
from trainproof.rules.registry import CannotTell, Sighting
from trainproof.thresholds import DataThresholds
from trainproof.verdict import Severity

#: checks of the order of turns that a trainer which wants turns to alternate leaves records out for
_ORDER = ("TPD120", "TPD121", "TPD122", "TPD124", "TPD125", "TPD126", "TPD127")
#: and of records that no trainer can use
_UNUSABLE = ("TPD003", "TPD004", "TPD005", "TPD009", "TPD201", "TPD231", "TPD241")


def _trainer(found: Found) -> Trainer:
    if found.options.trainer is None:
        raise CannotTell("give --trainer")
    return TRAINERS[found.options.trainer]


def _labels(found: Found) -> dict[str, NDArray[Any]]:
    """The table of what the trainer counts, a row a record."""
    table = found.table("labels") if found.kind == "speech" else found.table("samples")
    if not table:
        raise CannotTell("no record could be measured")
    return table


def _severity(does: str, share: float, t: DataThresholds) -> Severity:
    limit = {STOPS: 0.0, LEAVES_OUT: t.left_out_fail, CUTS: t.over_fail}[does]
    return FAIL if share > limit else WARN


def _sound(found: Found) -> tuple[tuple[Limit, ...], NDArray[Any], str]:
    """Limits of the sound's length, and the seconds of each record."""
    trainer = _trainer(found)
    if not trainer.seconds:
        raise CannotTell(f"{found.options.trainer} has no limits of the sound's length")
    return trainer.seconds, _labels(found)["declared" if trainer.declared else "seconds"], "s"


def _label(found: Found) -> tuple[tuple[Limit, ...], NDArray[Any], str]:
    """Limits of the label's length, and what the trainer counts of each record."""
    trainer, own = _trainer(found), found.options.max_length
    counted = trainer.unit == "tokens"
    if counted and found.options.tokenizer is None:
        raise CannotTell("give --tokenizer")
    limits = tuple(limit._replace(most=own) if own and limit.least == -math.inf else limit for limit in trainer.labels)
    if not any(math.isfinite(limit.most) for limit in limits):
        raise CannotTell(f"{found.options.trainer} has no such limit by default; give --max-length")
    table = _labels(found)
    size = table["tokens"] + trainer.added if counted else 2 * PHONEMES * table["characters"] + 3
    return limits, size, trainer.unit


def _beyond(value: NDArray[Any], limit: Limit) -> NDArray[np.int64]:
    return np.flatnonzero((value < limit.least) | (value > limit.most))


def _told(
    found: Found, code: str, measured: tuple[tuple[Limit, ...], NDArray[Any], str], t: DataThresholds
) -> Iterator[Sighting]:
    """A sighting for every limit that records are beyond."""
    limits, value, unit = measured
    place, name = _labels(found)["place"], found.options.trainer
    for limit in limits:
        bad = _beyond(value, limit)
        if not len(bad):
            continue
        bound = f"over {limit.most:,.4g} {unit}" if limit.most < math.inf else f"under {limit.least:g} {unit}"
        examples = (
            Example(int(place[i]), float(value[i]), f"{value[i]:,.4g} {unit}: {name} {limit.does} what is {bound}")
            for i in bad
        )
        message = f"{name} {limit.does} {found.counted(len(bad))}: {bound}"
        severity = _severity(limit.does, found.share(len(bad)), t)
        yield found.tell(
            code, severity, message, examples, metric=unit, left_out_fail=t.left_out_fail, over_fail=t.over_fail
        )


def _left_out(found: Found) -> set[int]:
    """Places of the records that the trainer does not train on."""
    trainer, out = _trainer(found), {int(place) for code in _UNUSABLE for place in found.places(code)}
    for measure in (_sound, _label):
        with suppress(CannotTell):
            limits, value, _ = measure(found)
            out |= {
                int(_labels(found)["place"][i])
                for limit in limits
                if limit.does == LEAVES_OUT
                for i in _beyond(value, limit)
            }
    if trainer.alternate:
        out |= set(_out_of_order(found).tolist())
    return out


def _out_of_order(found: Found) -> Places:
    return np.unique(np.concatenate([found.places(code) for code in _ORDER]))


@check("TPD301", "trainer-sound-length", FAIL, "speech", fix="Cut long clips at pauses, join or leave out short ones.")
def trainer_sound_length(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """The trainer of --trainer leaves out or cuts clips of this length.

    XTTS leaves out clips under 0.5 s or over 11.6 s, NeMo's CTC recipe what is under 0.1 s or over 16.7 s by the manifest's duration,
    and Whisper hears the first 30 s only, while the text goes on.

    Why it matters
    Trainers say it in one line, or not at all: a third of a corpus was lost so, and nobody knew.

    False positives
    A recipe with limits of its own.
    """
    yield from _told(found, "TPD301", _sound(found), t)


@check(
    "TPD302",
    "trainer-label-length",
    FAIL,
    "speech",
    *TEXTUAL,
    fix="Split the records, raise the trainer's length, or leave them out by --rejects.",
)
def trainer_label_length(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """The trainer of --trainer leaves out, cuts or stops at records of so many tokens.

    --max-length is the run's own limit; without it the trainer's default counts. Tokens are those of --tokenizer, without what a chat
    template adds. Piper counts phonemes, of which a text has at least 0.95 a character; it has no limit by default.

    Why it matters
    Whisper's training stops at the first label over 448 tokens, perhaps after hours; other trainers go on without the records.

    False positives
    Packing that splits records loses nothing.
    """
    yield from _told(found, "TPD302", _label(found), t)


@check("TPD303", "trainer-layout", FAIL, *TEXTUAL, fix="Convert the records to a layout that the trainer reads.")
def trainer_layout(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """The trainer of --trainer does not read records with these fields.

    Why it matters
    It stops before its first step, with a missing field.

    False positives
    A formatting function, or a column mapping, of the run's own.
    """
    trainer = _trainer(found)
    if not trainer.fields:
        raise CannotTell(f"{found.options.trainer} is told the layout by its configuration")
    for label, count in sorted(found.counters.get("shapes", {}).items()):
        fields = [name for name, _ in json.loads(label)]
        if not any(set(fields).issuperset(choice) for choice in trainer.fields):
            known = ", or ".join(" and ".join(choice) for choice in trainer.fields)
            message = (
                f"{found.counted(count)} have the fields {', '.join(fields[:8])}; {found.options.trainer} reads {known}"
            )
            yield found.tell("TPD303", FAIL, message, found.examples(f"shape {label}"))


@check("TPD304", "trainer-turn-order", FAIL, *DIALOGUE, fix="Make turns alternate and end with the assistant's.")
def trainer_turn_order(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """The trainer of --trainer leaves out conversations whose turns do not alternate, or do not end with an answer.

    Why it matters
    Each costs one line in a log that scrolls by; the records are not trained on.

    False positives
    Formats with tool turns that are mapped otherwise.
    """
    if not _trainer(found).alternate:
        raise CannotTell(f"{found.options.trainer} does not go by the order of turns")
    places = _out_of_order(found)
    if len(places):
        name = found.options.trainer
        examples = (Example(int(place), math.nan, f"{name} leaves out turns in this order") for place in places)
        severity = _severity(LEAVES_OUT, found.share(len(places)), t)
        message = f"{name} leaves out {found.counted(len(places))}: the order of their turns"
        yield found.tell("TPD304", severity, message, examples, left_out_fail=t.left_out_fail)


@check(
    "TPD305", "too-few-frames", FAIL, "speech", fix="Leave the clips out; look whether their text is of another clip."
)
def too_few_frames(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """A clip has fewer encoder frames than CTC needs: one a token, and one more between two equal tokens.

    Frames are 25 a second for Conformers, 12.5 for FastConformers. Without --tokenizer the tokens are characters, for Conformers only, and
    what they cannot align is WARN.

    Why it matters
    No path through the frames spells the text: the loss is infinite. Trainers zero it, so that the clip teaches nothing, or end in NaN.

    False positives
    FastConformers with larger tokens than those of --tokenizer: what only they cannot align is WARN.
    """
    trainer, table = _trainer(found), _labels(found)
    if not trainer.frames:
        raise CannotTell(f"{found.options.trainer} has no CTC loss")
    need = table["tokens"] + table["repeats"]
    told = np.zeros(len(need), bool)
    judged = zip((FAIL, WARN), trainer.frames, strict=True) if found.options.tokenizer else [(WARN, trainer.frames[0])]
    for severity, (model, rate) in judged:
        frames = np.ceil(table["seconds"] * rate)
        bad = (frames < need) & ~told
        told |= bad
        examples = [
            Example(int(table["place"][i]), float(frames[i]), f"{frames[i]:.0f} frames of a {model} for {need[i]:.0f}")
            for i in np.flatnonzero(bad)
        ]
        if examples:
            unit = "tokens" if found.options.tokenizer else "characters"
            message = f"{found.counted(len(examples))} have fewer frames of a {model} than {unit} and repeats"
            yield found.tell("TPD305", severity, message, examples, metric="frames")


@check(
    "TPD306", "trainer-unknown-tokens", FAIL, "speech", fix="Normalise the characters away, or extend the vocabulary."
)
def trainer_unknown_tokens(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """The trainer of --trainer leaves out texts with tokens that its vocabulary does not know.

    Why it matters
    XTTS raises, catches it, and takes another clip in its place: the corpus shrinks without a word.

    False positives
    Cleaners of the trainer that replace the character before it is looked up; lower case and white space are done here.
    """
    trainer = _trainer(found)
    if not trainer.unknown or found.options.tokenizer is None:
        raise CannotTell("give --tokenizer" if trainer.unknown else f"{found.options.trainer} keeps them")
    table = _labels(found)
    bad = np.flatnonzero(table["unknown"] > 0)
    if len(bad):
        examples = (Example(int(table["place"][i]), float(table["unknown"][i]), "unknown tokens") for i in bad)
        severity = _severity(LEAVES_OUT, found.share(len(bad)), t)
        message = f"{found.options.trainer} leaves out {found.counted(len(bad))}: unknown tokens"
        yield found.tell("TPD306", severity, message, examples, metric="unknown", left_out_fail=t.left_out_fail)


@check("TPD307", "trainer-characters", INFO, "speech", fix="Split texts of such length at a comma.")
def trainer_characters(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """A text has more characters than the trainer's model is made for, in the language of --language.

    Why it matters
    XTTS prints a warning for each and may speak only the beginning of such a text.

    False positives
    It is a warning of the trainer, hence INFO.
    """
    most = _trainer(found).characters.get(found.options.language or "")
    if most is None:
        raise CannotTell("give --language, with --trainer xtts")
    table = _labels(found)
    bad = np.flatnonzero(table["characters"] > most)
    if len(bad):
        examples = (Example(int(table["place"][i]), float(table["characters"][i]), "") for i in bad)
        message = (
            f"{found.counted(len(bad))} have more than the {most} characters that {found.options.trainer} is made for"
        )
        yield found.tell("TPD307", INFO, message, examples, metric="characters")


@check("TPD308", "nothing-left-to-train", FAIL, "speech", *TEXTUAL, fix="Add records, or lower what is held back.")
def nothing_left_to_train(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """When the trainer has left out what it leaves out, and held back what it evaluates on, no record is left.

    Piper holds back five records and a tenth before it trains.

    Why it matters
    It stops with "no training batches", or trains on nothing.

    False positives
    None known.
    """
    held, share = _trainer(found).held_back
    kept = found.rows - len(_left_out(found))
    left = kept - held - int(share * kept)
    if found.rows and left <= 0:
        message = f"of {found.rows:,} records {found.options.trainer} keeps {kept:,} and holds {min(kept, kept - left):,} back"
        yield seen(FAIL, f"{message}: nothing is left to train on", ())
