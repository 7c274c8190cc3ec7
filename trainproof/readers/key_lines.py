"""On which source line each key of many JSON objects stands, worked out for all of them at once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from trainproof.frame import Ints
from trainproof.readers.columns import Cells, LineOf
from trainproof.readers.values import clean_name


class KeyLines(NamedTuple):
    """The line of each object, shape (n,), and of each of its keys."""

    records: Ints
    of: LineOf


def key_lines(text: bytes, line: int, cells: Mapping[str, Cells], size: int) -> KeyLines | None:
    """The lines of the `size` objects in `text`, which begins on `line`; `cells` has their keys in the text's order.

    They stand all on one line, or each brace and each key on its own line; None when they are laid out in another way.
    """
    newlines = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n"))
    if not len(newlines):
        return KeyLines(np.full(size, line), lambda _, rows: np.full(size if rows is None else len(rows), line))
    counts = np.zeros(size, np.int64)
    for rows, _ in cells.values():
        counts[slice(None) if rows is None else rows] += 1
    ends = np.cumsum(counts + 2)
    if ends[-1] != len(newlines):
        return None
    braces = ends - counts - 2  # the index of the line end before each opening brace
    keys = _places(text, newlines, cells, braces + 1)
    if keys is None:
        return None
    return KeyLines(braces + line + 1, lambda name, rows: keys[name][slice(None) if rows is None else rows] + line + 1)


@lru_cache(1024)
def _spelled(key: str) -> bytes:
    return f"{json.dumps(key)}:".encode()


def _places(text: bytes, newlines: Ints, cells: Mapping[str, Cells], following: Ints) -> dict[str, Ints] | None:
    """For each key the index of the line end before it in each object; None when one is not where it should be."""
    first = text[newlines[1] + 1 : newlines[2]] if len(newlines) > 2 else b""
    indent = len(first) - len(first.lstrip())
    places = {}
    following = following.copy()
    for key, (rows, _) in cells.items():
        index = slice(None) if rows is None else rows
        spelled = _spelled(key)
        begins = newlines[following[index]] + 1 + indent
        places_left = len(text) - len(spelled) + 1
        if begins.max() >= places_left:
            return None
        windows = np.ndarray((places_left, len(spelled)), np.uint8, text, strides=(1, 1))
        if not (windows[begins] == np.frombuffer(spelled, np.uint8)).all():
            return None
        places[clean_name(key)] = following.copy()
        following[index] += 1
    return places
