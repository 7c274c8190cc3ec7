"""Metrics in an absl log, as clu's writer prints them (AlgoPerf, T5X, Flax examples); evaluations carry their step.

I0316 10:35:44.473088 139684567045888 logging_writer.py:48] [10] grad_norm=2.23456, learning_rate=0.001, loss=0.4104
"""

from __future__ import annotations

from typing import ClassVar

from trainproof.readers.console.engine import ConsoleReader
from trainproof.readers.console.line import Line


class AbslReader(ConsoleReader):
    name = "absl"
    description = "absl log with clu metrics (AlgoPerf, T5X, Flax)"
    lines = (
        Line(
            "logging_writer.py:",
            r"[IWE]\d{4} [\d:.]{8,15} +\d+ logging_writer\.py:\d+\] \[(?P<step>\d+)\] (?=[\w/.-]+=)",
        ),
    )
    aliases: ClassVar = {"global_step": "", "score": "", "preemption_count": ""}
