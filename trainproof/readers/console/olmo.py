"""OLMo and OLMo-core: console output. A heading names the step, the lines below it one metric each.

[2024-04-24 09:15:04] INFO     [olmo.train:816, rank=0] [step=7/739328]
    train/CrossEntropyLoss=9.773
    throughput/total_tokens=29,360,128
"""

from __future__ import annotations

from trainproof.readers.console.engine import ConsoleReader
from trainproof.readers.console.line import Line


class OlmoReader(ConsoleReader):
    name = "olmo"
    description = "OLMo, OLMo-core: console output"
    lines = (
        Line(
            "[step=", r"[^\n]{0,200}\[step=(?P<step>\d+)/(?P<of>\d+)(?:,epoch=(?P<epoch>\d+)(?:/\d+)?)?[^\]\n]*\]", ""
        ),
        Line("=", r"[ \t]+(?P<name>[A-Za-z][\w/ ().:+-]{0,120})=(?P<value>[-+.,\w]+)", "", pairs=True),
    )
