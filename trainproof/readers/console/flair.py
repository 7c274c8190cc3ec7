"""flair `training.log`; the loss of an iteration is the mean since the epoch began.

2019-06-11 13:45:02,441 epoch 1 - iter 14/149 - loss 0.71617633
2019-06-11 13:54:52,676 EPOCH 1 done: loss 0.2911 - lr 0.1000 - bad epochs 0
2019-06-11 13:55:49,388 DEV : loss 0.23140907287597656 - score 0.8115
"""

from __future__ import annotations

from typing import ClassVar

from trainproof.readers.console.engine import ConsoleReader
from trainproof.readers.console.line import Line

_LOG = r"[\d-]{10} [\d:,]{8,12} "


class FlairReader(ConsoleReader):
    name = "flair"
    description = "flair: training.log"
    lines = (
        Line("iter ", _LOG + r"epoch (?P<epoch>\d+) - iter (?P<batch>\d+)/(?P<batches>\d+) - (?=loss )"),
        Line("EPOCH ", _LOG + r"EPOCH \d+ done: ", prefix="train_", sure=False),
        Line("DEV : ", _LOG + r"DEV : ", prefix="dev_", sure=False),
        Line("TEST : ", _LOG + r"TEST : ", prefix="test_", sure=False),
    )
    aliases: ClassVar = {"time (sec)": "", "bad epochs": ""}
