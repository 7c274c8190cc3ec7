"""HF Trainer `trainer_state.json`: every version, and a bare list of its records.

Each value's line is the source line of its key. The usual layout (one key a line, as HF writes it) is read at once; anything else,
NaN literals and cut-off files included, record by record.
"""

from __future__ import annotations

import bisect
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
import numpy as np

from trainproof.errors import FormatError
from trainproof.frame import Ints
from trainproof.names import looks_like_metric
from trainproof.readers.builder import FrameBuilder
from trainproof.readers.source import LogInput
from trainproof.readers.values import as_float, as_step

_HISTORY = re.compile(rb'"log_history"\s*:\s*\[')
#: keys of the closing record that say it is one: its losses are means over the whole run, not points of the curve
_SUMMARY = ("train_runtime", "total_flos")
#: broken records passed over before the rest of a file is given up
MOST_BROKEN = 1000
WHERE = "trainer_state.json"


class _Record(NamedTuple):
    """One record and where it stands: the line of each of its keys."""

    values: Mapping[str, object]
    lines: Mapping[str, int]
    line: int


class HFReader:
    name = "hf"
    description = "Hugging Face Trainer: trainer_state.json"

    def sniff(self, head: bytes) -> float:
        text = head.lstrip()
        if text.startswith(b"{") and _HISTORY.search(head):
            return 0.95
        if text.startswith(b"["):
            first = next(_records_of(head.decode("utf-8", "replace"), head.find(b"[") + 1, FrameBuilder()), None)
            named = first is not None and any(as_float(v) is not None and looks_like_metric(k) for k, v in first.values.items())
            return 0.7 if named else 0.0
        return 0.0

    def read(self, log: LogInput, out: FrameBuilder) -> None:
        data = log.read()
        at = _HISTORY.search(data)
        begin = at.end() if at else data.find(b"[") + 1
        if not begin:
            raise FormatError(f"{log.path}: no log_history in it; expected an HF trainer_state.json")
        document = _strict(data)
        history = document.get("log_history") if isinstance(document, dict) else document
        starts = _usual_layout(data, begin, history) if isinstance(history, list) else None
        if starts is not None and isinstance(history, list):
            _add_columns(history, starts, out)
            facts = document if isinstance(document, dict) else {}
        else:
            text = data.decode("utf-8", "replace")
            begin = len(data[:begin].decode("utf-8", "replace"))
            for record in _records_of(text, begin, out):
                _add(record, out)
            facts = _facts_around(text, begin) if at else {}
        for key, value in facts.items():
            out.facts.declare(key, value, WHERE)
        out.mask("loss")  # logging_nan_inf_filter replaces a non-finite loss by an average, by default


def _strict(data: bytes) -> Any:
    """The document, or None when a strict parser refuses it (NaN literals, a cut, garbage)."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _usual_layout(data: bytes, begin: int, history: list[Any]) -> Ints | None:
    """The line of each record's opening brace when every key stands on a line of its own; None when it does not."""
    if not all(type(record) is dict for record in history):
        return None
    sizes = np.array([len(record) + 2 for record in history], np.int64)
    first = data.count(b"\n", 0, begin) + 2
    starts = first + np.concatenate(([0], np.cumsum(sizes)))
    newlines = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n"))
    closing = int(starts[-1])
    probes = [(closing, b"]"), *((int(line), b"{") for line in starts[:-1][:: max(1, len(history) // 64)])]
    for line, expected in probes:
        if line - 2 >= len(newlines) or not data[newlines[line - 2] + 1 :][:64].lstrip().startswith(expected):
            return None
    return starts[:-1]


def _add_columns(history: list[dict[str, Any]], starts: Ints, out: FrameBuilder) -> None:
    """The records, grouped by their keys so that each metric of a group is one column."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for i, record in enumerate(history):
        groups.setdefault(tuple(record), []).append(i)
    for keys, members in groups.items():
        records = [history[i] for i in members]
        plain = "step" in keys and not _is_summary(keys)
        columns = {key: [record[key] for record in records] for key in keys}
        regular = [key for key in keys if key != "step" and set(map(type, columns[key])) <= {float, int}]
        if not plain or set(map(type, columns["step"])) != {int} or len(regular) < len(keys) - 1 or min(columns["step"]) < 0:
            for i, record in zip(members, records, strict=True):
                at = int(starts[i])
                _add(_Record(record, {key: at + 1 + k for k, key in enumerate(record)}, at), out)
            continue
        steps = np.array(columns["step"], np.int64)
        first = starts[np.array(members)]
        for key in regular:
            out.extend(key, steps, np.array(columns[key], np.float64), first + (1 + keys.index(key)))


def _is_summary(keys: Mapping[str, object] | tuple[str, ...]) -> bool:
    return all(key in keys for key in _SUMMARY)


def _add(record: _Record, out: FrameBuilder) -> None:
    if _is_summary(tuple(record.values)):
        out.end()
        return
    step = as_step(record.values.get("step", record.values.get("current_steps")))
    if step is None:
        if not any(key.startswith("predict_") for key in record.values):
            out.drop(record.line, "a record without a usable step")
        return
    for key, value in record.values.items():
        number = as_float(value)
        if number is not None and key != "step":
            out.add(step, {key: number}, record.lines[key])


def _records_of(text: str, begin: int, out: FrameBuilder) -> Iterator[_Record]:
    """The records of the list that begins at `begin`, one by one; what is broken is dropped and the next record looked for."""
    decoder = json.JSONDecoder()
    newlines = [match.start() for match in re.finditer("\n", text)]
    at, broken = begin, 0
    while True:
        at = _skip(text, at)
        if at >= len(text) or text[at] == "]":
            return
        line = bisect.bisect_left(newlines, at) + 1
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            broken += 1
            following = text.find("{", at + 1)
            out.drop(line, "unreadable record" if following >= 0 else "cut off in the middle of a record")
            if following < 0 or broken > MOST_BROKEN:
                return
            at = following
            continue
        if isinstance(value, dict):
            yield _Record(value, _key_lines(text, at, end, value, newlines), line)
        else:
            out.drop(line, "not a record")
        at = end


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n,":
        at += 1
    return at


def _key_lines(text: str, begin: int, end: int, record: Mapping[str, object], newlines: list[int]) -> dict[str, int]:
    lines = {}
    at = begin
    for key in record:
        found = text.find(json.dumps(key), at, end)
        at = found if found >= 0 else at
        lines[key] = bisect.bisect_left(newlines, at) + 1
    return lines


def _facts_around(text: str, begin: int) -> dict[str, object]:
    """The top-level fields before and after the list, as far as they can be read."""
    closing = re.search(r"\n?\s*\]\s*,?(?=\s*\"|\s*\})", text[begin:][-65536:])
    tail = text[begin:][-65536:][closing.end() :] if closing else "}"
    for candidate in (f"{text[:begin]}],{tail}", f"{text[:begin]}]{tail}", f"{text[:begin]}]}}"):
        try:
            facts = json.loads(candidate)
        except (ValueError, RecursionError):
            continue
        if isinstance(facts, dict):
            return facts
    return {}
