"""The header of a CSV or TSV: where it stands, how its cells are parted, and what its columns are called."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from typing import NamedTuple

from trainproof.names import EPOCH_NAMES, STEP_NAMES, looks_like_metric, plain
from trainproof.readers.values import clean_name, parse_number

COMMENT = "#"
#: tried in this order; a blank stands for a run of them
DELIMITERS = (",", "\t", ";", "|", " ")
#: longer names are sentences
LONGEST_NAME = 200

#: headers that do not say by names that they are of a training log: a scalar downloaded from TensorBoard, and the reward, length and
#: time of each episode in a monitor file of stable-baselines3
TENSORBOARD = ("wall_time", "step", "value")
MONITOR = ("r", "l", "t")
#: where only blanks part the cells, names are single words without the punctuation of sentences and of code
_WORD = re.compile(r"[\w./@:()\[\]%+-]*\w[\w./@()\[\]%]*")


class Table(NamedTuple):
    """What the header says: the delimiter (a blank: runs of them), the columns' names, and its line, from 1."""

    delimiter: str
    names: tuple[str, ...]
    line: int


def find_table(lines: Sequence[str]) -> Table | None:
    """The table whose header is the first line that is neither blank nor a comment; None when it is none.

    Where numbers come first, the comment before them may be the header, as numpy.savetxt writes it.
    """
    comment = None
    for line, text in enumerate(lines, 1):
        if text.startswith(COMMENT):
            comment = Table("", (text.lstrip(COMMENT),), line)
        elif text.strip():
            table = _table(text, line)
            if table is None and comment is not None:
                table = _table(comment.names[0], comment.line)
            return table
    return None


def _table(text: str, line: int) -> Table | None:
    for delimiter in DELIMITERS:
        names = tuple(cell.strip() for cell in cells_of(text, delimiter))
        if _are_names(names, delimiter) and known_columns(names):
            return Table(delimiter, names, line)
    return None


def _are_names(names: Sequence[str], delimiter: str) -> bool:
    """Two or more names, at most one of them blank (pandas leaves its index without one), none of them a number."""
    if len(names) < 2 or sum(not name for name in names) > 1:
        return False
    if any(len(name) > LONGEST_NAME or parse_number(name) is not None for name in names):
        return False
    return delimiter != " " or all(_WORD.fullmatch(name) for name in names)


def known_columns(names: Sequence[str]) -> list[int]:
    """The columns whose names say that this is a training log: they count records, or are metrics."""
    lowered = [plain(name) for name in names]
    if tuple(lowered) == TENSORBOARD or tuple(lowered[:3]) == MONITOR:
        return [0, 1, 2]
    return [
        i
        for i, (name, low) in enumerate(zip(names, lowered, strict=True))
        if low in STEP_NAMES or low in EPOCH_NAMES or looks_like_metric(name)
    ]


def cells_of(text: str, delimiter: str) -> list[str]:
    """The cells of one line, unquoted; padding is left on. A quote that does not end is taken for a character."""
    if '"' not in text:
        return text.split() if delimiter == " " else text.split(delimiter)
    if delimiter == " ":
        text = " ".join(text.split())
    try:
        return next(csv.reader([text.strip()], delimiter=delimiter, skipinitialspace=True, strict=True), [""])
    except csv.Error:
        return text.split(delimiter)


def is_repeated(text: str, table: Table) -> bool:
    """Whether a line is the header again."""
    return tuple(cell.strip() for cell in cells_of(text, table.delimiter)) == table.names


def metric_names(table: Table) -> list[str]:
    """The name under which each column is logged; repeated ones are numbered, so that none hides another."""
    seen: dict[str, int] = {}
    names = []
    for name in table.names:
        seen[name] = seen.get(name, 0) + 1
        names.append(clean_name(name) if seen[name] == 1 else clean_name(f"{name}~{seen[name]}"))
    return names
