"""Progress bars of tqdm with metrics behind them, as Lightning and NeMo draw them, and NeMo 2's lines.

    Epoch 0:  10%|#         | 100/1000 [00:10<01:30, 10.0it/s, loss=0.51, v_num=0, train_loss_step=0.498, val_loss=0.61]
    Training epoch 0, iteration 10/999 | lr: 1.7e-06 | global_step: 10 | reduced_train_loss: 11.03 | val_loss: 10.2

A bar repeats its metrics until they are measured again, and rounds NeMo's global_step to three digits: what numbers the records
is the bar itself.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from trainproof.readers.builder import FrameBuilder
from trainproof.readers.console.engine import ConsoleReader, Reading
from trainproof.readers.console.fields import Cells
from trainproof.readers.console.line import Batch, Line

_COUNT = r"(?P<batch>\d+)/(?P<batches>\d+)"


class BarReader(ConsoleReader):
    name = "progress-bar"
    description = "Lightning, NeMo and other tqdm progress bars with metrics"
    lines = (
        Line(
            "Epoch",
            r"[^\n|%]{0,80}?Epoch:? \[?(?P<epoch>\d+)(?:/-?\d+)?\]?(?: ?:)* *\d+%\|[^|\n]{0,200}\| "
            + _COUNT
            + r" \[[^\n=\]]*?, ?",
            r"(?=[\w ./-]+=)[^\n\]]*",
            r"\][^\n]*",
            first_epoch=0,
        ),
        Line(
            "it [",
            r"[^\n|%]{0,80}?Epoch:? \[?(?P<epoch>\d+)\]?(?: ?:)* *(?P<batch>\d+)it \[[^\n=\]]*?, ?",
            r"(?=[\w ./-]+=)[^\n\]]*",
            r"\][^\n]*",
            first_epoch=0,
        ),
        Line(
            "%|",
            r"(?![^\n|]{0,80}(?i:epoch|valid|test|eval|predict|sanity))[^\n|%]{0,80}?\d+%\|[^|\n]{0,200}\| "
            + _COUNT
            + r" \[[^\n=\]]*?, ?",
            r"(?=[\w ./-]+=)[^\n\]]*",
            r"\][^\n]*",
            first_epoch=0,
        ),
        Line(
            "iteration",
            r"(?:\[[^\]\n]{1,80}\] ?)*Training epoch (?P<epoch>\d+), iteration " + _COUNT + r" \| ",
            first_epoch=0,
        ),
    )
    aliases: ClassVar = {"v_num": "", "global_step": "", "consumed_samples": "", "global_batch_size": ""}
    repeated = ("val", "test", "valid", "eval", "train_loss_epoch", "loss_epoch")
    refreshed = True

    def reading(self, out: FrameBuilder) -> Reading:
        return _BarReading(self, out)


class _BarReading(Reading):
    def __init__(self, reader: ConsoleReader, out: FrameBuilder) -> None:
        super().__init__(reader, out)
        self._passes, self._count = 0, 0.0

    def settled(self, batches: list[Batch]) -> list[Batch]:
        """A bar without an epoch begins a new one where it begins anew."""
        nameless = [batch for batch in batches if "batch" in batch.columns and "epoch" not in batch.columns]
        if not nameless:
            return batches
        lines = np.concatenate([batch.lines for batch in nameless])
        counts = np.concatenate([batch.columns["batch"].values for batch in nameless])
        order = np.argsort(lines, kind="stable")
        falls = np.diff(counts[order], prepend=self._count) < 0
        passes = np.empty(len(order))
        passes[order] = self._passes + np.cumsum(falls)
        self._passes, self._count = int(passes[order[-1]]), float(counts[order[-1]])
        epochs = iter(np.split(passes, np.cumsum([len(batch.lines) for batch in nameless])[:-1]))
        numbered = {
            id(batch): batch._replace(columns={**batch.columns, "epoch": Cells(next(epochs))}) for batch in nameless
        }
        return [numbered.get(id(batch), batch) for batch in batches]
