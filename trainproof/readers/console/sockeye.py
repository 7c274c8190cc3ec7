"""Sockeye: the `metrics` file, a line a checkpoint, and the console. The loss is the logarithm of the perplexity.

3\tbleu-val=0.21\tepoch=1\tlearning-rate=0.0002\tperplexity-train=45.671\tperplexity-val=38.912\ttime-elapsed=412.1
[2019-05-11:10:00:07:INFO:sockeye.training:__call__] Epoch[0] Batch [350]\tSpeed: 1234.1 samples/sec 2345.1 tokens/sec\tperplexity=45.671
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from trainproof.readers.builder import FrameBuilder
from trainproof.readers.console.engine import ConsoleReader, Reading
from trainproof.readers.console.line import Batch, Line


class SockeyeReader(ConsoleReader):
    name = "sockeye"
    description = "Sockeye: metrics file and console output"
    lines = (
        Line("perplexity-", r"(?P<step>\d+)\t(?=[^\n]*\bperplexity-train=)"),
        Line(
            "perplexity=",
            r"\[[\d:-]{10,25}:INFO:sockeye[\w.]{0,60}:\w{1,40}\] (?:Checkpoint \[\d+\] *)?Epoch\[(?P<epoch>\d+)\] Batch \[(?P<step>\d+)\]\s",
        ),
    )
    aliases: ClassVar = {
        "learning-rate": "lr",
        "gradient-norm": "grad_norm",
        "gpu-memory": "memory",
        "used-gpu-memory": "",
        "time-elapsed": "time",
        "samples/sec": "",
    }

    def sniff(self, head: bytes) -> float:
        return 0.9 if any(True for _ in self.records_in(head)) else 0.0

    def reading(self, out: FrameBuilder) -> Reading:
        return _SockeyeReading(self, out)


#: a perplexity -> the loss that it is the exponential of
_LOSSES = {"perplexity-train": "loss", "perplexity": "loss", "perplexity-val": "eval_loss"}


class _SockeyeReading(Reading):
    def settled(self, batches: list[Batch]) -> list[Batch]:
        for batch in batches:
            for name in list(batch.columns):
                if name in _LOSSES:
                    cells = batch.columns.pop(name)
                    with np.errstate(divide="ignore", invalid="ignore"):
                        batch.columns[_LOSSES[name]] = cells._replace(values=np.log(cells.values))
                elif name.endswith("-val"):
                    batch.columns[f"eval_{name[:-4]}"] = batch.columns.pop(name)
        return batches
