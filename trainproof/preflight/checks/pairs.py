"""Preference pairs, and labels."""

from __future__ import annotations

import math
from collections.abc import Iterator

from trainproof.preflight.checks.registry import FAIL, INFO, TEXTUAL, WARN, check
from trainproof.preflight.found import Example, Found, seen
from trainproof.rules.registry import CannotTell, Sighting
from trainproof.thresholds import DataThresholds


@check("TPD151", "chosen-equals-rejected", FAIL, "preference", fix="Leave it out.")
def chosen_equals_rejected(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """The chosen and the rejected answer are the same.

    Why it matters
    The pair has no gradient, or a wrong one.

    False positives
    None known.
    """
    yield from found.told("TPD151", FAIL, "have the same answer on both sides")


@check("TPD152", "empty-side", FAIL, "preference", fix="Leave it out.")
def empty_side(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """The chosen or the rejected answer is empty.

    Why it matters
    The model learns to end at once, or that any text is better than none.

    False positives
    None known.
    """
    yield from found.told("TPD152", FAIL, "have an empty side")


@check("TPD153", "prompts-differ", FAIL, "preference", fix="Make the sides share their turns up to the answer.")
def prompts_differ(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """The two sides of a pair have different prompts.

    Why it matters
    Preference losses compare two answers to one prompt; trainers take the prompt of one side.

    False positives
    Pairs of whole conversations, which few losses are made for.
    """
    yield from found.told("TPD153", FAIL, "have different prompts on their sides")


@check("TPD154", "length-bias", INFO, "preference", fix="Add pairs whose shorter answer is the better one.")
def length_bias(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """The chosen answer is nearly always the longer one.

    Why it matters
    Length is the easiest thing to learn: the model writes longer, not better.

    False positives
    None known, but length may be what is wanted, hence INFO.
    """
    longer = found.table("pairs").get("longer")
    if longer is None or len(longer) < t.longer_records:
        raise CannotTell("too few pairs")
    share = float((longer > 0).mean())
    if share >= t.longer_share:
        yield seen(
            INFO, f"the chosen answer is the longer one in {share:.1%} of the pairs", (), longer_share=t.longer_share
        )


@check("TPD156", "contradicting-pairs", WARN, "preference", fix="Keep the side that is right.")
def contradicting_pairs(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """What one pair prefers, another one to the same prompt rejects, with the same two answers.

    Why it matters
    The pairs cancel out; often columns were swapped in a part of the data.

    False positives
    Judges that disagree.
    """
    table = found.table("pairs")
    if not table:
        return
    swapped = dict(
        zip(
            zip(table["rejected"].tolist(), table["chosen"].tolist(), strict=True), table["place"].tolist(), strict=True
        )
    )
    examples = [
        Example(place, math.nan, f"the other way round in {found.named(swapped[pair])}")
        for *pair_, place in zip(
            table["chosen"].tolist(), table["rejected"].tolist(), table["place"].tolist(), strict=True
        )
        if (pair := tuple(pair_)) in swapped and pair[0] != pair[1]
    ]
    if examples:
        yield found.tell("TPD156", WARN, f"{found.counted(len(examples))} prefer what another pair rejects", examples)


@check("TPD155", "label-distribution", FAIL, *TEXTUAL, fix="Add records of the labels that are rare.")
def label_distribution(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """All records have the same label, or a label is rare.

    Why it matters
    With one label there is nothing to learn.

    False positives
    Rare labels are told as INFO: the world has them.
    """
    labels = found.counters.get("label")
    if not labels or labels.total() < t.label_records:
        raise CannotTell("no labels, or too few")
    if len(labels) == 1:
        yield seen(FAIL, f"all {labels.total():,} records have the label {next(iter(labels))}", ())
        return
    rare = sorted(label for label, count in labels.items() if count < t.label_rare * labels.total())
    if rare and len(labels) <= t.label_records:
        names = ", ".join(rare[:5])
        yield seen(INFO, f"{len(rare)} of {len(labels)} labels are rare: {names}", (), label_rare=t.label_rare)
