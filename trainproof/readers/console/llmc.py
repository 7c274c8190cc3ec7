"""llm.c `main.log`: `s:0 tel:11.0092`, `s:1 trl:10.9598 lr:0.000002 norm:15.24`, `s:250 eval:0.2463`."""

from __future__ import annotations

from typing import ClassVar

from trainproof.readers.console.engine import ConsoleReader
from trainproof.readers.console.line import Line


class LlmcReader(ConsoleReader):
    name = "llmc"
    description = "llm.c: main.log"
    lines = (Line("s:", r"s:(?P<step>\d+) (?=(?:trl|tel|eval):)"),)
    #: the share of HellaSwag questions that were answered right
    aliases: ClassVar = {"eval": "eval_accuracy"}
