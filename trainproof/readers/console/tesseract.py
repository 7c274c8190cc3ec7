"""Tesseract's lstmtraining: error rates in percent, at the iterations that it learned from, trained on, and saw.

At iteration 614/700/700, mean rms=1.512%, delta=4.104%, BCER train=12.402%, BWER train=31.071%, skip ratio=0.000%, wrote checkpoint.
At iteration 614/700/700, Mean rms=1.512%, delta=4.104%, char train=12.402%, word train=31.071%, skip ratio=0%,  wrote checkpoint.
At iteration 500, stage 0, Eval Char error rate=8.1, Word error rate=21.4
"""

from __future__ import annotations

from trainproof.readers.console.engine import ConsoleReader
from trainproof.readers.console.line import NUMBER, Line


class TesseractReader(ConsoleReader):
    name = "tesseract"
    description = "Tesseract: lstmtraining on the console"
    lines = (
        Line(
            "t iteration ",
            rf"At iteration \d+/(?P<step>\d+)/\d+, [Mm]ean rms=(?P<loss>{NUMBER})%, delta=[^,\n]{{1,20}}, "
            rf"(?:BCER|char) train=(?P<train_cer>{NUMBER})%, (?:BWER|word) train=(?P<train_wer>{NUMBER})%,",
            "",
            r"[^\n]*",
        ),
        Line(
            "t iteration ",
            rf"At iteration (?P<step>\d+), stage \d+, Eval Char error rate=(?P<eval_cer>{NUMBER}), "
            rf"Word error rate=(?P<eval_wer>{NUMBER})",
            "",
            r"[^\n]*",
            sure=False,
        ),
    )
