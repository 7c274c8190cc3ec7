"""Many texts at once: which of them may hold anything that a pattern looks for. Those are looked at by the patterns themselves.

Most bytes are letters that begin nothing odd. They are deleted in one pass, and what is left is short enough to be searched often.
Deleting joins what stood apart, so that too many texts may be named, never too few.
"""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

#: between two texts; no byte of UTF-8
_SEPARATOR = b"\xff"
_DELETED = b" \t\r\"',abcdefghijlmnopqrstuvwyz"


def _classes(kept: bytes) -> bytes:
    """Byte -> 0 for a digit, ! for what is worth a look by itself, itself for what patterns begin with and what is to be kept, or a full stop."""
    table = bytearray(b"." * 256)
    for byte in b"0123456789":
        table[byte] = ord("0")
    for byte in (*b"<[&@\\`_", *range(9), 11, 12, *range(14, 32), 127):
        table[byte] = ord("!")
    for byte in b"-+(AIKkx" + kept:
        table[byte] = byte
    return bytes(table)


_TEXTS, _LINES = _classes(_SEPARATOR), _classes(b"\n[")
#: what is left of markup and control characters; of numbers of people (000-00-0000, +00 000, (000) 000) and
#: of cards; of "AI"; and of keys (AKIA, sk-, xoxb-, -----BEGIN; those with an underscore are !)
_LEFT = (b"!", b"00-00-0000", b"+0", b"(000", b"0" * 16, b"0000-0000-", b"AI", b"AKIA", b"k-", b"xx-", b"-----")
#: escapes in JSON of what is no line end, tab, quote or slash
_ESCAPE = re.compile(rb'\\[^nrt"/]')


def suspects(texts: Sequence[bytes]) -> list[int]:
    """Which texts, in UTF-8, may hold what `screens.screen` finds, AI, a code fence or a block of thoughts; in order."""
    joined = _SEPARATOR.join(texts)
    found = set(_parts_with(joined.translate(_TEXTS, _DELETED + b"\n"), _LEFT, _SEPARATOR))
    if not all(map(bytes.isascii, texts)):
        found.update(i for i, text in enumerate(texts) if not text.isascii())
    return sorted(found)


def suspect_lines(lines: bytes) -> list[int]:
    """The same of lines of JSON, each with texts and lower-case names in one list. None may be empty."""
    left = lines.translate(_LINES, _DELETED + b"\\{}]")
    found = set(_parts_with(left, _LEFT, b"\n"))
    if not lines.isascii():
        found.update(_lines_at(lines, np.flatnonzero(np.frombuffer(lines, np.uint8) > 127)))
    if b"\\" in lines:
        found.update(_lines_at(lines, [seen.start() for seen in _ESCAPE.finditer(lines)]))
    if left.count(b"[") > left.count(b"\n") + (not left.endswith(b"\n")):
        brackets = _lines_at(left, np.flatnonzero(np.frombuffer(left, np.uint8) == ord("[")))
        found.update(i for i, j in pairwise(brackets) if i == j)
    return sorted(found)


def _lines_at(lines: bytes, at: NDArray[np.int64] | list[int]) -> list[int]:
    """Which lines the bytes are in."""
    ends = np.flatnonzero(np.frombuffer(lines, np.uint8) == ord("\n"))
    found: list[int] = np.searchsorted(ends, at).tolist()
    return found


def _parts_with(joined: bytes, needles: Sequence[bytes], separator: bytes) -> Iterator[int]:
    needles = [needle for needle in needles if needle in joined]
    if not needles:
        return
    ends = [*np.flatnonzero(np.frombuffer(joined, np.uint8) == separator[0]).tolist(), len(joined)]
    for needle in needles:
        at = joined.find(needle)
        while at >= 0:
            part = bisect(ends, at)
            yield part
            at = joined.find(needle, ends[part])
