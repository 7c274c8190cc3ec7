"""JSON documents that hold the history of a run: a list of values a metric, or a list of records, at any depth.

    {"loss": [2.1, 1.4], "val_loss": [2.2, 1.7]}                               Keras' `History.history`
    {"train": {"losses": [2.1, 1.4]}, "val": {"losses": [2.2, 1.7]}}           loops of one's own
    {"config": {"lr": 0.001}, "history": [{"epoch": 1, "train_loss": 2.1}]}
    {"loss": {"0": 2.1, "1": 1.4}}                                             pandas' `to_json`

What lies at other places is another run: folds, seeds, models.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from trainproof.errors import FormatError
from trainproof.frame import Ints
from trainproof.names import EPOCH_NAMES, EVAL_PREFIXES, STEP_NAMES, higher_is_better, looks_like_metric, plain, resolve
from trainproof.readers.builder import FrameBuilder
from trainproof.readers.json_list import closed, span_of
from trainproof.readers.records import RecordSink
from trainproof.readers.source import LogInput
from trainproof.readers.values import MAX_DEPTH, as_float, clean_name, decode_json, flatten

#: a key whose value is a list of numbers or of objects, or an object whose keys are numbers
_LISTED = re.compile(
    rb'"([^"\n]{1,80})"\s*:\s*(?:\[\s*(?:[-+.\dNI]|null|\{\s*"([^"\n]{1,80})")|\{\s*"\d{1,9}"\s*:\s*[-\dNI]|(?=\{\s*"(?:train|val|test)[a-z]{0,8}"\s*:\s*\[))'
)
#: the data that a metric was measured on, where it is a level of its own
_SPLITS = {
    **dict.fromkeys(("train", "training"), "train/"),
    **dict.fromkeys(("val", "valid", "validation", "eval", "evaluation", "dev"), "val/"),
    "test": "test/",
}
#: lists of values are called by the plural
_PLURALS = {"losses": "loss", "accuracies": "accuracy", "perplexities": "perplexity"}
_PLURAL = re.compile(
    r"(?<![a-z])(losses|accuracies|perplexities|(?:acc|lr|rate|epoch|step|score|reward|return|norm|iteration)s)(?![a-z])"
)
SNIFFED_KEYS = 200


class _Found(NamedTuple):
    """Values of one metric, or records (`name` says of which data), the line of their key, and whether more of them were cut off."""

    run: str
    name: str
    values: Sequence[object]
    line: int
    cut: bool = False


class JSONHistoryReader:
    name = "json-history"
    description = "JSON: a run's history in one document, a list of values a metric or a list of records"

    def sniff(self, head: bytes) -> float:
        """An object with a list that has a metric's name, or of records that have one."""
        if not head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
            return 0.0
        for count, match in enumerate(_LISTED.finditer(head)):
            names = [name.decode("utf-8", "replace") for name in match.groups() if name is not None]
            if any(_tells(plain(_singular(name))) for name in names):
                return 0.7
            if count >= SNIFFED_KEYS:
                break
        return 0.0

    def read(self, log: LogInput, out: FrameBuilder) -> None:
        data, cut = log.read(), False
        try:
            document = decode_json(data)
        except ValueError:
            whole = closed(data)
            if whole is None:
                raise FormatError(f"{log.path}: not a JSON document, expected the history of a run in one") from None
            out.drop(1 + data.count(b"\n"), "the document ends in the middle: what stands before that was read")
            data, document = whole, decode_json(whole)
            cut = True
        begin = data.find(b"{")
        span = span_of(data, begin, 1 + data.count(b"\n", 0, max(begin, 0)))
        found = list(_walk(document, (), span.keys if span else {}))
        if cut and found:
            found[-1] = found[-1]._replace(cut=True)
        text = data.split(b"\n")
        runs: dict[str, list[_Found]] = {}
        for item in found:
            runs.setdefault(item.run, []).append(item)
        histories = {run: items for run, items in runs.items() if _is_history(items)}
        if not histories:
            raise FormatError(f"{log.path}: no list of a metric's values in it, expected the history of a run")
        for run, items in histories.items():
            builder = out.run(run) if len(histories) > 1 else out
            tables = [item for item in items if _are_records(item.values)]
            for item in tables:
                _give_records(item, builder)
            if not tables:
                _give_columns(items, text, builder)


def _tells(name: str) -> bool:
    """Whether a plain name is that of a loss, of another metric (by its last word), or of what counts epochs."""
    return "loss" in name or name in EPOCH_NAMES or higher_is_better(re.split(r"[^a-z0-9]+", name)[-1]) is not None


def _walk(value: object, path: tuple[str, ...], lines: Mapping[str, int]) -> Iterator[_Found]:
    """The lists of numbers and of records in a document."""
    if len(path) > MAX_DEPTH:
        return
    if isinstance(value, dict):
        if len(value) > 1 and all(key.isdigit() for key in value) and _are_numbers(list(value.values())):
            yield _placed(path, list(value.values()), lines)
            return
        for key, inner in value.items():
            yield from _walk(inner, (*path, clean_name(key)), lines)
    elif isinstance(value, list) and value and path:
        if _are_numbers(value) or (_are_records(value) and _metrics_of(value)):
            yield _placed(path, value, lines)
        elif _are_records(value):
            for i, inner in enumerate(value):
                yield from _walk(inner, (*path, str(i)), lines)


def _placed(path: tuple[str, ...], values: Sequence[object], lines: Mapping[str, int]) -> _Found:
    """A list with its name: the last key, with the data it was measured on before it, if that is a level of its own."""
    line = lines.get("/".join(path), 1)
    *outer, last = path
    if _are_records(values):
        words = plain(last).split("_")
        return _Found("/".join(outer), next((_SPLITS[word] for word in words if word in _SPLITS), ""), values, line)
    name = _singular(last)
    if plain(last) in _SPLITS and outer:  # {"loss": {"train": [...]}}
        name = _SPLITS[plain(last)] + _singular(outer.pop())
    elif outer and plain(outer[-1]) in _SPLITS:
        name = _SPLITS[plain(outer.pop())] + name
    return _Found("/".join(outer), name, values, line)


def _singular(name: str) -> str:
    return _PLURAL.sub(lambda match: _PLURALS.get(match[1], match[1][:-1]), name)


def _are_numbers(values: Sequence[object]) -> bool:
    """Numbers, or nothing where there is none."""
    known = [value for value in values if value is not None]
    return bool(known) and all(as_float(value) is not None for value in known)


def _are_records(values: Sequence[object]) -> bool:
    return bool(values) and all(isinstance(value, dict) for value in values)


def _metrics_of(records: Sequence[object]) -> list[str]:
    """The names in the first record that training logs use, and that have a number."""
    first = records[0]
    leaves = flatten(first) if isinstance(first, dict) else ()
    return [name for name, value in leaves if as_float(value) is not None and looks_like_metric(name)]


def _is_history(items: Sequence[_Found]) -> bool:
    return any(len(item.values) > 1 and (_are_records(item.values) or looks_like_metric(item.name)) for item in items)


def _give_records(item: _Found, out: FrameBuilder) -> None:
    prefix = item.name if item.name != "train/" else ""
    records = [
        {name if _counts(name) else prefix + name: leaf for name, leaf in flatten(record)}
        for record in item.values
        if isinstance(record, dict)
    ]
    _give(records, np.full(len(records), item.line, np.int64), {}, out)


def _give_columns(items: Sequence[_Found], text: Sequence[bytes], out: FrameBuilder) -> None:
    """Columns as records: as many as the longest list of a loss or a metric has; a shorter one is spread evenly over them, unless its end was cut off."""
    columns = {item.name: item for item in items if looks_like_metric(item.name) or _counts(item.name)}
    ours = resolve(columns)
    losses = [name for name in columns if ours[name] in ("loss", "eval/loss")]
    size = max(len(columns[name].values) for name in losses or columns)
    records: list[dict[str, object]] = [{} for _ in range(size)]
    lines: dict[str, list[int]] = {}
    for name, item in columns.items():
        count = size if item.cut and len(item.values) < size else len(item.values)
        if count != size and (count > size or _counts(name) or not _is_sparse(name)):
            continue
        present = [i for i, value in enumerate(item.values) if value is not None]
        for i in present:
            records[-(-(i + 1) * size // count) - 1][name] = item.values[i]
        if text[item.line - 1].rstrip().endswith(b"["):  # a value a line
            lines[name] = [item.line + 1 + i for i in present]
    _give(records, np.arange(1, size + 1), {name: np.array(found, np.int64) for name, found in lines.items()}, out)


def _counts(name: str) -> bool:
    return plain(name) in STEP_NAMES or plain(name) in EPOCH_NAMES


def _is_sparse(name: str) -> bool:
    """Whether a metric is of a kind that is measured less often than others."""
    return plain(name).startswith((*EVAL_PREFIXES, "test_", "test/")) or "loss" in plain(name)


def _give(records: Sequence[Mapping[str, object]], starts: Ints, lines: Mapping[str, Ints], out: FrameBuilder) -> None:
    sink = RecordSink(out)

    def line_of(name: str, rows: Ints | None) -> Ints:
        return lines[name] if name in lines else starts if rows is None else starts[rows]

    sink.give_records(records, starts, line_of)
    sink.finish()
