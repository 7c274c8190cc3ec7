"""torchtitan: console output, once a rank where each rank prints.

[rank0]:[titan] 2025-10-30 20:34:38,183 - root - INFO - step: 10  loss: 11.1385  grad_norm:  2.4909  memory: 52.53GiB(66.33%)  tps: 11,023
"""

from __future__ import annotations

from trainproof.readers.console.engine import ConsoleReader
from trainproof.readers.console.line import Line

_LOG = r"(?:\[rank ?(?P<rank>\d+)\]:? ?)?(?:[^\n]{0,120}[\]|:-] ?)?"


class TorchTitanReader(ConsoleReader):
    name = "torchtitan"
    description = "torchtitan: console output"
    lines = (
        Line("step:", _LOG + r"step: {0,6}(?P<step>\d+) {2,}(?=(?:global_avg_)?loss:)"),
        Line("step:", _LOG + r"validate step: {0,6}(?P<step>\d+) {2,}(?=loss:)", prefix="eval_", sure=False),
    )
