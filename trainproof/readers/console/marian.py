"""Marian: train.log and valid.log.

[2020-05-11 10:00:00] Ep. 1 : Up. 1000 : Sen. 53,210 : Cost 6.97 * 123,456 @ 1,234 after 1,234,567 : Time 30.1s : 4115.1 words/s : L.r. 3.0e-04
[2020-05-11 10:01:00] [valid] Ep. 1 : Up. 1000 : cross-entropy : 123.4 : new best
"""

from __future__ import annotations

from typing import ClassVar

from trainproof.readers.console.engine import ConsoleReader
from trainproof.readers.console.line import NUMBER, Line

_PLACE = r"Ep\. [\d.]+ : Up\. "


class MarianReader(ConsoleReader):
    name = "marian"
    description = "Marian: train.log, valid.log"
    lines = (
        Line(
            " : Cost ",
            rf"\[[^\]\n]{{10,40}}\] {_PLACE}(?P<step>\d+) : Sen\. [\d,]+ : Cost (?P<loss>{NUMBER})",
            "",
            rf"(?:(?! : L\.r\. )[^\n])*(?: : L\.r\. (?P<lr>{NUMBER}))?(?: : gNorm (?P<gnorm>{NUMBER}))?[^\n]*",
        ),
        Line(
            "[valid]",
            rf"\[[^\]\n]{{10,40}}\] \[valid\] {_PLACE}\d+ : (?P<name>[\w-]+) : (?P<value>{NUMBER})",
            "",
            r"[^\n]*",
            prefix="eval_",
            pairs=True,
            sure=False,
        ),
    )
    aliases: ClassVar = {"cross-entropy": "loss", "ce-mean-words": "mean_loss"}
