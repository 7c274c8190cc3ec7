"""Many characters at once, by tables of their code points: what is odd about them, and what script they are of."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

_SCRIPTS = (
    ("Latin", 0x0041, 0x024F),
    ("Greek", 0x0370, 0x03FF),
    ("Cyrillic", 0x0400, 0x052F),
    ("Hebrew", 0x0590, 0x05FF),
    ("Arabic", 0x0600, 0x06FF),
    ("Devanagari", 0x0900, 0x097F),
    ("Bengali", 0x0980, 0x09FF),
    ("Tamil", 0x0B80, 0x0BFF),
    ("Thai", 0x0E00, 0x0E7F),
    ("Georgian", 0x10A0, 0x10FF),
    ("Kana", 0x3040, 0x30FF),
    ("Han", 0x3400, 0x9FFF),
    ("Hangul", 0xAC00, 0xD7A3),
)
#: the scripts by their numbers in tables
SCRIPTS = ("none", "other", *[name for name, _, _ in _SCRIPTS])
SCRIPT_NUMBERS = {name: number for number, name in enumerate(SCRIPTS)}
#: characters of a text that tell its script
MOST_CHARACTERS = 200

#: bits: odd by itself; Latin, and the letters that are mistaken for them; the letter and the sign of UTF-8 that was read as Windows-1252
_ODD, _LATIN, _ALIKE, _LEAD, _SIGN = 1, 4, 8, 16, 32
#: hidden; of decomposed letters; what replaces; halves of surrogate pairs
_ODD_ONES = (
    range(0xAD, 0xAE), range(0x200B, 0x200C), range(0x200E, 0x2010), range(0x202A, 0x202F), range(0x2060, 0x2065), range(0x2066, 0x206A),
    range(0xFEFF, 0xFF00), range(0xE0020, 0xE0080), range(0x300, 0x32A), range(0xFFFD, 0xFFFE), range(0xD800, 0xE000),
)  # fmt: skip
_ALIKE_ONES = (range(0x391, 0x3CA), range(0x400, 0x500))
_LEADS = "\u00c3\u00c2\u00e2\u00d0\u00f0\u00ef"
#: what each text has that has anything odd beyond ASCII
_ANY = re.compile(f"[{_LEADS}{''.join(f'{chr(ones[0])}-{chr(ones[-1])}' for ones in (*_ODD_ONES, *_ALIKE_ONES))}]")
_ASCII = bytes(range(128))

Numbers = NDArray[Any]


def is_odd(text: str, encoded: bytes) -> bool:
    """Whether `odd_at` finds anything. encoded: the text as UTF-8."""
    beyond = encoded.translate(None, _ASCII).decode("utf-8", "surrogatepass")
    return _ANY.search(beyond) is not None and len(odd_at(text)) > 0


def odd_at(text: str) -> NDArray[np.int64]:
    """Where there may be what the patterns for texts beyond ASCII look for in `screens`."""
    codes, table = _codes(text), _oddities()
    kinds = table[np.minimum(codes, len(table) - 1)]
    this, then = kinds[:-1], kinds[1:]
    mixed = (this & _LATIN) & (then & _ALIKE) >> 1 | (this & _ALIKE) >> 1 & (then & _LATIN)
    odd = kinds & _ODD
    odd[1:] |= mixed | (this & _LEAD) & (then & _SIGN) >> 1
    return np.flatnonzero(odd)


def scripts_of(texts: Sequence[str]) -> NDArray[np.uint8]:
    """The number of the script of most of the letters among the first characters of each text; of ASCII, whether there are letters."""
    heads = [text[:MOST_CHARACTERS] for text in texts]
    codes, table = _codes("".join(heads)), _script_table()
    found = table[np.minimum(codes, len(table) - 1)].astype(np.int64)
    rows = np.repeat(np.arange(len(texts)), list(map(len, heads)))
    counts = np.bincount(rows * len(SCRIPTS) + found, minlength=len(texts) * len(SCRIPTS)).reshape(-1, len(SCRIPTS))
    counts[:, SCRIPT_NUMBERS["none"]] = 0
    scripts: NDArray[np.uint8] = counts.argmax(axis=1).astype(np.uint8)
    for i in np.flatnonzero(scripts == SCRIPT_NUMBERS["none"]).tolist():
        if texts[i].isascii() and any(map(str.isalpha, texts[i])):
            scripts[i] = SCRIPT_NUMBERS["Latin"]
    return scripts


def _codes(text: str) -> Numbers:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")


@cache
def _oddities() -> NDArray[np.uint8]:
    """Code point -> its bits; the last one stands for all that follow."""
    table = np.zeros(max(map(max, _ODD_ONES)) + 2, np.uint8)
    _mark(table, _ODD, chain(*_ODD_ONES))
    _mark(table, _LATIN, map(ord, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"))
    _mark(table, _LATIN, range(0xC0, 0x250))
    _mark(table, _ALIKE, chain(*_ALIKE_ONES))
    _mark(table, _LEAD, map(ord, _LEADS))
    _mark(table, _SIGN, range(0x80, 0xC0))
    _mark(table, _SIGN, map(ord, bytes(set(range(0x80, 0xA0)) - {0x81, 0x8D, 0x8F, 0x90, 0x9D}).decode("cp1252")))
    return table


def _mark(table: NDArray[np.uint8], bit: int, codes: Iterable[int]) -> None:
    table[list(codes)] |= bit


@cache
def _script_table() -> NDArray[np.uint8]:
    """Code point -> the number of its script, "none" for what is no letter; the last one, Han, stands for all that follow."""
    table = np.zeros(0x20001, np.uint8)
    table[[code for code in range(len(table)) if chr(code).isalpha()]] = SCRIPT_NUMBERS["other"]
    for name, low, high in _SCRIPTS:
        letters = table[low : high + 1]
        letters[letters > 0] = SCRIPT_NUMBERS[name]
    table[-1] = SCRIPT_NUMBERS["Han"]
    return table
