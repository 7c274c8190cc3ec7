"""Many texts at once: which of them may hold anything that a pattern looks for. Those are looked at by the patterns themselves.

Most bytes are letters that begin nothing odd. They are deleted in one pass, and what is left is short enough to be searched often.
Deleting joins what stood apart, so that too many texts may be named, never too few.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator, Sequence

import numpy as np

#: between two texts; no byte of UTF-8
_SEPARATOR = b"\xff"
_DELETED = b" \t\n\r\"',abcdefghijlmnopqrstuvwyz"


def _classes() -> bytes:
    """Byte -> 0 for a digit, ! for what is worth a look by itself, itself for what patterns begin with, or a full stop."""
    table = bytearray(b"." * 256)
    for byte in b"-+(AIKkx" + _SEPARATOR:
        table[byte] = byte
    for byte in b"0123456789":
        table[byte] = ord("0")
    for byte in (*b"<[&@\\`_", *range(9), 11, 12, *range(14, 32), 127):
        table[byte] = ord("!")
    return bytes(table)


_CLASSES = _classes()
#: what is left of markup and control characters; of numbers of people (000-00-0000, +00 000, (000) 000) and
#: of cards; of "AI"; and of keys (AKIA, sk-, xoxb-, -----BEGIN; those with an underscore are !)
_LEFT = (b"!", b"00-00-0000", b"+0", b"(000", b"0" * 16, b"0000-0000-", b"AI", b"AK", b"k-", b"xx-", b"-----")
#: signs that some of them have, and that are looked for at once; where one is missing, so are they
_MARKS = (b"-", b"+", b"(", b"I", b"K")
#: what leaves nothing that is rare
_PHRASES = (b"large language model", b"created by Anthropic")


def suspects(texts: Sequence[bytes]) -> list[int]:
    """Which texts, in UTF-8, may hold what `screens.screen` finds, a language model's name, a code fence or a block of thoughts; in order."""
    joined = _SEPARATOR.join(texts)
    left = joined.translate(_CLASSES, _DELETED)
    missing = [mark for mark in _MARKS if mark not in left]
    needles = [needle for needle in _LEFT if not any(mark in needle for mark in missing)]
    found = {*_texts_with(left, needles), *_texts_with(joined, _PHRASES)}
    if not all(map(bytes.isascii, texts)):
        found.update(i for i, text in enumerate(texts) if not text.isascii())
    return sorted(found)


def _texts_with(joined: bytes, needles: Sequence[bytes]) -> Iterator[int]:
    needles = [needle for needle in needles if needle in joined]
    if not needles:
        return
    ends = [*np.flatnonzero(np.frombuffer(joined, np.uint8) == _SEPARATOR[0]).tolist(), len(joined)]
    for needle in needles:
        at = joined.find(needle)
        while at >= 0:
            text = bisect(ends, at)
            yield text
            at = joined.find(needle, ends[text])
