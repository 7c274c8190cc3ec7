"""DeepSpeed: console output of its engine and its pipeline engine, and of DeepSpeed-Chat.

steps: 10 loss: 4.1234 iter time (s): 0.567 samples/sec: 56.437
[2023-05-01 10:00:00,123] [INFO] [logging.py:96:log_dist] [Rank 0] step=10, skipped=0, lr=[9.6e-06], mom=[(0.9, 0.95)]
Epoch: 0, Step: 10, Rank: 0, loss = 2.4375
"""

from __future__ import annotations

from typing import ClassVar

from trainproof.readers.console.engine import ConsoleReader
from trainproof.readers.console.line import Line

_LOG = r"(?:[\w.-]{1,60}: )?(?:\[[^\]\n]{1,60}\] ){1,4}"


class DeepSpeedReader(ConsoleReader):
    name = "deepspeed"
    description = "DeepSpeed, DeepSpeed-Chat: console output"
    lines = (
        Line("loss: ", r"(?:\S{1,60} )?steps?: +(?P<step>\d+)(?: +/ +(?P<of>\d+))? (?=loss: )"),
        Line("Step: ", r"Epoch: (?P<epoch>\d+), Step: (?P<step>\d+), (?:Rank: (?P<rank>\d+), )?(?=[Ll]oss)"),
        Line("step=", _LOG + r"step=(?P<step>\d+), (?=skipped=)", sure=False),
    )
    aliases: ClassVar = {
        "iter time (s)": "step_time",
        "samples/sec": "samples_per_sec",
        "mom": "",
        "skipped": "skipped_steps",
    }
