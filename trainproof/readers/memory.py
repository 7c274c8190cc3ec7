"""Frames of tables in memory: a DataFrame, or a mapping of columns such as a dict of lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trainproof.errors import FormatError
from trainproof.facts import Facts
from trainproof.frame import Floats, Frame, Ints, Source
from trainproof.names import EPOCH_NAMES, STEP_NAMES, plain, step_name
from trainproof.readers.builder import FrameBuilder
from trainproof.readers.values import as_float, as_step


def frame_of(
    table: Any, *, mapping: Mapping[str, str] | None = None, facts: Facts | None = None, nan_is_logged: bool = False
) -> Frame:
    """The one run of a table; as `frames_of`, but FormatError when it holds none or several."""
    frames = frames_of(table, mapping=mapping, facts=facts, nan_is_logged=nan_is_logged)
    if len(frames) != 1:
        raise FormatError(f"the table holds {len(frames)} runs, expected one; judge it with trainproof.judge(table)")
    return frames[0]


def frames_of(
    table: Any, *, mapping: Mapping[str, str] | None = None, facts: Facts | None = None, nan_is_logged: bool = False
) -> list[Frame]:
    """The runs of a table: one row a record, one column a metric.

    Steps are the index, when it has a step's name; else a column with a step's or an epoch's name; else an integer
    index that somebody set; else the row number from 1. `line` is the row number. In a mapping None means "not logged"
    and NaN is a NaN that the logger wrote. A DataFrame has one word for both: there NaN means "not logged", unless
    `nan_is_logged` says that every NaN was written. Raises FormatError when it is no table.
    """
    if hasattr(table, "columns") and hasattr(table, "index"):
        columns = {str(name): _logged(table.iloc[:, i], nan_is_logged) for i, name in enumerate(table.columns)}
        index: Any = table.index
    elif isinstance(table, Mapping) and all(hasattr(column, "__len__") for column in table.values()):
        columns = {str(name): _listed(column) for name, column in table.items()}
        index = None
    else:
        what = type(table).__name__
        raise FormatError(
            f"cannot judge a {what}, expected a path, a Frame, a DataFrame or a dict of equally long lists"
        )
    rows = max(map(len, columns.values()), default=0)
    if any(len(column) != rows for column in columns.values()):
        sizes = ", ".join(f"{name} {len(column)}" for name, column in columns.items())
        raise FormatError(f"columns of unequal length ({sizes}), expected one value a record; None means not logged")
    out = FrameBuilder(mapping)
    key, steps = _steps(columns, index, rows, out)
    for name, column in columns.items():
        if name != key or plain(name) in EPOCH_NAMES:
            _add(name, column, steps, out)
    return out.build(Source("<memory>", "table"), facts)


def _logged(column: Any, nan_is_logged: bool) -> Sequence[object]:
    """A pandas column as Python values; what was not logged is None."""
    missing = column.isna().to_numpy()
    gone = float("nan") if nan_is_logged else None
    return [gone if absent else value for value, absent in zip(column.tolist(), missing, strict=True)]


def _listed(column: Any) -> Sequence[object]:
    return column.tolist() if hasattr(column, "tolist") else list(column)


def _steps(
    columns: Mapping[str, Sequence[object]], index: Any, rows: int, out: FrameBuilder
) -> tuple[str | None, list[int | None]]:
    """The column that numbers the records, if one does, and each record's step; a record without one is dropped."""
    key = None if index is not None and plain(str(index.name)) in STEP_NAMES else step_name(columns)
    if key is not None:
        numbered: Sequence[object] = columns[key]
    elif index is not None and index.dtype.kind in "iu" and not _is_default(index):
        numbered = index.tolist()
    else:
        numbered = range(1, rows + 1)
    steps = [as_step(value) for value in numbered]
    for row, step in enumerate(steps, 1):
        if step is None:
            out.drop(row, "no usable step")
    return key, steps


def _is_default(index: Any) -> bool:
    return index.name is None and list(index) == list(range(len(index)))


def _add(name: str, column: Sequence[object], steps: Sequence[int | None], out: FrameBuilder) -> None:
    """The column's numbers at their steps."""
    points = [
        (step, number, row)
        for row, (step, value) in enumerate(zip(steps, column, strict=True), 1)
        if step is not None and (number := as_float(value)) is not None
    ]
    at: Ints = np.array([point[0] for point in points], np.int64)
    values: Floats = np.array([point[1] for point in points], np.float64)
    out.extend(name, at, values, np.array([point[2] for point in points], np.int64))
