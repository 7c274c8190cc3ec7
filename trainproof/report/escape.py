"""What may not reach a terminal or a page as it is: control characters, and characters that hide or reorder text."""

from __future__ import annotations

import re

#: C0, C1, soft hyphen, zero-width characters, direction marks, line and paragraph separators, surrogates, non-characters, tags
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\ufffe\uffff"
    "\U000e0000-\U000e007f]"
)


def printable(text: str) -> str:
    r"""The text on one line, with every unsafe character spelled as \xNN, \uNNNN or \UNNNNNNNN."""
    return _UNSAFE.sub(lambda match: _spelled(match[0]), text)


def _spelled(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"


def clipped(text: str, most: int) -> str:
    """Printable text of at most `most` characters: a name is no place for a novel."""
    text = printable(text[: most + 1])
    return text if len(text) <= most else text[: most - 3] + "..."


def shown(value: float | str) -> str:
    """A number for people: up to 6 significant digits, non-finite values by name."""
    return value if isinstance(value, str) else f"{value:.6g}"


def exact(value: float | str) -> str:
    """A number as it was logged: the shortest digits that read back as the same number."""
    return value if isinstance(value, str) else repr(value)
