"""StyleGAN's `stats.jsonl`: a record a tick, each metric with its number of observations, their mean and their deviation.

A metric without observations in a tick (regularisation is computed now and then) has a mean of NaN or 0: it was not logged.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from trainproof.readers.builder import FrameBuilder
from trainproof.readers.columns import Batch, Column
from trainproof.readers.jsonl import KnownJSONL

_MEAN = "/mean"


class StyleGANReader(KnownJSONL):
    name = "stylegan"
    description = "StyleGAN 2 and 3: `stats.jsonl`"
    step_key = "Progress/tick/mean"

    def claims(self, record: Mapping[str, object]) -> bool:
        return self.step_key in record and any(name.startswith("Loss/") for name in record)

    def declare(self, out: FrameBuilder) -> None:
        out.facts.declare("objective", "adversarial", "the format")

    def refine(self, batch: Batch) -> Batch:
        columns = {}
        for name, column in batch.columns.items():
            if name.endswith(_MEAN) and name != self.step_key:
                columns[name.removesuffix(_MEAN)] = _observed(batch, name.removesuffix(_MEAN), column)
            elif not name.endswith(("/num", "/std")):
                columns[name] = column
        return Batch(batch.lines, {name: column for name, column in columns.items() if len(column.values)})


def _observed(batch: Batch, name: str, column: Column) -> Column:
    """The means of the ticks in which there was something to observe."""
    size = len(batch.lines)
    count = batch.columns.get(f"{name}/num")
    counts = np.ones(size)
    if count is not None:
        counts[count.indices(size)] = count.values
    rows = column.indices(size)
    seen = counts[rows] > 0
    return column if seen.all() else Column(rows[seen], column.values[seen], column.lines[seen])
