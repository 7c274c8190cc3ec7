"""nanoGPT, build-nanogpt and llm.c's train_gpt2.py: console output.

step 200: train loss 6.6253, val loss 6.6336
iter 201: loss 6.6140, time 263.56ms, mfu -100.00%
step   200 | loss: 6.625300 | lr 4.2857e-06 | norm: 15.3379 | dt: 810.90ms | tok/sec: 646000.10
"""

from __future__ import annotations

from typing import ClassVar

from trainproof.readers.console.engine import ConsoleReader
from trainproof.readers.console.line import Line


class NanoGPTReader(ConsoleReader):
    name = "nanogpt"
    description = "nanoGPT, build-nanogpt and llm.c: console output"
    lines = (
        Line("iter ", r"iter (?P<step>\d+): (?=(?:\w+ )?loss )"),
        Line("step ", r"step (?P<step>\d+): (?=train loss )"),
        Line("step ", r"step +(?P<step>\d+)(?:/(?P<of>\d+))? \| (?=(?:train )?loss:? )"),
        Line("val", r"val(?:idation)? loss:? (?P<val_loss>[-+.\w]+)", "", sure=False),
    )
    aliases: ClassVar = {"time": "step_time", "dt": "step_time"}
