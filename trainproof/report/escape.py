"""What may not reach a terminal or a page as it is: control characters, and marks that reorder text."""

from __future__ import annotations

import re

_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]|\t|\n")


def printable(text: str) -> str:
    r"""The text on one line, with every control character, line end, surrogate and direction mark spelled as \xNN or \uNNNN."""
    return _UNSAFE.sub(lambda match: _spelled(match[0]), text)


def _spelled(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def shown(value: float | str) -> str:
    """A number for people: up to 6 significant digits, non-finite values by name."""
    return value if isinstance(value, str) else f"{value:.6g}"
