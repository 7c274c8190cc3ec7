"""W&B runs that were logged offline, or are still there: `run-*.wandb`, from the wire format.

The history becomes the curves; the configuration and the exit code become facts. `line` is the number of the record in
the file. Field numbers are those of wandb_internal.proto.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

import numpy as np

from trainproof.errors import FormatError
from trainproof.frame import Ints
from trainproof.readers.beside import declare_setting
from trainproof.readers.builder import FrameBuilder
from trainproof.readers.columns import Batch, cells_of, columns_of
from trainproof.readers.protobuf import BYTES, FIXED64, VARINT, Field, WireError, fields, signed, varint
from trainproof.readers.records import RecordSink
from trainproof.readers.source import LogInput
from trainproof.readers.values import as_float, clean_name, decode_json, flatten
from trainproof.readers.wandb_store import HEADER, Damage, records

#: records that are turned into columns together
BATCH_RECORDS = 4096
#: the bookkeeping of every record: its number among the calls of wandb.log, and unix time beside the seconds since the start
STEP, TIMESTAMP = "_step", "_timestamp"

_HISTORY, _CONFIG, _RUN, _EXIT = 2, 5, 17, 18  # of Record
_RUN_CONFIG = 4
_ITEM, _STEP = 1, 2  # of HistoryRecord; ConfigRecord's `update` is 1 as well
#: bytes of an item with an empty key and an empty value: its own key and length, those of its key, and those of its value
_SHORTEST_ITEM = 7
_KEY, _NESTED_KEY, _INTEGER, _NUMBER, _TEXT, _JSON, _VALUE_JSON = 1, 2, 5, 6, 7, 8, 16  # of HistoryItem and ConfigItem


class WandbReader:
    name = "wandb"
    description = "W&B: `run-*.wandb` of offline and of synced runs"

    def sniff(self, head: bytes) -> float:
        return 1.0 if head.startswith(HEADER) else 0.0

    def read(self, log: LogInput, out: FrameBuilder) -> None:
        reading = _Reading(out)
        for line, record in enumerate(records(log.open()), 1):
            if isinstance(record, Damage):
                out.drop(line, record.why)
            else:
                try:
                    reading.take(record, line)
                except WireError as error:
                    out.drop(line, f"unreadable record ({error})")
        reading.finish()
        if not reading.found:
            raise FormatError(f"{log.path}: a W&B run without history, expected one that called wandb.log with numbers")


def has_history(log: LogInput) -> bool:
    """Whether the file holds any number that was logged."""
    return any(not isinstance(record, Damage) and _logs_number(record) for record in records(log.open()))


def _logs_number(record: bytes) -> bool:
    try:
        return any(
            _any_number(_items(record, field))
            for field in fields(record)
            if (field.number, field.kind) == (_HISTORY, BYTES)
        )
    except WireError:
        return False


def _any_number(items: Iterable[tuple[str, object]]) -> bool:
    """Whether a metric has a number; names that begin with "_" are W&B's own."""
    return any(not key.startswith("_") and as_float(leaf) is not None for key, leaf in flatten(dict(items)))


class _Reading:
    """One pass over the records of a run."""

    def __init__(self, out: FrameBuilder) -> None:
        self.found = False
        self._out = out
        self._sink = RecordSink(out)
        self._config: dict[str, object] = {}
        self._lines: list[int] = []
        self._records: list[dict[str, object]] = []

    def take(self, record: bytes, line: int) -> None:
        """One record of any kind. Raises WireError."""
        for field in fields(record):
            if field.kind != BYTES:
                continue
            if field.number == _HISTORY:
                self._take_history(record, field, line)
            elif field.number == _CONFIG:
                self._config.update(_items(record, field))
            elif field.number == _RUN:
                for part in fields(record, field.begin, field.end):
                    if (part.number, part.kind) == (_RUN_CONFIG, BYTES):
                        self._config.update(_items(record, part))
            elif field.number == _EXIT:
                self._take_exit(record, field)

    def finish(self) -> None:
        """Hand on what is left; what the run declared last counts."""
        self._give()
        self._sink.finish()
        for key, value in self._config.items():
            declare_setting(self._out.facts, key, value, "the run's config")

    def _take_history(self, record: bytes, history: Field, line: int) -> None:
        values = dict(_items(record, history))
        if STEP not in values:
            values[STEP] = _step(record, history)
        values.pop(TIMESTAMP, None)
        self.found = self.found or _any_number(values.items())
        self._lines.append(line)
        self._records.append(values)
        if len(self._records) == BATCH_RECORDS:
            self._give()

    def _take_exit(self, record: bytes, exit_record: Field) -> None:
        """RunExitRecord: exit_code 1, which is not written when it is 0."""
        codes = [
            _number(record, part) for part in fields(record, exit_record.begin, exit_record.end) if part.number == 1
        ]
        failed = any(codes)
        self._out.facts.declare("status", "FAILED" if failed else "FINISHED", "the run's exit code")
        if not failed:
            self._out.end()

    def _give(self) -> None:
        """Turn the records so far into columns."""
        if not self._records:
            return
        lines = np.array(self._lines, np.int64)

        def line_of(_: str, rows: Ints | None) -> Ints:
            return lines if rows is None else lines[rows]

        self._sink.learn(self._records)
        columns = columns_of(cells_of(self._records), len(lines), line_of, self._sink.step_key)
        if self._sink.step_key != STEP:
            columns.pop(STEP, None)
        self._sink.give(Batch(lines, columns))
        self._lines, self._records = [], []


def _items(record: bytes, message: Field) -> Iterator[tuple[str, object]]:
    """The keys and values of a HistoryRecord or a ConfigRecord; nested keys are joined with "/"."""
    at = message.begin
    while at < message.end:
        plain = _plain_item(record, at, message.end)
        if plain is not None:
            key, text, at = plain
            yield _name(key), _decoded(text)
            continue
        item = next(fields(record, at, message.end))
        at = item.end
        if (item.number, item.kind) == (_ITEM, BYTES):
            names: list[str] = []
            value: object = None
            for part in fields(record, item.begin, item.end):
                if part.number in (_KEY, _NESTED_KEY):
                    names.append(_text(record, part))
                else:
                    value = _value(record, part)
            yield clean_name("/".join(names)), value


def _plain_item(record: bytes, at: int, end: int) -> tuple[bytes, bytes, int] | None:
    """Key, JSON and end of the item at `at`, if it is one of a single key and a JSON value, of fewer than 128 bytes each.

    Nearly all items are: looking at their fixed bytes is several times as fast as walking over their fields.
    """
    if end - at < _SHORTEST_ITEM or record[at] != 0x0A or record[at + 2] not in (0x0A, 0x12):
        return None
    size, key = record[at + 1], at + 4
    value, stop = key + record[at + 3], at + 2 + size
    if size > 0x7F or stop > end or value + 3 > stop or record[value : value + 2] != b"\x82\x01":
        return None
    return (record[key:value], record[value + 3 : stop], stop) if value + 3 + record[value + 2] == stop else None


@lru_cache(maxsize=4096)
def _name(key: bytes) -> str:
    return clean_name(key.decode("utf-8", "replace"))


def _step(record: bytes, history: Field) -> int:
    """HistoryStep: num 1, which is not written when it is 0."""
    for field in fields(record, history.begin, history.end):
        if (field.number, field.kind) == (_STEP, BYTES):
            return sum(_number(record, part) for part in fields(record, field.begin, field.end) if part.number == 1)
    return 0


def _value(record: bytes, part: Field) -> object:
    """The value of an item: JSON, or, in newer files, a field of its own type."""
    if part.number in (_VALUE_JSON, _JSON) and part.kind == BYTES:
        return _decoded(record[part.begin : part.end])
    if part.number == _TEXT and part.kind == BYTES:
        return _text(record, part)
    if part.number == _NUMBER and part.kind == FIXED64:
        return struct.unpack_from("<d", record, part.begin)[0]
    if part.number == _INTEGER and part.kind == VARINT:  # zigzag: 0, -1, 1, -2 ...
        number = varint(record, part.begin)[0]
        return (number >> 1) ^ -(number & 1)
    return None


def _decoded(text: bytes) -> object:
    """A JSON value; images, histograms and the like are objects that say their type, and no metrics."""
    try:
        return int(text) if text.isdigit() and len(text) < 19 else float(text)
    except ValueError:
        pass
    try:
        value = decode_json(text)
    except ValueError:
        return None
    return None if isinstance(value, Mapping) and "_type" in value else value


def _text(record: bytes, field: Field) -> str:
    if field.kind != BYTES:
        raise WireError(f"wire type {field.kind} for a text")
    return record[field.begin : field.end].decode("utf-8", "replace")


def _number(record: bytes, field: Field) -> int:
    return signed(varint(record, field.begin)[0]) if field.kind == VARINT else 0
