"""Numbers as loggers spell them: every reader turns decoded values and cells into floats and steps here."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

#: spellings that C and its descendants print and Python's float() does not know
NON_FINITE = {
    "-nan": float("nan"),
    "+nan": float("nan"),
    "nan(ind)": float("nan"),
    "-nan(ind)": float("nan"),
    "1.#qnan": float("nan"),
    "1.#ind": float("nan"),
    "-1.#ind": float("nan"),
    "1.#inf": float("inf"),
    "-1.#inf": float("-inf"),
}
THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d*)?", re.ASCII)

SMALLEST_STEP = -1  # some loggers number the evaluation before training -1
LARGEST_STEP = 2**62  # differences of two steps must fit into int64
MAX_DEPTH = 16  # objects nested deeper than this are no metrics

_BARE = re.compile(r"(?<=[:,\[\s])([+-]?)(nan|inf(?:inity)?)(?=\s*[,}\]])", re.IGNORECASE)


def parse_number(text: str) -> float | None:
    """`text` as a number, or None when it is none. NaN and infinity in any spelling, surrounding spaces and well-formed
    thousands commas ("1,234.5") are accepted; units, percent signs, underscores and digits other than ASCII are not."""
    if "_" in text or not text.isascii():
        return None
    try:
        return float(text)
    except ValueError:
        pass
    text = text.strip()
    if THOUSANDS.fullmatch(text):
        return float(text.replace(",", ""))
    return NON_FINITE.get(text.lower())


def as_float(value: object) -> float | None:
    """A decoded JSON value as a float, or None when it is no number (a bool is none). A huge integer is infinite."""
    if isinstance(value, float):
        return value
    if isinstance(value, str):
        return parse_number(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def as_step(value: object) -> int | None:
    """A decoded value as a step ("2e+3" and 2000.0 are some), or None when it is no whole number or out of bounds."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    number = _whole(value)
    return number if number is not None and SMALLEST_STEP <= number <= LARGEST_STEP else None


def _whole(value: int | float | str) -> int | None:
    """`value` as an integer without a detour over float where that would round."""
    if isinstance(value, str):
        text = value.strip()
        if text.isascii() and text.isdigit() and len(text) < 20:
            return int(text)
        number = parse_number(text)
        if number is None:
            return None
        value = number
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    return value


def flatten(record: Mapping[str, object], prefix: str = "", depth: int = 0) -> Iterator[tuple[str, object]]:
    """The leaves of a decoded object, nested names joined with "/"; lists are passed over."""
    for key, value in record.items():
        name = clean_name(prefix + key)
        if isinstance(value, dict):
            if depth < MAX_DEPTH:
                yield from flatten(value, name + "/", depth + 1)
        elif not isinstance(value, list):
            yield name, value


def clean_name(name: str) -> str:
    """`name` as text that can be written anywhere: lone surrogates become "?"."""
    return name if name.isascii() else name.encode("utf-8", "replace").decode("utf-8")


def decode_json(data: bytes) -> object:
    """The value of one JSON text, read tolerantly. Raises ValueError when it is no JSON.

    NaN and infinity in any spelling, integers of any length and lone surrogates are accepted; undecodable bytes are
    replaced; of a repeated key the last counts.
    """
    text = data.decode("utf-8", "replace").strip("\ufeff \t\r\n")
    try:
        try:
            return _DECODER.decode(text)
        except ValueError:
            if not _BARE.search(text):
                raise
            return _DECODER.decode(_BARE.sub(_literal, text))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def decode_start(text: str) -> tuple[object, int]:
    """The JSON value that `text` begins with, and the index of what follows it. Raises ValueError when there is none."""
    try:
        return _DECODER.raw_decode(text, len(text) - len(text.lstrip()))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _literal(match: re.Match[str]) -> str:
    """The spelling of a bare nan or inf that the decoder knows."""
    if match[2].lower() == "nan":
        return "NaN"
    return "-Infinity" if match[1] == "-" else "Infinity"


def _integer(digits: str) -> int | float:
    """Python refuses integers of more than 4,300 digits; past 400 they are infinite for us anyway."""
    return int(digits) if len(digits) <= 400 else float(digits)


_DECODER = json.JSONDecoder(parse_int=_integer)
