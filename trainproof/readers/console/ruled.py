"""Tables whose header is underlined: spaCy's, skorch's and MATLAB's (trainnet) on the console, and Markdown's in model cards.

E    #       LOSS TOK2VEC  LOSS NER  ENTS_F        | Training Loss | Epoch | Step | Validation Loss |
---  ------  ------------  --------  ------        |:-------------:|:-----:|:----:|:---------------:|
  0       0          0.00     44.28    0.00        | 1.2345        | 1.0   | 100  | 1.1890          |
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from trainproof.names import EVAL_PREFIXES, looks_like_metric, plain, step_name
from trainproof.readers.builder import FrameBuilder
from trainproof.readers.console.rowwise import batches, sniffed
from trainproof.readers.records import RecordSink
from trainproof.readers.source import LogInput
from trainproof.readers.values import clean_name, parse_number

_RULE = re.compile(
    rb"[ \t]*+(?=[^\n]*[-_]{2})(?:\|[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)+\|?|-+(?: +-+)+|_+(?: +_+)+)[ \t]*\Z"
)
_DASHES = re.compile(rb"[-_]+")
#: rows below the rule for a table to tell the format
SNIFFED_ROWS = 3
#: spaCy's counters; all that is no loss in its tables was measured on the development data
_SPACY = {"E": "epoch", "#": "step"}


class RuledReader:
    name = "ruled-table"
    description = "tables with an underlined header: spaCy, skorch, trainnet, Markdown"

    def sniff(self, head: bytes) -> float:
        tables = sniffed(_Tables(), head)
        return 0.75 if tables.names and len(tables.records) >= SNIFFED_ROWS else 0.0

    def read(self, log: LogInput, out: FrameBuilder) -> None:
        sink = RecordSink(out)
        for records, lines in batches(log, out, _Tables()):
            sink.give_records(records, lines)
        sink.finish()


class _Tables:
    """The rows of the first table that has metrics, and of those with the same header."""

    def __init__(self) -> None:
        self.names: tuple[str, ...] = ()
        self.records: list[tuple[int, dict[str, object]]] = []
        self._before = b""
        self._piped = self._inside = False
        self._spans: list[tuple[int, int]] = []  # where each name stands

    def take(self, line: int, row: bytes) -> None:
        if _RULE.match(row):
            self._begin(row)
        elif self._inside and row.strip():
            cells = _cells(row, self._piped)
            if len(cells) < len(self.names) and not self._piped:
                cells = self._placed(row)
            if len(cells) == len(self.names):
                self.records.append((line, dict(_numbers(self.names, cells))))
            else:
                self._inside = False
        self._before = row

    def _placed(self, row: bytes) -> list[str]:
        """The cells of a row that has blank ones: each below the name that it stands under; none where one stands under no name."""
        text = row.decode("utf-8", "replace")
        cells = dict.fromkeys(range(len(self.names)), "")
        for match in re.finditer(r"\S+", text):
            under = [i for i, (begin, end) in enumerate(self._spans) if match.start() < end and begin < match.end()]
            if len(under) != 1:
                return []
            cells[under[0]] = match[0]
        return list(cells.values())

    def _begin(self, rule: bytes) -> None:
        """A table, if the line before the rule names metrics."""
        piped = b"|" in rule
        names = _cells(self._before, True) if piped else _under(self._before, rule)
        known = [plain(name) for name in names]
        good = step_name(known) is not None or set(names) >= set(_SPACY)
        self._inside = good and any(map(looks_like_metric, names)) and len(names) == len(_cells(rule, piped))
        named = _named(names)
        if self._inside and self.names in ((), named):
            self.names, self._piped = named, piped
            self._spans = _spans(rule)
        else:
            self._inside = False


def _named(names: Sequence[str]) -> tuple[str, ...]:
    if not set(names) >= set(_SPACY):
        return tuple(names)
    measured = (*EVAL_PREFIXES, "loss")
    return tuple(_SPACY.get(n, n if plain(n).startswith(measured) else f"eval_{n}") for n in names)


def _cells(row: bytes, piped: bool) -> list[str]:
    text = clean_name(row.decode("utf-8", "replace")).strip()
    return [cell.strip() for cell in text.strip("|").split("|")] if piped else text.split()


def _under(header: bytes, rule: bytes) -> list[str]:
    """The names above each run of dashes, which may be of several words."""
    text = header.decode("utf-8", "replace")
    return [clean_name(text[begin : max(end, begin + 1)].strip()) for begin, end in _spans(rule)]


def _spans(rule: bytes) -> list[tuple[int, int]]:
    return [match.span() for match in _DASHES.finditer(rule)]


def _numbers(names: Sequence[str], cells: Sequence[str]) -> Iterator[tuple[str, float]]:
    for name, cell in zip(names, cells, strict=True):
        number = parse_number(cell)
        if name and number is not None:
            yield name, number
