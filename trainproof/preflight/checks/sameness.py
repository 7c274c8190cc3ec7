"""Records beside each other: duplicates, leaks, lengths, types."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainproof.preflight.characters import SCRIPT_NUMBERS, SCRIPTS
from trainproof.preflight.checks.registry import DIALOGUE, FAIL, INFO, TEXTUAL, WARN, check
from trainproof.preflight.found import Example, Found, Places
from trainproof.preflight.near import similar_groups
from trainproof.preflight.spill import Indices, are_among, firsts, groups, repeats
from trainproof.preflight.trainers import TRAINERS
from trainproof.rules.registry import CannotTell, Sighting
from trainproof.thresholds import DataThresholds


@check("TPD006", "field-type", FAIL, *TEXTUAL, fix="Write the field with one type in all records.")
def field_type(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """A field has another type in a few records than in the others, such as an object instead of text.

    A field that is missing or null in some records is no fault.

    Why it matters
    Arrow tables have one type a column: loading stops at the first record that differs, however late it comes.

    False positives
    A field that few records have.
    """
    examples = [
        *(Example(e.place, e.value, e.excerpt) for e in found.examples("TPD006")),
        *_odd_types(found, t.type_rare),
    ]
    unique = list({e.place: e for e in examples}.values())
    count = max(len(unique), len(found.places("TPD006")))
    if unique:
        yield found.tell(
            "TPD006", FAIL, f"{found.counted(count)} have a field of another type", unique, type_rare=t.type_rare
        )


def _odd_types(found: Found, rare: float) -> Iterator[Example]:
    counts: dict[str, dict[str, int]] = {}
    shapes = {label: json.loads(label) for label in found.counters.get("shapes", ())}
    for label, shape in shapes.items():
        for name, kind in shape:
            kinds = counts.setdefault(name, {})
            kinds[kind] = kinds.get(kind, 0) + found.counters["shapes"][label]
    for label, shape in shapes.items():
        for name, kind in shape:
            kinds = {k: n for k, n in counts[name].items() if k != "null"}
            usual = max(sorted(kinds), key=kinds.__getitem__, default="null")
            if kind not in ("null", usual) and kinds[kind] < rare * sum(kinds.values()):
                for e in found.examples(f"shape {label}"):
                    yield Example(e.place, e.value, f"{name} is {kind}, elsewhere {usual}")


@check("TPD108", "exact-duplicates", FAIL, *TEXTUAL, fix="Keep each record once; --rejects FILE names the others.")
def exact_duplicates(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """A record has the same text as an earlier one on the same side of the split.

    Why it matters
    What is repeated is learned by heart, and counts more than the rest.

    False positives
    Data that repeats records to weight them.
    """
    table = found.table("samples")
    if not table:
        raise CannotTell("no records with text")
    sides: list[Iterator[Example]] = []
    count = 0
    for side in (False, True):
        mine = np.flatnonzero(found.held_out(table["place"]) == side)
        again, chief = repeats(table["text"] if len(mine) == len(table["text"]) else table["text"][mine])
        count += len(again)
        again, chief = found.to_tell(again), found.to_tell(chief)
        sides.append(_as_in(found, table["place"], mine[again], mine[chief], "the same as"))
    if count:
        share = found.share(count)
        severity = FAIL if share > t.duplicates_fail else WARN if share > t.duplicates_warn else INFO
        limits = (t.duplicates_warn, t.duplicates_fail)
        message = f"{found.counted(count)} repeat an earlier one"
        examples = chain.from_iterable(sides)
        yield found.tell("TPD108", severity, message, examples, duplicates_warn=limits[0], duplicates_fail=limits[1])


def _as_in(found: Found, place: Places, again: Indices, chief: Indices, how: str) -> Iterator[Example]:
    """Records, each with the earlier one that it is like."""
    for i, j in zip(again, chief, strict=True):
        yield Example(int(place[i]), math.nan, f"{how} {found.named(int(place[j]))}")


@check("TPD109", "near-duplicates", WARN, *TEXTUAL, fix="Keep one of each group; --rejects FILE names the others.")
def near_duplicates(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """A record is nearly the same as an earlier one: their sets of 16-byte windows overlap by three quarters or more.

    White space and ASCII punctuation do not count, nor does case. Similarity is estimated by MinHash (112 bins, 14 bands) on the first 20,000 bytes
    of texts of which at least 64 bytes count.

    Why it matters
    As exact duplicates, and no exact comparison finds them.

    False positives
    Texts from one template, such as forms and exercises.
    """
    examples = [e for e, leak in _alike(found, t) if not leak]
    if examples:
        share = found.share(len(examples))
        message = f"{found.counted(len(examples))} are nearly the same as an earlier one"
        severity = WARN if share > t.near_warn else INFO
        yield found.tell("TPD109", severity, message, examples, metric="similarity", near_similarity=t.near_similarity)


def _alike(found: Found, t: DataThresholds) -> list[tuple[Example, bool]]:
    """(record with what it resembles, whether the two are on different sides). Raises CannotTell."""
    table = found.table("near")
    if not table:
        raise CannotTell(
            "no texts that are long enough" if found.options.near else "near duplicates were not asked for"
        )
    if len(table["place"]) > t.near_most:
        raise CannotTell(f"more than {t.near_most:,} records")
    return found.memo("alike", lambda: _compare(found, table, t.near_similarity))


def _compare(found: Found, table: dict[str, NDArray[Any]], least: float) -> list[tuple[Example, bool]]:
    once = firsts(table["text"])
    # the training side first: what is held out resembles it, not the other way round
    once = once[np.argsort(found.held_out(table["place"][once]), kind="stable")]
    place = table["place"][once]
    sides = found.held_out(place)
    return [
        (Example(int(place[i]), alike, f"nearly the same as {found.named(int(place[j]))}"), bool(sides[i] != sides[j]))
        for i, j, alike in similar_groups(table["signature"], once, least)
    ]


@check(
    "TPD161", "eval-leak", FAIL, *TEXTUAL, fix="Take the records out of the training side; --rejects FILE names them."
)
def eval_leak(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """A record of the evaluation side is in the training data, word for word.

    The sides are told by the names of files and folders (train, valid, test and the like), or by --eval.

    Why it matters
    The evaluation measures memory: its numbers are too good, and no decision can be based on them.

    False positives
    Very short texts that many records share.
    """
    yield from _leak(found, "TPD161", "text", FAIL, "of the evaluation side are in the training data")


def _leaks(table: dict[str, NDArray[Any]], column: str, sides: NDArray[np.bool_]) -> tuple[Indices, Indices]:
    """(records of the evaluation side with a value of the training side, the first record there that has it), in order."""
    values = table[column]
    most = 0.1 * len(values) + 2 if column == "prompt" else math.inf
    leaks, chiefs = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for mine in groups(values):
        ours, theirs = mine[~sides[mine]], mine[sides[mine]]
        if not len(ours):
            continue
        known, first, counts = np.unique(values[ours], return_index=True, return_counts=True)
        wanted = values[theirs]
        at = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
        same = (known[at] == wanted) & (wanted != 0) & (counts[at] < most)
        leaks.append(theirs[same])
        chiefs.append(ours[first[at[same]]])
    found, before = np.concatenate(leaks), np.concatenate(chiefs)
    if column == "prompt":  # where the answer is the same too, the whole record is told
        text = table["text"]
        other = ~are_among(text[found], np.where(sides, 0, text))
        found, before = found[other], before[other]
    order = np.argsort(found)
    return found[order], before[order]


@check("TPD162", "prompt-leak", FAIL, *DIALOGUE, fix="Split by prompt, not by record.")
def prompt_leak(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """A prompt of the evaluation side is in the training data, with another answer.

    Why it matters
    The model has seen an answer to the question that it is asked.

    False positives
    Prompts that are the same for all records, such as an instruction with the material elsewhere; those shared by over a tenth of
    the records are not counted.
    """
    yield from _leak(found, "TPD162", "prompt", FAIL, "of the evaluation side have a prompt of the training data")


def _leak(found: Found, code: str, column: str, severity: Any, says: str) -> Iterator[Sighting]:
    table = found.table("samples")
    sides = found.held_out(table["place"]) if table else np.zeros(0, bool)
    if not sides.any() or sides.all():
        raise CannotTell("the data has one side; name the other with --eval")
    place = table["place"]
    leaks, chiefs = _leaks(table, column, sides)
    if len(leaks):
        examples = _as_in(found, place, found.to_tell(leaks), found.to_tell(chiefs), "as in")
        yield found.tell(code, severity, f"{len(leaks):,} of {int(sides.sum()):,} records {says}", examples)


@check(
    "TPD163", "near-leak", WARN, *TEXTUAL, fix="Look at the pairs, and take out those that are the same in substance."
)
def near_leak(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """A record of the evaluation side is nearly the same as one of the training data (similarity as in TPD109).

    Why it matters
    As a leak, and no exact comparison finds it.

    False positives
    Texts from one template.
    """
    sides = found.held_out(found.table("near")["place"]) if found.table("near") else np.zeros(0, bool)
    if not sides.any() or sides.all():
        raise CannotTell("the data has one side; name the other with --eval")
    examples = [e for e, leak in _alike(found, t) if leak]
    if examples:
        message = f"{len(examples):,} records of the evaluation side are nearly the same as one of the training data"
        yield found.tell("TPD163", WARN, message, examples, metric="similarity", near_similarity=t.near_similarity)


@check("TPD131", "same-prompt-other-answer", WARN, "chat", fix="Keep the best answer, unless several are meant.")
def same_prompt_other_answer(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """The same prompt has different answers.

    Why it matters
    The model learns their average; a prompt that is always the same may mean that a field with the question was not read.

    False positives
    Several samples a prompt on purpose, and open tasks. Answers that are labelled as wanted or not (KTO) are not compared.
    """
    if (labels := found.counters.get("label")) and set(labels) <= {"True", "False"}:
        raise CannotTell("labels tell which answers are wanted")
    table = found.table("samples")
    if not table:
        raise CannotTell("no records with text")
    asked = (table["prompt"] != 0) & (table["answer"] > 0)
    place, prompt, text = table["place"][asked], table["prompt"][asked], table["text"][asked]
    again, chief = repeats(prompt)
    other = text[again] != text[chief]
    again, chief = again[other], chief[other]
    if len(again):
        examples = _as_in(found, place, found.to_tell(again), found.to_tell(chief), "the prompt of")
        severity = WARN if found.share(len(again)) > t.prompts_warn else INFO
        message = f"{found.counted(len(again))} answer an earlier prompt in another way"
        yield found.tell("TPD131", severity, message, examples, prompts_warn=t.prompts_warn)


@check("TPD111", "length-outlier", INFO, *TEXTUAL, fix="Look at them: often several records were glued together.")
def length_outlier(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """A record is many times as long as 99 % of the others.

    Why it matters
    It sets the memory of its batch, and most of it is cut off.

    False positives
    Data with books among sentences, hence INFO.
    """
    table = found.table("samples")
    if not table or len(table["place"]) < t.length_records:
        raise CannotTell("too few records")
    limit = t.length_times * float(np.percentile(table["length"], 99))
    long = np.flatnonzero(table["length"] > limit)
    examples = [Example(int(table["place"][i]), float(table["length"][i]), "") for i in long]
    if examples:
        message = f"{found.counted(len(examples))} are longer than {limit:,.0f} characters"
        yield found.tell("TPD111", INFO, message, examples, metric="characters", length_times=t.length_times)


@check("TPD116", "rare-script", INFO, *TEXTUAL, fix="Look at them: they may be in another language than the data.")
def rare_script(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """A record is written in a script that few others have.

    Why it matters
    Records in another language come from filters that failed; the model learns to change the language.

    False positives
    Data about languages, hence INFO.
    """
    table = found.table("samples")
    if not table or len(table["place"]) < t.script_records:
        raise CannotTell("too few records")
    script = table["script"]
    counts = np.bincount(script, minlength=len(SCRIPTS))
    rare = (counts > 0) & (counts < t.script_rare * len(script))
    rare[SCRIPT_NUMBERS["none"]] = False
    examples = [Example(int(table["place"][i]), math.nan, SCRIPTS[script[i]]) for i in np.flatnonzero(rare[script])]
    if examples:
        names = sorted(SCRIPTS[i] for i in np.flatnonzero(rare))
        message = f"{found.counted(len(examples))} are in {', '.join(names)}, as few are"
        yield found.tell("TPD116", INFO, message, examples, script_rare=t.script_rare)


@check(
    "TPD118",
    "over-context",
    FAIL,
    *TEXTUAL,
    fix="Split or shorten the records, or raise the length if the model allows it.",
)
def over_context(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """A record has more tokens than --max-length, as the tokenizer of --tokenizer counts them (without the template's own tokens).

    Why it matters
    What is over the limit is cut off or dropped without a word.

    False positives
    Trainers that pack texts lose nothing.
    """
    if found.options.trainer is not None:
        raise CannotTell("TPD302 tells it for the trainer")
    tokens, place, most = _tokens(found)
    over = np.flatnonzero(tokens > most)
    if len(over):
        examples = (Example(int(place[i]), float(tokens[i]), "") for i in over)
        share = found.share(len(over))
        severity = FAIL if share > t.over_fail else WARN if share > t.over_warn else INFO
        message = f"{found.counted(len(over))} have more than {most:,} tokens"
        yield found.tell(
            "TPD118", severity, message, examples, metric="tokens", over_warn=t.over_warn, over_fail=t.over_fail
        )


@check(
    "TPD136", "answer-cut-off", FAIL, *DIALOGUE, fix="Shorten the prompts, cut from the left, or leave the records out."
)
def answer_cut_off(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """The prompt alone fills --max-length: the cut takes the whole answer.

    Why it matters
    With the prompt masked no label is left: the loss of the record is 0 or NaN, and a batch of such records breaks a run.

    False positives
    Trainers that cut from the left.
    """
    if found.options.trainer is not None and TRAINERS[found.options.trainer].keeps_answer:
        raise CannotTell(f"{found.options.trainer} leaves such records out, or cuts the prompt")
    _, place, most = _tokens(found)
    table = found.table("samples")
    lost = np.flatnonzero((table["before"] >= most) & (table["answer"] > 0))
    if len(lost):
        examples = (Example(int(place[i]), float(table["before"][i]), "") for i in lost)
        message = f"{found.counted(len(lost))} lose their whole answer to a limit of {most:,} tokens"
        yield found.tell("TPD136", FAIL, message, examples, metric="prompt tokens")


def _tokens(found: Found) -> tuple[NDArray[Any], Places, int]:
    table = found.table("samples")
    if found.options.max_length is None or found.options.tokenizer is None:
        raise CannotTell("give --max-length and --tokenizer")
    if not table:
        raise CannotTell("no records with text")
    return table["tokens"], table["place"], found.options.max_length
