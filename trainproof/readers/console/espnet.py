"""ESPnet 2: the results of each epoch in train.log.

[host] 2021-07-06 14:20:17,332 (trainer:338) INFO: 3epoch results: [train] loss=39.9, acc=0.75, optim0_lr0=1.7e-04, time=6 hours, [valid] loss=27.7, cer=0.13
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import ClassVar

from trainproof.readers.builder import FrameBuilder
from trainproof.readers.console.engine import ConsoleReader, Reading
from trainproof.readers.console.line import Line
from trainproof.readers.console.text import Block, Piece, pieces
from trainproof.readers.source import LogInput

_VALID = re.compile(rb"\[valid\] ([^\[\n]*)(?:\[[^\n]*)?")
_KEY = re.compile(rb"(\w+)(?==)")


class EspnetReader(ConsoleReader):
    name = "espnet"
    description = "ESPnet 2: train.log, the results of each epoch"
    lines = (Line("epoch results: ", r"[^\n]{0,120}?INFO: (?P<step>\d+)epoch results: \[train\] ", strict=True),)
    aliases: ClassVar = {
        **dict.fromkeys(("time", "total_count", "gpu_max_cached_mem_GB"), ""),
        **dict.fromkeys(("eval_time", "eval_total_count", "eval_gpu_max_cached_mem_GB"), ""),
        **dict.fromkeys(("optim0_lr0", "lr_0"), "lr"),
        "iter_time": "data_time",
        "train_time": "step_time",
    }

    def reading(self, out: FrameBuilder) -> Reading:
        return _EspnetReading(self, out)


class _EspnetReading(Reading):
    def pieces(self, log: LogInput) -> Iterator[Piece]:
        """The log, with what was measured on the validation data named so, and without what comes behind it."""
        for (text, numbers), soft in pieces(log):
            yield Piece(Block(_VALID.sub(_named, text), numbers), soft)


def _named(match: re.Match[bytes]) -> bytes:
    return _KEY.sub(rb"eval_\1", match[1])
