"""Keras's progress bars and its one line an epoch (verbose=2): an epoch counts once it is done.

    Epoch 3/10
    1875/1875 [==============================] - 5s 3ms/step - loss: 0.3012 - accuracy: 0.9127 - val_loss: 0.2513
    1875/1875 ━━━━━━━━━━━━━━━━━━━━ 5s 3ms/step - accuracy: 0.9127 - loss: 0.3012

The values of a bar are means since the epoch began; only those of a full bar are the epoch's. A bar of another length after it is
an evaluation, which Keras prints in the same way.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trainproof.readers.builder import FrameBuilder
from trainproof.readers.console.engine import ConsoleReader, Reading
from trainproof.readers.console.fields import Cells
from trainproof.readers.console.line import Batch, Line


class KerasReader(ConsoleReader):
    name = "keras-console"
    description = "Keras: progress bars"
    lines = (
        Line("Epoch ", r"[ \t#]*Epoch (?P<step>\d+)/(?P<of>\d+)", "", total="epochs"),
        Line(
            "/", r"[ \t#]*(?P<batches>\d+)/(?P=batches) [^\n]{0,200}?(?<= - )(?=[a-z]\w*: [\d.-]|[a-z]\w*: (?:nan|inf))"
        ),
    )
    refreshed = True

    def reading(self, out: FrameBuilder) -> Reading:
        return _KerasReading(self, out)


class _KerasReading(Reading):
    def __init__(self, reader: ConsoleReader, out: FrameBuilder) -> None:
        super().__init__(reader, out)
        self._length: float | None = None  # of the bar of the epoch that is being trained

    def settled(self, batches: list[Batch]) -> list[Batch]:
        """Without the bars of evaluations."""
        order = [(line, i, row) for i, batch in enumerate(batches) for row, line in enumerate(batch.lines.tolist())]
        kept = [np.ones(len(batch.lines), bool) for batch in batches]
        for _, i, row in sorted(order):
            bars = batches[i].columns.get("batches")
            if bars is None:
                self._length = None
                continue
            length = float(bars.values[row])
            self._length = length if self._length is None else self._length
            kept[i][row] = length == self._length
        return [_masked(batch, mask) for batch, mask in zip(batches, kept, strict=True)]


def _masked(batch: Batch, kept: NDArray[np.bool_]) -> Batch:
    columns = {
        name: Cells(values, kept if present is None else kept & present)
        for name, (values, present) in batch.columns.items()
    }
    return batch._replace(columns=columns)
