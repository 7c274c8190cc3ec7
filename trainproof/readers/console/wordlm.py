"""PyTorch's word language model example, also inside Markdown.

| epoch   1 |   200/ 2983 batches | lr 20.0000 | ms/batch  7.75 | loss  8.08 | ppl  3228.16
| end of epoch   1 | time: 23.45s | valid loss  5.60 | valid ppl   271.23
"""

from __future__ import annotations

from typing import ClassVar

from trainproof.readers.console.engine import ConsoleReader
from trainproof.readers.console.line import Line


class WordLMReader(ConsoleReader):
    name = "wordlm"
    description = "PyTorch word language model example: console output"
    lines = (
        Line("batches", r"[ \t>]*\| epoch +(?P<epoch>\d+) \| +(?P<batch>\d+)/ *(?P<batches>\d+) batches \|"),
        Line("end of epoch", r"[ \t>]*\| end of epoch +\d+ \|", sure=False),
    )
    aliases: ClassVar = {"time": ""}
    end_mark = b"| End of training |"
