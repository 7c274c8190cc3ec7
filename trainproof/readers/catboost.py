"""CatBoost's `catboost_training.json`: the metrics of each set, which way each is to go, and their values at each iteration.

{"meta": {"learn_metrics": [{"best_value": "Min", "name": "Logloss"}], "test_metrics": [...], "iteration_count": 1000, ...},
 "iterations": [{"iteration": 0, "learn": [0.68], "test": [0.69, 0.71], "passed_time": 0.01, "remaining_time": 9.9}, ...]}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from trainproof.errors import FormatError
from trainproof.readers.builder import FrameBuilder
from trainproof.readers.source import LogInput
from trainproof.readers.values import as_float, as_step, clean_name, decode_json

_SETS = {"learn": "train_", "test": "eval_"}


class CatBoostReader:
    name = "catboost"
    description = "CatBoost: catboost_training.json"

    def sniff(self, head: bytes) -> float:
        own = head.lstrip().startswith(b"{") and b'"best_value"' in head
        return 0.95 if own and b'"learn_metrics"' in head and b'"iterations"' in head else 0.0

    def read(self, log: LogInput, out: FrameBuilder) -> None:
        try:
            document = decode_json(log.read())
        except ValueError:
            raise FormatError(f"{log.path}: not a whole JSON document, expected CatBoost's training") from None
        meta = document.get("meta") if isinstance(document, dict) else None
        records = document.get("iterations") if isinstance(document, dict) else None
        if not isinstance(meta, dict) or not isinstance(records, list):
            raise FormatError(f"{log.path}: no meta and iterations in it, expected CatBoost's training")
        names = {part: list(_names(meta.get(f"{part}_metrics"), prefix)) for part, prefix in _SETS.items()}
        total = as_step(meta.get("iteration_count"))
        if total:
            out.facts.declare("total_steps", total, "meta")
        for i, record in enumerate(records, 1):
            step = as_step(record.get("iteration")) if isinstance(record, dict) else None
            if step is None:
                out.drop(i, "no iteration")
                continue
            values: dict[str, float] = {}
            for part, own in names.items():
                values.update(_values(own, record.get(part)))
            out.add(step, values, i)


def _names(metrics: object, prefix: str) -> Iterator[str]:
    """The name of each metric: the first that is to fall is the loss."""
    found = False
    for metric in metrics if isinstance(metrics, list) else ():
        known: Mapping[str, object] = metric if isinstance(metric, dict) else {}
        falls = known.get("best_value") == "Min" and not found
        found = found or falls
        yield prefix + ("loss" if falls else clean_name(str(known.get("name"))))


def _values(names: Sequence[str], values: object) -> Iterator[tuple[str, float]]:
    for name, value in zip(names, values if isinstance(values, list) else (), strict=False):
        number = as_float(value)
        if number is not None:
            yield name, number
