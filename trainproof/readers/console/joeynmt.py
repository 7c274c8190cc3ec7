"""JoeyNMT `train.log` and `validations.txt`; the validation loss is a sum over the set.

2020-02-09 13:09:01,154 Epoch   1 Step:      100 Batch Loss:     4.827715 Tokens per Sec:    13096, Lr: 0.000300
2020-02-09 13:10:43,451 Validation result (greedy) at epoch   5, step     1000: bleu:   2.06, loss: 73394.2344, ppl:  24.6552
Steps: 1000\tLoss: 117640.85156\tPPL: 72.96771\tbleu: 0.30677\tLR: 0.00030000\t*
"""

from __future__ import annotations

from typing import ClassVar

from trainproof.readers.console.engine import ConsoleReader
from trainproof.readers.console.line import Line

_LOG = r"[\d-]{10} [\d:,]{8,12} (?:- INFO - [\w.]{1,60} - )?"


class JoeyNMTReader(ConsoleReader):
    name = "joeynmt"
    description = "JoeyNMT: train.log, validations.txt"
    lines = (
        Line("Step:", _LOG + r"Epoch +(?P<epoch>\d+),? Step: +(?P<step>\d+),? (?=Batch Loss:)"),
        Line(
            "result", _LOG + r"Validation result \([^)\n]{1,60}\) at epoch +\d+, step +(?P<step>\d+):", prefix="eval_"
        ),
        Line("result", _LOG + r"Evaluation result \([^)\n]{1,60}\):?", prefix="eval_", sure=False),
        Line("Steps: ", r"Steps: (?P<step>\d+)\t(?=Loss: )", r"[^\n]*?", r"\t?\*?", prefix="eval_"),
    )
    aliases: ClassVar = {"PPL": "ppl", "Tokens per Sec": "tokens_per_sec", "duration": ""}

    def metric(self, line: Line, name: str) -> str:
        return "lr" if name == "LR" else super().metric(line, name)
