"""torchtune: `Step 1 | loss:2.5413 lr:0.0002 tokens_per_second_per_gpu:301.2`, and its progress bar `1|10|Loss: 2.5413: 10%|`."""

from __future__ import annotations

from trainproof.readers.console.engine import ConsoleReader
from trainproof.readers.console.line import Line


class TorchtuneReader(ConsoleReader):
    name = "torchtune"
    description = "torchtune: log and console output"
    lines = (
        Line("Step ", r"Step (?P<step>\d+) \| (?=[\w/]+:)"),
        Line("|Loss: ", r"[^\n|]{0,40}?(?P<epoch>\d+)\|(?P<step>\d+)\|Loss: (?P<loss>[-+.\w]+):", "", r"[^\n]*"),
    )
    refreshed = True
