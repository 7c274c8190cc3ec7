"""GPT speedruns (modded-nanogpt, parameter-golf): `step:125/5960 val_loss:4.4842 train_time:67200ms step_avg:537.60ms`.

The program's own source stands in the log before the run or after it. Only fields that are glued to their colon count.
"""

from __future__ import annotations

from typing import ClassVar

from trainproof.readers.console.engine import ConsoleReader
from trainproof.readers.console.line import Line

_FIELDS = r"(?: [A-Za-z]\w*:[^\n]*)?"


class SpeedrunReader(ConsoleReader):
    name = "speedrun"
    description = "GPT speedruns (modded-nanogpt, parameter-golf) and their orchestrators: console output"
    lines = (Line("step:", r"(?:\[[\d:. -]+\] progress [^\w\s]+ )?step:(?P<step>\d+)/(?P<of>\d+)", _FIELDS),)
    #: clocks in one of two units, and the mean of all steps so far, which is no step's time
    aliases: ClassVar = {"train_time": "", "step_avg": "", "t": "", "avg": ""}
    end_mark = b"\nstopping_early: "
