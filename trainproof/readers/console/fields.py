"""The fields of a record line: `key: value`, `key=value`, `key value`, quoted or not, with units, in any company.

A line whose fields were found has a shape: its keys and what stands between them. Lines of one shape are read by one
regular expression that is made from the first few of them.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from trainproof.frame import Floats
from trainproof.readers.values import clean_name, parse_number

_NUMBER = (
    rb"[-+]?(?:\d{1,3}(?:,\d{3})++(?:\.\d*)?|\d++(?:\.\d*+)?|\.\d++)(?:[eE][-+]?\d++)?"
    rb"|[-+]?(?:nan|NaN|NAN|inf|Inf|INF|[iI]nfinity)(?=m?s\b|%|\W|$)"
)
_KEY = rb"[A-Za-z_][\w./()@%^+~-]{0,80}+(?: [A-Za-z_(.@][\w./()@%^+~-]{0,80}+){0,5}?"
_OPENED = rb"['\"\[(]*(?P<value>" + _NUMBER + rb")(?P<unit>[A-Za-z%]*+)"
_VALUE_AND_UNIT = _OPENED + rb"(?![\d:_]|[.,]\d|-\d|[ \t]days?\b)"
#: where a word begins; after a brace it is a placeholder of source code
_BEGIN = rb"(?<![\w./@%^+~{-])"
#: a key is one to six words; bounded, and begun only where a word begins, so that no text takes more than linear time
FIELD = re.compile(
    _BEGIN + rb"(?P<key>" + _KEY + rb")['\"]?(?:[ \t]*[:=][ \t]*|[ \t]+(?!nan iterations))" + _VALUE_AND_UNIT
)
#: words that count records; the last word of a key that ends in one says so
COUNTERS = (
    "step",
    "steps",
    "iteration",
    "iterations",
    "iter",
    "iters",
    "update",
    "updates",
    "batch",
    "epoch",
    "episode",
    "round",
)
#: in the lines of no known logger a key is followed by a colon or an equals sign, unless it is a counter or a loss
_SPOKEN = rb"(?i:" + "|".join(COUNTERS).encode() + rb"|(?:[a-z]{1,12}[ _])?loss|lr|acc)"
STRICT_FIELD = re.compile(
    _BEGIN
    + rb"(?P<key>(?P<spoken>"
    + _SPOKEN
    + rb"(?=[ \t:=#(\[\"']))|"
    + _KEY
    + rb")['\"]?"
    + rb"(?(spoken)[ \t]*[:=#]?[ \t]*|[ \t]*[:=][ \t]*)"
    + _OPENED
    + rb"(?![\d_]|:\d|[.,]\d|-\d|[ \t]days?\b)"
)
_RUN = re.compile(rb"[A-Za-z]+|[^A-Za-z]+")
_VALUE = rb"([-+.0-9eE]++|[-+]?(?i:nan|inf(?:inity)?))"
#: the same for values that no letter follows: quicker, and what is no number is found out when it is converted
_LONE_VALUE = rb"([-+.0-9aefintyAEFIN]++)"
_GROUPED_VALUE = rb"([-+]?[0-9,]++(?:\.[0-9]*+)?)"


def fields_of(text: bytes, field: re.Pattern[bytes] = FIELD) -> tuple[tuple[str, ...], list[bytes]]:
    """The names of the fields in `text`, and their values as they are spelled."""
    found = [(match["key"], match["value"]) for match in field.finditer(text)]
    return tuple(_name(key) for key, _ in found), [value for _, value in found]


def shape_of(text: bytes, field: re.Pattern[bytes] = FIELD) -> bytes:
    """The regular expression of all texts with the same fields as `text`, a group a value."""
    parts: list[bytes] = []
    at = 0
    for match in field.finditer(text):
        begin, end = match.span("value")
        key_begin, key_end = match.span("key")
        parts += [_gap(text[at:key_begin]), re.escape(match["key"]), _gap(text[key_end:begin])]
        parts.append(_GROUPED_VALUE if b"," in match["value"] else _VALUE if match["unit"] else _LONE_VALUE)
        at = end
    return b"".join(parts) + _gap(text[at:])


def _name(key: bytes) -> str:
    return clean_name(key.decode("utf-8", "replace"))


def _gap(text: bytes) -> bytes:
    """What stands between a value and the next key: any numbers in it, and any amount of blanks, may differ."""
    return b"".join(map(_loosely, _RUN.findall(text)))


def _loosely(run: bytes) -> bytes:
    """The regular expression of a run of letters, or of anything but letters."""
    if any(digit in run for digit in b"0123456789"):
        return rb"[^A-Za-z\n]++"
    return b" ++".join(re.escape(part) for part in re.split(rb" +", run))


_NUMBERS = msgspec.json.Decoder(list[float]).decode


class Cells(NamedTuple):
    """The numbers of one column, and which records have one (None: all)."""

    values: Floats
    present: NDArray[np.bool_] | None = None


def columns_of(cells: list[bytes | None], width: int) -> list[Cells]:
    """Cells, row by row, as columns of numbers."""
    try:
        numbers = _NUMBERS(b"[" + b",".join(cells) + b"]")  # type: ignore[arg-type]  # a None is a TypeError
        if len(numbers) != len(cells):  # a thousands comma parts a number in two
            raise ValueError
        return [Cells(column) for column in np.array(numbers, np.float64).reshape(-1, width).T.copy()]
    except (TypeError, ValueError):  # a cell is None, or no number as JSON spells it
        return [_column(cells[i::width]) for i in range(width)]


def _column(cells: list[bytes | None]) -> Cells:
    if None not in cells and b"_" not in b"".join(cells):  # type: ignore[arg-type]  # no None in it
        try:
            return Cells(np.fromiter(map(float, cells), np.float64, len(cells)))  # type: ignore[arg-type]  # as above
        except ValueError:
            pass
    numbers = [None if cell is None else parse_number(cell.decode("utf-8", "replace")) for cell in cells]
    present = np.array([number is not None for number in numbers], bool)
    return Cells(np.array([float("nan") if number is None else number for number in numbers], np.float64), present)
