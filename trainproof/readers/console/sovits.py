"""VITS and so-vits-svc `train.log`: the losses of discriminator and generator in one list.

2023-07-22 21:56:12,356\t44k\tINFO\tLosses: [2.72, 2.73, 7.27, 30.2, 3.61], step: 0, lr: 0.0001
2021-07-22 21:56:12,356\tljs_base\tINFO\t[2.72, 2.73, 7.27, 30.2, 1.61, 3.61, 200, 0.0002]
"""

from __future__ import annotations

from trainproof.readers.console.engine import ConsoleReader
from trainproof.readers.console.line import NUMBER, Line

_LOG = r"[\d-]{10} [\d:,]{8,12}\t[^\t\n]{1,80}\tINFO\t"


def _losses(*names: str) -> str:
    return r",\s".join(rf"(?P<loss_{name}>{NUMBER})" for name in names)


_FOUR = _losses("disc", "gen", "fm", "mel")


class SovitsReader(ConsoleReader):
    name = "sovits"
    description = "VITS, so-vits-svc: train.log"
    lines = (
        Line(
            "[",
            _LOG + rf"(?:Losses: |损失：)\[{_FOUR}, (?P<loss_kl>{NUMBER})\](?:, step: |，步数：)(?P<step>\d+)"
            rf"(?:, lr: |，学习率：)(?P<lr>{NUMBER})",
            r"[^\n]*",
        ),
        Line(
            "[",
            _LOG + rf"\[{_FOUR}, (?P<loss_dur>{NUMBER}), (?P<loss_kl>{NUMBER}), (?P<step>\d+), (?P<lr>{NUMBER})\]",
            "",
        ),
    )
