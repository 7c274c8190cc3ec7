"""Frames of tables in memory: a DataFrame, a dict of lists, or any mapping of columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trainproof.errors import FormatError
from trainproof.facts import Facts
from trainproof.frame import Frame, Source
from trainproof.names import EPOCH_NAMES, plain, step_name
from trainproof.readers.builder import FrameBuilder
from trainproof.readers.values import as_float, as_step


def frame_of(table: Any, *, mapping: Mapping[str, str] | None = None, facts: Facts | None = None) -> Frame:
    """The one run of a table; see `frames_of`. Raises FormatError when it holds none or several."""
    frames = frames_of(table, mapping=mapping, facts=facts)
    if len(frames) != 1:
        raise FormatError(f"the table holds {len(frames)} runs; use trainproof.readers.memory.frames_of")
    return frames[0]


def frames_of(table: Any, *, mapping: Mapping[str, str] | None = None, facts: Facts | None = None) -> list[Frame]:
    """The runs of a table: one row a record, one column a metric, steps from a step-like column, else its index or row number.

    In a DataFrame NaN means "not logged", because pandas has no other word for it; in a mapping of lists None does, and NaN is a NaN
    that the logger wrote. Raises FormatError when it is no table.
    """
    in_pandas = hasattr(table, "columns") and hasattr(table, "index")
    if not in_pandas and not isinstance(table, Mapping):
        raise FormatError(
            f"cannot judge a {type(table).__name__}; expected a path, a Frame, a DataFrame or a dict of columns"
        )
    columns = {str(name): _values(table[name], in_pandas) for name in (table.columns if in_pandas else table)}
    rows = max((len(values) for values in columns.values()), default=0)
    key = step_name(columns)
    if key is not None:
        steps: Sequence[object] = columns[key]
    else:
        steps = list(table.index) if in_pandas and table.index.name is not None else list(range(1, rows + 1))
    out = FrameBuilder(mapping)
    for row in range(rows):
        step = as_step(steps[row]) if row < len(steps) else None
        record = {
            name: number
            for name, values in columns.items()
            if (name != key or plain(name) in EPOCH_NAMES)
            and row < len(values)
            and (number := as_float(values[row])) is not None
        }
        if step is None:
            out.drop(row + 1, "no usable step")
        elif record:
            out.add(step, record, row + 1)
    return out.build(Source("<memory>", "table"), facts)


def _values(column: Any, in_pandas: bool) -> list[object]:
    """The column as Python values; what was not logged is None."""
    if in_pandas:
        missing = column.isna().to_numpy()
        return [None if gone else value for value, gone in zip(column.tolist(), missing, strict=True)]
    return column.tolist() if isinstance(column, np.ndarray) else list(column)
