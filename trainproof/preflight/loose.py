"""Texts in fields of any name, and what stands for pictures and sounds beside texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from xxhash import xxh3_64_hexdigest

#: fields that tell records apart and are no text
_NAMES = ("id", "uuid", "url", "date", "timestamp")

#: parts of turns and segments that are no text
_KINDS = ("role", "from", "type")


def strings_of(record: Mapping[str, Any]) -> list[str]:
    """The texts of a record, without its names."""
    values = (value for name, value in record.items() if name not in _NAMES and not name.endswith("_id"))
    return [text for value in values for text in strings_in(value)]


def strings_in(value: Any, depth: int = 3) -> list[str]:
    """The texts of a field: its own, or those of its parts, such as segments, turns and languages; words are one text."""
    if isinstance(value, str):
        return [value]
    if not depth or not isinstance(value, dict | list):
        return []
    if isinstance(value, list) and value and all(isinstance(part, str) for part in value):
        return [" ".join(value)]
    parts = [part for name, part in value.items() if name not in _KINDS] if isinstance(value, dict) else value
    return [text for part in parts for text in strings_in(part, depth - 1)]


def shown_part(part: Any) -> str:
    """A part of a turn: its text, or what stands for a picture or a sound."""
    if not isinstance(part, dict):
        return str(part)
    text = part.get("text") or part.get("thinking")
    return text if isinstance(text, str) else _sign(part)


def media_of(record: Mapping[str, Any], names: Sequence[str]) -> str:
    """What stands for the pictures and sounds of a record; nothing where there are none."""
    media = [value for name in names if (value := record.get(name))]
    return _sign(media) if media else ""


def _sign(value: Any) -> str:
    return f"[{xxh3_64_hexdigest(repr(value).encode('utf-8', 'replace'))}]"
