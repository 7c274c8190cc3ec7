"""Files and rows that cannot be read as what they are."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np

from trainproof.preflight.checks.registry import FAIL, INFO, TEXTUAL, WARN, check
from trainproof.preflight.found import ROW_BITS, Found
from trainproof.preflight.turns import layout_of
from trainproof.rules.registry import Sighting
from trainproof.thresholds import DataThresholds


@check("TPD001", "unreadable-file", FAIL, "speech", *TEXTUAL, fix="Make the file again, or leave it out.")
def unreadable_file(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """A file of the data cannot be read to its end.

    Why it matters
    What it holds is not trained on, or the run stops at it.

    False positives
    A file that is being written.
    """
    yield from found.told("TPD001", FAIL, "cannot be read")


@check(
    "TPD002",
    "undecodable-bytes",
    WARN,
    "speech",
    *TEXTUAL,
    fix="Decode the source with the encoding that it has, and write UTF-8.",
)
def undecodable_bytes(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """A record has bytes that are no UTF-8.

    Why it matters
    Loaders stop at them, or put replacement characters into the text.

    False positives
    None known: bytes decide.
    """
    yield from found.told("TPD002", WARN, "have bytes that are no UTF-8")


@check(
    "TPD003", "malformed-row", FAIL, "speech", *TEXTUAL, fix="Write the row again; --rejects FILE names all of them."
)
def malformed_row(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """A row is no record: broken JSON, another number of columns, no object.

    Why it matters
    Loaders stop at it, or leave it out without a word.

    False positives
    None known.
    """
    yield from found.told("TPD003", FAIL, "cannot be parsed")


@check("TPD004", "overlong-row", FAIL, "speech", *TEXTUAL, fix="Leave it out, or split it.")
def overlong_row(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """A row is longer than 64 MiB and was not read.

    Why it matters
    No trainer can use it, and many run out of memory at it.

    False positives
    A file that is no JSONL at all.
    """
    yield from found.told("TPD004", FAIL, "are too long to be read")


@check("TPD005", "wrong-layout", FAIL, *TEXTUAL, fix="Convert the records to one layout.")
def wrong_layout(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """A record has another layout than the data, or none that is known.

    Why it matters
    The trainer reads the fields of one layout; a record without them is lost, or stops the run.

    False positives
    Files of several datasets in one folder: a file whose records are all of another layout is WARN. Where no record has a layout that
    is known, all their texts are read, and it is INFO.
    """
    places = found.places("TPD005")
    if not len(places):
        yield from _no_layout(found)
        return
    files = np.unique(places >> ROW_BITS)
    read = np.setdiff1d(found.table("samples").get("place", places[:0]), places, assume_unique=True) >> ROW_BITS
    apart = len(files) < len(found.files) and not np.isin(files, read).any()
    yield from found.told(
        "TPD005", WARN if apart else FAIL, "have another layout than the others, or none that is known"
    )


def _no_layout(found: Found) -> Iterator[Sighting]:
    """Records whose texts were read from whatever fields they have."""
    shapes = {label: [name for name, _ in json.loads(label)] for label in found.counters.get("shapes", ())}
    unknown = {
        label: found.counters["shapes"][label] for label in shapes if layout_of(frozenset(shapes[label])) is None
    }
    if unknown:
        usual = max(sorted(unknown), key=unknown.__getitem__)
        names = ", ".join(shapes[usual][:8])
        message = (
            f"{found.counted(sum(unknown.values()))} have no layout that is known; all their texts are read: {names}"
        )
        yield found.tell("TPD005", INFO, message, found.examples(f"shape {usual}"))


@check("TPD009", "kills-its-reader", FAIL, "speech", *TEXTUAL, fix="Leave out what is named, or make it again.")
def kills_its_reader(found: Found, t: DataThresholds) -> Iterator[Sighting]:
    """The process that read a part of the data died.

    Why it matters
    The trainer's data loader would die of it too.

    False positives
    A machine that ran out of memory.
    """
    yield from found.told("TPD009", FAIL, "killed the process that read them")
