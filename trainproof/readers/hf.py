"""HF Trainer `trainer_state.json`: every version, and a bare list of its records.

Each value's line is the source line of its key. Records that stand in the text as HF writes them (one key a line), or
all on one line, are read piece by piece; NaN literals, damage and anything else one by one, with the same result.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from trainproof.errors import FormatError
from trainproof.frame import Ints
from trainproof.names import looks_like_metric, step_name
from trainproof.readers.builder import FrameBuilder
from trainproof.readers.columns import Batch, Cells, LineOf, cells_of, columns_of
from trainproof.readers.json_list import Found, ListScanner
from trainproof.readers.key_lines import key_lines
from trainproof.readers.layout import Layout
from trainproof.readers.records import RecordSink
from trainproof.readers.source import CHUNK_BYTES, LogInput
from trainproof.readers.values import as_float, decode_start

WHERE = "trainer_state.json"
_HISTORY = re.compile(rb'"log_history"\s*:\s*\[')
_LIST = re.compile(rb"\s*\[(?=\s*\{)")
_CHECKPOINT = re.compile(r"checkpoint-(\d{1,18})\Z")
_RECORD_END = re.compile(rb"\}(?=\s*,\s*\{)")
#: the closing record of a run has it: means and totals over the whole run, no points of the curve
SUMMARY_KEY = "train_runtime"
SNIFFED_RECORDS = 20


class HFReader:
    name = "hf"
    description = "Hugging Face Trainer and TRL: `trainer_state.json`, every version, and a bare list of its records"

    def sniff(self, head: bytes) -> float:
        if head.lstrip().startswith(b"{") and _HISTORY.search(head):
            return 0.95
        bare = _LIST.match(head)
        return 0.7 if bare and _is_history(ListScanner(head, bare.end(), 1)) else 0.0

    def read(self, log: LogInput, out: FrameBuilder) -> None:
        data = log.read()
        start = _HISTORY.search(data) or _LIST.match(data)
        if start is None:
            raise FormatError(f"{log.path}: no log_history list in it; expected a trainer_state.json of the HF Trainer")
        scanner = ListScanner(data, start.end(), 1 + data.count(b"\n", 0, start.end()))
        reading = _Reading(scanner, out)
        reading.run()
        facts, rest = _around(data[: start.end()], data[scanner.at :] if scanner.closed else b"")
        for key, value in facts.items():
            if key != "save_steps" or _saves_by_steps(facts):
                out.facts.declare(key, value, WHERE)
        if rest:
            out.drop(data.count(b"\n") + 1 - rest.count("\n"), "text after the end of the JSON document")


class _Reading:
    """One pass over the records of a log_history."""

    def __init__(self, scanner: ListScanner, out: FrameBuilder) -> None:
        self._scanner, self._out = scanner, out
        self._sink = RecordSink(out)
        self._layout = Layout()
        self._hides = True  # until a loss that is not finite shows that the logger does not hide them

    def run(self) -> None:
        self._small_at_once()
        while self._piece_at_once() or self._piece_one_by_one(self._scanner.at + CHUNK_BYTES):
            pass
        self._sink.finish()
        if self._hides:
            self._out.mask("loss")  # by default logging_nan_inf_filter replaces a loss that is not finite by an average

    def _small_at_once(self) -> None:
        """Read the whole of a small list that is laid out as HF writes it; nothing when it is not."""
        scanner = self._scanner
        if len(scanner.data) - scanner.at > CHUNK_BYTES:
            return
        records, stop = _decoded_list(scanner.data, scanner.at - 1)
        if not records or set(map(type, records)) != {dict}:
            return
        cells = self._layout.in_order(cells_of(records), records)
        lines = key_lines(scanner.data[scanner.at : stop].rstrip(), scanner.line, cells, len(records))
        if lines is not None:
            self._sink.learn(records)
            self._give(cells, lines.records, lines.of)
            scanner.skip(stop)

    def _piece_at_once(self) -> bool:
        """Read the records up to a record's end some way ahead; False, and nothing read, when they do not fit."""
        scanner = self._scanner
        end = _RECORD_END.search(scanner.data, scanner.at + CHUNK_BYTES)
        if end is None:
            return False
        piece = scanner.data[scanner.at : end.end()].lstrip(b",")
        records = self._layout.decode_list(b"[" + piece + b"]")
        if not records:
            return False
        cells = self._layout.cells(records)
        lines = key_lines(piece, scanner.line, cells, len(records))
        if lines is None:
            return False
        self._give(cells, lines.records, lines.of)
        scanner.skip(end.end())
        return True

    def _piece_one_by_one(self, stop: int) -> bool:
        """Read records with care until `stop`; False at the end of the list or of the text."""
        found: list[Found] = []
        item: Found | None = None
        while self._scanner.at < stop and (item := self._scanner.next()) is not None:
            if item.value is None:
                self._out.drop(item.line, item.why)
            else:
                found.append(item)
                self._layout.learn(item.value)
        if found:
            self._give_found(found)
        return item is not None

    def _give_found(self, found: list[Found]) -> None:
        values = [item.value for item in found if item.value is not None]
        keys = [item.keys for item in found]
        starts = np.array([item.line for item in found], np.int64)

        def line_of(name: str, rows: Ints | None) -> Ints:
            index = range(len(keys)) if rows is None else rows.tolist()
            return np.array([keys[row].get(name, found[row].line) for row in index], np.int64)

        self._sink.learn(values)
        self._give(cells_of(values), starts, line_of)

    def _give(self, cells: Mapping[str, Cells], lines: Ints, line_of: LineOf) -> None:
        batch = Batch(lines, columns_of(cells, len(lines), line_of, self._sink.step_key))
        loss = batch.columns.get("loss")
        if loss is not None and not np.isfinite(loss.values).all():
            self._hides = False
        summary = batch.where(SUMMARY_KEY) & ~batch.where("loss")
        if summary.any():
            self._out.end()
        self._sink.give(batch.keep(~(summary | _predictions(batch))))


def _decoded_list(data: bytes, at: int) -> tuple[list[Any], int]:
    """The list that begins at `at`, and where its closing bracket is; nothing when it is none, or not all in ASCII."""
    stop = data.rfind(b"]")  # what follows the list has seldom another
    try:
        return msgspec.json.decode(data[at : stop + 1], type=list), stop
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        records, end = decode_start(data[at:].decode("ascii"))
    except ValueError:
        return [], at
    return (records if isinstance(records, list) else []), at + end - 1


def _predictions(batch: Batch) -> NDArray[np.bool_]:
    """The records of `Trainer.predict`: they have no step and are no part of the curve."""
    predicted = np.zeros(len(batch.lines), bool)
    for name in batch.columns:
        if name.startswith("predict_"):
            predicted |= batch.where(name)
    return predicted & ~batch.where("step") if predicted.any() else predicted


def _is_history(scanner: ListScanner) -> bool:
    """Whether a bare list begins with records that have both a number to count them by and a metric."""
    for _ in range(SNIFFED_RECORDS):
        item = scanner.next()
        if item is None:
            break
        numeric = [key for key, value in (item.value or {}).items() if as_float(value) is not None]
        number = step_name(numeric)
        if number is not None and any(looks_like_metric(name) for name in numeric if name != number):
            return True
    return False


def _saves_by_steps(facts: Mapping[str, object]) -> bool:
    """Whether checkpoints may be `save_steps` apart: HF writes its default also for runs that save at each epoch, whose best checkpoint
    then has another number."""
    every, best = facts.get("save_steps"), _CHECKPOINT.search(str(facts.get("best_model_checkpoint")))
    return best is None or not isinstance(every, int) or every < 1 or int(best[1]) % every == 0


def _around(before: bytes, after: bytes) -> tuple[dict[str, object], str]:
    """The fields around the list, and the text after the end of the document.

    `before` ends with the list's opening bracket; `after` begins with its closing one, or is empty if the text is cut.
    """
    head, tail = before.decode("utf-8", "replace"), after.decode("utf-8", "replace")
    for candidate in (tail, tail.rpartition(",")[0] + "}", "]}"):
        try:
            document, end = decode_start(head + candidate)
        except ValueError:
            continue
        return (document if isinstance(document, dict) else {}), (head + candidate)[end:].lstrip()
    return {}, ""
