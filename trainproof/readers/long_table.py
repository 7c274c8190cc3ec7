"""Tables with a row a metric, as trackers export them: MLflow, Comet, ClearML, Aim, pandas' `melt`.

Run ID,Name,Key,Value,Timestamp,Step                    run.hash,metric.name,metric.context,step,value
0ab1,first,train_loss,2.31,1589191200000,10             9f3a,loss,"{""subset"": ""val""}",10,2.31
"""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from typing import NamedTuple

from trainproof.errors import FormatError
from trainproof.names import EVAL_PREFIXES, looks_like_metric, plain
from trainproof.readers.builder import FrameBuilder
from trainproof.readers.source import LogInput
from trainproof.readers.values import as_step, clean_name, parse_number

#: plain names of the columns, best first
_METRIC = ("key", "metric.name", "metric_name", "metricname", "metric", "tag", "series", "variable")
_VALUE = ("value", "metricvalue", "metric_value", "metric.value")
_STEP = ("step", "iteration", "iter", "global_step", "epoch")
_RUN = ("run_id", "run.hash", "experimentkey", "experiment_key", "run_name", "run")
_CONTEXT = ("metric.context", "context", "runcontext", "subset", "split", "phase")
_EVALUATES = re.compile(r"\b(?:val|valid|validate|validation|eval|evaluation|dev)\b", re.IGNORECASE)
_TESTS = re.compile(r"\btest\b", re.IGNORECASE)
#: rows at the beginning that tell the format
SNIFFED_ROWS = 50
#: runs that one table may have; rows of more are dropped
MOST_RUNS = 1000


class _Header(NamedTuple):
    """Which column is what; None for what there is not."""

    delimiter: str
    width: int
    metric: int
    value: int
    step: int
    run: int | None
    context: int | None


class LongTableReader:
    name = "long-table"
    description = "CSV with a row a metric: exports of MLflow, Comet, ClearML, Aim"

    def sniff(self, head: bytes) -> float:
        lines = head.decode("utf-8", "replace").splitlines()
        header = _header(lines[0]) if lines else None
        if header is None:
            return 0.0
        rows = (_cells(text, header.delimiter) for text in lines[1:SNIFFED_ROWS])
        named = [row[header.metric] for row in rows if len(row) == header.width and _numbers(row, header)]
        return 0.95 if any(map(looks_like_metric, named)) else 0.0

    def read(self, log: LogInput, out: FrameBuilder) -> None:
        rows = log.lines()
        _, first = next(rows, (0, ""))
        header = _header(first)
        if header is None:
            raise FormatError(
                f"{log.path}: no columns of a metric's name, its step and its value, expected a table with a row a metric"
            )
        runs: dict[str, FrameBuilder] = {}
        for line, text in rows:
            if not text.strip():
                continue
            row = _cells(text, header.delimiter)
            numbers = _numbers(row, header) if len(row) == header.width else None
            run = clean_name(row[header.run]) if header.run is not None and numbers else ""
            if numbers is None or (run not in runs and len(runs) >= MOST_RUNS):
                out.drop(line, "no number for a metric at a step" if numbers is None else f"more than {MOST_RUNS} runs")
                continue
            if run not in runs:
                runs[run] = out.run(run) if run else out
            step, value = numbers
            runs[run].add(step, {_name(row, header): value}, line)


def _header(text: str) -> _Header | None:
    delimiter = next((d for d in (",", "\t", ";") if d in text), ",")
    names = [plain(cell) for cell in _cells(text.lstrip("\ufeff"), delimiter)]
    metric, value, step = _first(names, _METRIC), _first(names, _VALUE), _first(names, _STEP)
    if metric is None or value is None or step is None:
        return None
    return _Header(delimiter, len(names), metric, value, step, _first(names, _RUN), _first(names, _CONTEXT))


def _first(names: Sequence[str], known: Sequence[str]) -> int | None:
    return next((names.index(name) for name in known if name in names), None)


def _cells(text: str, delimiter: str) -> list[str]:
    try:
        return [cell.strip() for cell in next(csv.reader([text.strip("\r\n")], delimiter=delimiter), [])]
    except csv.Error:  # a cell of more than 128 KiB
        return []


def _numbers(row: Sequence[str], header: _Header) -> tuple[int, float] | None:
    """The step and the value of a row."""
    step, value = as_step(row[header.step]), parse_number(row[header.value])
    return None if step is None or value is None else (step, value)


def _name(row: Sequence[str], header: _Header) -> str:
    """The metric's name, with the data that it was measured on before it where another cell says so."""
    name = clean_name(row[header.metric])
    context = row[header.context] if header.context is not None else ""
    if plain(name).startswith((*EVAL_PREFIXES, "test_", "test/")):
        return name
    return f"val_{name}" if _EVALUATES.search(context) else f"test_{name}" if _TESTS.search(context) else name
