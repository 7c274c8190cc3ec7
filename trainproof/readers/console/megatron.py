"""Megatron-LM and Megatron-DeepSpeed: console output, with or without a date or a rank before each line.

iteration       10/    1000 | consumed samples: 40 | learning rate: 1.5E-04 | lm loss: 1.21E+01 | loss scale: 32768.0 | grad norm: 2.1 |
validation loss at iteration 100 | lm loss value: 8.095942E+00 | lm loss PPL: 3.281128E+03 |
"""

from __future__ import annotations

from typing import ClassVar

from trainproof.readers.builder import FrameBuilder
from trainproof.readers.console.engine import ConsoleReader, Reading
from trainproof.readers.console.fields import Cells
from trainproof.readers.console.line import Batch, Line

_PREFIX = r"(?:[ \t]*+(?:(?:\[[^\]\n]{1,60}\]:?|[\w.-]{1,40}:)[ \t]*+)*+|(?:[^\]>\n]*+[\]>])+?[ \t]+)"


class MegatronReader(ConsoleReader):
    name = "megatron"
    description = "Megatron-LM, Megatron-DeepSpeed: console output"
    lines = (
        Line(
            "iteration", _PREFIX + r"(?:samples/sec: [\d.]+ \| )?iteration +(?P<step>\d+)/ *(?P<of>\d+) \|", r"[^\n]*"
        ),
        Line(
            "loss at ",
            _PREFIX + r"valid(?:ation)? loss at iteration (?P<step>\d+)(?: on [\w -]+?)? \|",
            prefix="eval_",
            sure=False,
        ),
    )
    aliases: ClassVar = {
        "lm loss value": "loss",
        "lm loss PPL": "ppl",
        "lm-loss": "lm loss",
        "consumed samples": "",
        "elapsed time per iteration (ms)": "step_time",
        "global batch size": "",
        "global-batch-size": "",
    }

    def reading(self, out: FrameBuilder) -> Reading:
        return _MegatronReading(self, out)


class _MegatronReading(Reading):
    def settled(self, batches: list[Batch]) -> list[Batch]:
        """A loss scale below 0 and a gradient norm of 0 say that there is none."""
        return [batch._replace(columns=_known(batch.columns)) for batch in batches]


def _known(columns: dict[str, Cells]) -> dict[str, Cells]:
    known = dict(columns)
    for name in ("loss scale", "loss-scale", "grad norm", "grad-norm"):
        if name in columns:
            values, present = columns[name]
            real = values > 0 if name.startswith("loss") else values != 0
            known[name] = Cells(values, real if present is None else real & present)
    return known
