"""Many texts at once: which of them may hold anything that a pattern looks for. Those are looked at by the patterns themselves.

Most bytes are letters that begin nothing odd. They are deleted in one pass, and what is left is short enough to be searched often.
Deleting joins what stood apart, so that too many texts may be named, never too few.
"""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from trainproof.preflight.characters import odd_at

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
#: what is left, beside the ! of markup and control characters: of numbers of people (000-00-0000, +00 000, (000) 000) and
#: of cards; of "AI"; and of keys (AKIA, sk-, xoxb-, -----BEGIN; those with an underscore are !)
_LEFT = (b"00-00-0000", b"+0", b"(000", b"0" * 16, b"0000-0000-", b"AI", b"AKIA", b"k-", b"xx-", b"-----")
#: escapes in JSON of what is no line end, tab, quote or slash
_ESCAPE = re.compile(rb'\\[^nrt"/]')


def suspects(texts: Sequence[str], encoded: Sequence[bytes]) -> list[int]:
    """Which texts may hold what `screens.screen` finds, AI, a code fence or a block of thoughts; in order. encoded: the same in UTF-8."""
    left = _SEPARATOR.join(encoded).translate(_TEXTS, _DELETED + b"\n")
    found = _suspicious(left, _SEPARATOR)
    beyond = [i for i, text in enumerate(texts) if not text.isascii()]
    found.update(beyond[i] for i in _odd_parts([texts[i] for i in beyond]))
    return sorted(found)


def suspect_lines(lines: bytes) -> list[int] | None:
    """The same of lines of JSON, each with texts and lower-case names in one list; None where that is told sooner of what they decode to. None may be empty."""
    escaped = b"\\" in lines  # asked first: a single sign is found at once
    if escaped and b"\\u" in lines:
        return None
    left = lines.translate(_LINES, _DELETED + b"\\{}]")
    found = _suspicious(left, b"\n")
    if escaped:
        found.update(_lines_at(lines, [seen.start() for seen in _ESCAPE.finditer(lines)]))
    if not lines.isascii():
        found.update(_odd_parts(lines.replace(b"\\n", b"  ").decode().split("\n")))
    if left.count(b"[") > left.count(b"\n") + (not left.endswith(b"\n")):
        brackets = _lines_at(left, np.flatnonzero(np.frombuffer(left, np.uint8) == ord("[")))
        found.update(i for i, j in pairwise(brackets) if i == j)
    return sorted(found)


def _odd_parts(texts: list[str]) -> list[int]:
    """Which texts have anything odd beyond ASCII."""
    ends = np.cumsum([len(text) + 1 for text in texts])
    found: list[int] = np.searchsorted(ends, odd_at("\n".join(texts)), "right").tolist() if texts else []
    return found


def _lines_at(lines: bytes, at: NDArray[np.int64] | list[int]) -> list[int]:
    """Which lines the bytes are in."""
    ends = np.flatnonzero(np.frombuffer(lines, np.uint8) == ord("\n"))
    found: list[int] = np.searchsorted(ends, at).tolist()
    return found


def _suspicious(left: bytes, separator: bytes) -> set[int]:
    """Which parts have a ! or anything of _LEFT."""
    signs = np.frombuffer(left, np.uint8)
    ends = np.flatnonzero(signs == separator[0])
    found = set(np.searchsorted(ends, np.flatnonzero(signs == ord("!"))).tolist())
    stops = [*ends.tolist(), len(left)]
    for needle in _LEFT:
        at = left.find(needle)
        while at >= 0:
            part = bisect(stops, at)
            found.add(part)
            at = left.find(needle, stops[part])
    return found
