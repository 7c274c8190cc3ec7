"""CycleGAN and pix2pix `loss_log.txt`: `(epoch: 1, iters: 100, time: 0.198, data: 0.278) D_A: 0.255 G_A: 0.322 cycle_A: 6.358`."""

from __future__ import annotations

from trainproof.readers.console.engine import ConsoleReader
from trainproof.readers.console.line import Line


class CycleGANReader(ConsoleReader):
    name = "cyclegan"
    description = "CycleGAN, pix2pix: loss_log.txt"
    lines = (
        Line(
            "(epoch: ",
            r"(?:\[Rank \d+\] )?\(epoch: (?P<epoch>\d+), iters: (?P<step>\d+), time: (?P<time>[\d.]+)(?:, data: (?P<data>[\d.]+))?\)[ ,]*",
        ),
    )

    def sniff(self, head: bytes) -> float:
        """The heading of such a line is like no other's; its losses have no common names."""
        return 0.9 if any(len(names) > 4 for _, names in self.records_in(head)) else 0.0
