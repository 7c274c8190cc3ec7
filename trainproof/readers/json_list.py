"""The objects of one JSON list, one by one, in text that may be damaged: after a bad one the next is looked for."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import NamedTuple

from trainproof.readers.values import clean_name, decode_json

#: strings (the last one may be cut off), brackets, commas and line ends: all that the structure hangs on
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\Z)|[{}\[\],\n]', re.DOTALL)
#: where the next object of the list may begin, after one that is damaged
_NEXT = re.compile(rb",\s*(?=\{)")
_BETWEEN = re.compile(rb"[\s,]*")
MOST_DEPTH = 64


class Span(NamedTuple):
    """One object of the text: its end, the line there, and the line of each of its keys (nested ones as "a/b")."""

    end: int
    line: int
    keys: dict[str, int]


class Found(NamedTuple):
    """What stands at a place of the list: an object and the lines of its keys; or `value` None, and why."""

    line: int
    value: dict[str, object] | None
    keys: dict[str, int]
    why: str


class ListScanner:
    """Walks over the objects of a list in `data` from `at`, which stands on line `line`."""

    def __init__(self, data: bytes, at: int, line: int) -> None:
        self.data, self.at, self.line = data, at, line
        self.closed = False  # the end of the list was seen

    def next(self) -> Found | None:
        """The next object, or what is wrong there; None at the end of the list or of the text."""
        between = _BETWEEN.match(self.data, self.at)
        begin = between.end() if between else self.at
        self.skip(begin)
        head = self.data[begin : begin + 1]
        if head == b"]":
            self.closed = True
        if head in (b"]", b""):
            return None
        line = self.line
        span = span_of(self.data, begin, line) if head == b"{" else None
        if span is None:
            return Found(line, None, {}, self._resume_after(begin))
        self.at, self.line = span.end, span.line
        try:
            value = decode_json(self.data[begin : span.end])
        except ValueError:
            value = None
        return Found(line, value if isinstance(value, dict) else None, span.keys, "a record that is not JSON")

    def skip(self, to: int) -> None:
        """Go on at `to`."""
        self.line += self.data.count(b"\n", self.at, to)
        self.at = to

    def _resume_after(self, begin: int) -> str:
        """Go on at the next object that may follow a damaged one; says what was wrong."""
        following = _NEXT.search(self.data, begin + 1)
        self.skip(following.end() if following else len(self.data))
        return "a damaged record" if following else "cut off inside a record"


def span_of(data: bytes, begin: int, line: int) -> Span | None:
    """The object that begins at `begin`, or None when it is not closed or its brackets do not fit."""
    open_with: list[bytes] = []
    path: list[str] = []
    keys: dict[str, int] = {}
    at_key = False  # a string here is a key
    for match in _TOKEN.finditer(data, begin):
        token = match[0]
        first = token[:1]
        if first == b'"':
            if at_key:
                path[-1] = _text(token)
                keys["/".join(path)] = line
                at_key = False
            line += token.count(b"\n")
        elif first == b"\n":
            line += 1
        elif first == b",":
            at_key = open_with[-1] == b"{"
        elif first in (b"{", b"["):
            if at_key or len(open_with) == MOST_DEPTH:
                return None
            open_with.append(first)
            at_key = first == b"{"
            path.append("")
        else:
            if open_with.pop() + first not in (b"{}", b"[]"):
                return None
            path.pop()
            at_key = False
            if not open_with:
                return Span(match.end(), line, keys)
    return None


@lru_cache(4096)
def _text(token: bytes) -> str:
    """The text of a JSON string, as a metric's name."""
    text = token.decode("utf-8", "replace")
    try:
        return clean_name(str(json.loads(text)))
    except ValueError:
        return clean_name(text.strip('"'))


def closed(data: bytes) -> bytes | None:
    """A document whose end is cut off, up to its last whole value and with its brackets closed; None when it is none.

    A number at the very end may be a part of one, so it goes.
    """
    open_: list[bytes] = []
    end, depth = 0, 0  # of the last whole value
    for match in _TOKEN.finditer(data):
        token = match[0]
        if token in (b"{", b"["):
            open_.append(token)
        elif token in (b"}", b"]"):
            if not open_:
                return None
            open_.pop()
            end, depth = match.end(), len(open_)
        elif token == b",":
            end, depth = match.start(), len(open_)
    if not open_ or not depth or depth > MOST_DEPTH:
        return None
    whole = data[:end] + bytes(b"}"[0] if bracket == b"{" else b"]"[0] for bracket in reversed(open_[:depth]))
    try:
        decode_json(whole)
    except ValueError:
        return None
    return whole
