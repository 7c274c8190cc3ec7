"""Generic JSONL: one object a line, any keys, any order. A dead record costs itself, never the file.

Lines are decoded a mebibyte at a time into structs made from the keys seen so far. A piece that does not fit (new keys, NaN literals,
strings, blank or broken lines) goes line by line, with the same result.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np

from trainproof.names import EPOCH_NAMES, STEP_NAMES, looks_like_metric, plain, step_name
from trainproof.readers.builder import FrameBuilder
from trainproof.readers.source import LogInput
from trainproof.readers.values import LARGEST_STEP, as_float, as_step, flatten

SNIFFED_LINES = 40
#: how many times the keys may change before a log is taken for one without a fixed layout and read line by line
MOST_LAYOUTS = 64


class JSONLReader:
    name = "jsonl"
    description = "JSONL: one JSON object a line"

    def sniff(self, head: bytes) -> float:
        lines = head.split(b"\n")
        complete = lines[:-1] if len(lines) > 1 else lines
        records = [decode_record(line) for line in complete[:SNIFFED_LINES] if line.strip()]
        good = [record for record in records if isinstance(record, Mapping) and _is_record(record)]
        if not good or len(good) < len(records) / 2:
            return 0.0
        return 0.8 if len(good) > 1 else 0.4

    def read(self, log: LogInput, out: FrameBuilder) -> None:
        numbering = _Numbering()
        layout: _Layout | None = None
        keys = _Keys()
        line = 1
        for chunk in log.chunks():
            count = chunk.count(b"\n")
            if layout is None or not layout.read(chunk, count, line, out):
                slow = [(line + i, text) for i, text in enumerate(chunk.split(b"\n")) if text.strip()]
                records = [(number, _record_or_drop(number, text, out)) for number, text in slow]
                numbering.learn([record for _, record in records if record])
                for number, record in records:
                    if record:
                        _add(number, record, numbering, out)
                        keys.learn(record)
                layout = keys.layout(numbering)
            line += count


def decode_record(line: bytes) -> object:
    """The JSON value of one line, NaN and Infinity literals and undecodable bytes included; None when it is not JSON."""
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        value: object = json.loads(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return value


def _is_record(record: Mapping[str, object]) -> bool:
    """Whether an object looks like a training record: a number under a metric's name beside a step, or under a metric's own name."""
    numeric = [key for key, value in flatten(record) if as_float(value) is not None]
    stepped = any(plain(key) in STEP_NAMES or plain(key) in EPOCH_NAMES for key in numeric)
    metrics = sum(looks_like_metric(key) for key in numeric)
    return metrics > 0 or (stepped and len(numeric) > 1)


def _record_or_drop(number: int, line: bytes, out: FrameBuilder) -> dict[str, object] | None:
    value = decode_record(line)
    if isinstance(value, dict):
        return value
    out.drop(number, "not JSON" if value is None else f"a JSON {type(value).__name__}, not an object")
    return None


class _Numbering:
    """Which key numbers the records: a step, else whole epochs, else the records' own order."""

    def __init__(self) -> None:
        self.key: str | None = None
        self.known = False
        self.ordinal = 0

    def learn(self, records: list[dict[str, object]]) -> None:
        """Decide from the first records that there are."""
        if self.known or not records:
            return
        self.known = True
        keys = dict.fromkeys(key for record in records for key, value in record.items() if as_float(value) is not None)
        self.key = step_name(keys)
        if self.key is not None and plain(self.key) in EPOCH_NAMES:
            values = [as_step(record[self.key]) for record in records if self.key in record]
            if None in values or len(set(values)) < len(values) / 2:
                self.key = None

    def step(self, record: Mapping[str, object]) -> int | None:
        self.ordinal += 1
        return self.ordinal if self.key is None else as_step(record.get(self.key))


def _add(number: int, record: dict[str, object], numbering: _Numbering, out: FrameBuilder) -> None:
    """One record, the slow and tolerant way."""
    step = numbering.step(record)
    if step is None:
        out.drop(number, f"no usable {numbering.key!r}")
        return
    values = {}
    for key, value in flatten(record):
        if key != numbering.key or plain(key) in EPOCH_NAMES:
            number_read = as_float(value)
            if number_read is not None:
                values[key] = number_read
    if values:
        out.add(step, values, number)
    else:
        out.drop(number, "no numeric value beside the step")


class _Keys:
    """The keys seen so far and what their values were."""

    def __init__(self) -> None:
        self.numeric: dict[str, bool] = {}  # key -> every value so far was a number
        self.regular = True  # no nested objects
        self.layouts = 0

    def learn(self, record: Mapping[str, object]) -> None:
        for key, value in record.items():
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            self.numeric[key] = self.numeric.get(key, True) and number
            if isinstance(value, dict) or (isinstance(value, str) and as_float(value) is not None):
                self.regular = False

    def layout(self, numbering: _Numbering) -> _Layout | None:
        """The fast way to read records of these keys, or None where there is none."""
        self.layouts += 1
        if not self.regular or not self.numeric or self.layouts > MOST_LAYOUTS:
            return None
        if numbering.key is None or not self.numeric.get(numbering.key, False):
            return None
        return _Layout(self.numeric, numbering.key)


class _Layout:
    """Decodes pieces of lines into one struct a record: numeric keys as floats, any other as text that is passed over."""

    def __init__(self, numeric: Mapping[str, bool], step_key: str) -> None:
        self.keys = {key: f"f{i}" for i, key in enumerate(numeric)}
        self.step_field = self.keys[step_key]
        self.metrics = {
            key: field
            for key, field in self.keys.items()
            if numeric[key] and (key != step_key or plain(key) in EPOCH_NAMES)
        }
        fields = [
            (field, float, float("nan")) if numeric[key] else (field, msgspec.Raw, msgspec.Raw())
            for key, field in self.keys.items()
        ]
        record = msgspec.defstruct(
            "Record",
            fields,
            rename=dict(zip(self.keys.values(), self.keys, strict=True)),
            forbid_unknown_fields=True,
            gc=False,
        )
        self.decode: Callable[[bytes], list[Any]] = msgspec.json.Decoder(record).decode_lines
        self.texts = [field for key, field in self.keys.items() if not numeric[key]]

    def read(self, chunk: bytes, count: int, line: int, out: FrameBuilder) -> bool:
        """Give the chunk's records to `out`; False, and nothing given, when it needs the tolerant way."""
        try:
            records = self.decode(chunk)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return False
        if len(records) != count + (not chunk.endswith(b"\n")):
            return False
        if any(_hides_a_number(bytes(getattr(r, field))) for field in self.texts for r in records):
            return False
        steps = self._column(records, self.step_field)
        if not ((steps >= 0) & (steps < LARGEST_STEP) & (np.floor(steps) == steps)).all():
            return False
        whole = steps.astype(np.int64)
        lines = np.arange(line, line + len(records), dtype=np.int64)
        empty = np.ones(len(records), dtype=bool)
        columns = {key: self._column(records, field) for key, field in self.metrics.items()}
        for values in columns.values():
            empty &= np.isnan(values)
        if empty.any():
            return False
        for key, values in columns.items():
            logged = ~np.isnan(values)
            if logged.all():
                out.extend(key, whole, values, lines)
            else:
                out.extend(key, whole[logged], values[logged], lines[logged])
        return True

    def _column(self, records: list[Any], field: str) -> np.ndarray[Any, np.dtype[np.float64]]:
        return np.fromiter(map(attrgetter(field), records), np.float64, len(records))


def _hides_a_number(raw: bytes) -> bool:
    """Whether a value that was never a number so far is one now, as a number, as text, or inside an object."""
    return bool(raw) and raw not in (b"null", b"true", b"false") and (
        raw[:1] == b"{" or as_float(decode_record(raw)) is not None
    )
