"""OpenMMLab: mmengine's `vis_data/scalars.json` and mmcv's `*.log.json`, both JSONL.

A record of a validation is numbered by its epoch, or by its own iterations, between records of training that are numbered by theirs: it
stands at the step of the record before it. -1 in an average precision or recall means that there was nothing to measure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from trainproof.readers.columns import Batch, Column
from trainproof.readers.jsonl import KnownJSONL

#: what is not measured by a validation, though its record has it
_SHARED = frozenset("epoch iter step lr memory time data_time momentum eta".split())
_PRECISION = re.compile(r".*(?:\bm?A[PR]|_m?A[PR]|[/ ]m?A[PR])(?:[ _@.\d(].*)?")


class MMEngineReader(KnownJSONL):
    name = "mmengine"
    description = "OpenMMLab: mmengine's `scalars.json` and mmcv's `*.log.json`"

    def claims(self, record: Mapping[str, object]) -> bool:
        """A record of mmcv says its mode; one of mmengine counts an epoch, an iteration and a step."""
        mode = record.get("mode") in ("train", "val") and {"epoch", "iter"} <= record.keys()
        return mode or {"iter", "step", "data_time", "time"} <= record.keys()

    def refine(self, batch: Batch) -> Batch:
        validation = _of_validation(batch)
        columns: dict[str, Column] = {}
        for name, column in batch.columns.items():
            rows = column.indices(len(batch.lines))
            held_out = validation[rows]
            columns.update(_kept(name, column, rows, ~held_out))
            if name not in _SHARED:
                columns.update(_kept(f"val/{name}", column, rows, held_out))
        return Batch(batch.lines, columns).without(lambda name, values: (values == -1) & _is_precision(name))


def _of_validation(batch: Batch) -> NDArray[np.bool_]:
    """Which records are of validations: those that say so (mmcv), or that count no iteration of training (mmengine)."""
    if not batch.cells or "mode" not in batch.cells:
        return ~batch.where("iter")
    rows, modes = batch.cells["mode"]
    says = np.array([mode == "val" for mode in modes], bool)
    validation = np.zeros(len(batch.lines), bool)
    validation[slice(None) if rows is None else rows] = says
    return validation


def _kept(name: str, column: Column, rows: NDArray[np.int64], wanted: NDArray[np.bool_]) -> dict[str, Column]:
    """The points of a column that are wanted, under the name, if there are any."""
    if wanted.all():
        return {name: column}
    if not wanted.any():
        return {}
    return {name: Column(rows[wanted], column.values[wanted], column.lines[wanted])}


def _is_precision(name: str) -> bool:
    return _PRECISION.fullmatch(name) is not None
