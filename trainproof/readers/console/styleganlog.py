"""StyleGAN's log.txt: ticks without a loss, and the metrics of its snapshots.

tick 80    kimg 320.0    time 4h 36m 26s   sec/tick 153.8   sec/kimg 38.45   maintenance 0.0    cpumem 3.12   gpumem 6.34   augment 0.570
{"results": {"fid50k_full": 38.25}, "metric": "fid50k_full", "total_time": 541.9, "snapshot_pkl": "network-snapshot-000320.pkl"}
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from trainproof.readers.builder import FrameBuilder
from trainproof.readers.console.engine import ConsoleReader, Reading
from trainproof.readers.console.fields import Cells
from trainproof.readers.console.line import Batch, Line
from trainproof.readers.source import LogInput

#: a distance between images' features beyond this is one whose computation broke down
_LARGEST_DISTANCE = 1e5


class StyleGANLogReader(ConsoleReader):
    name = "stylegan-log"
    description = "StyleGAN2, StyleGAN3: log.txt"
    lines = (
        Line("tick ", r"tick (?P<step>\d+) +(?=kimg )"),
        Line('{"results"', r'\{"results": \{', r"[^{}\n]*", r'\}, "metric": [^\n]*', prefix="eval_", sure=False),
    )
    #: hours and minutes are fields of their own
    aliases: ClassVar = {"time": "", "gpumem": "memory"}

    def sniff(self, head: bytes) -> float:
        """A tick; it has no loss."""
        return 0.9 if any("sec/tick" in names for _, names in self.records_in(head)) else 0.0

    def reading(self, out: FrameBuilder) -> Reading:
        return _StyleGANReading(self, out)


class _StyleGANReading(Reading):
    def run(self, log: LogInput) -> None:
        self.out.facts.declare("losses_in", "stats.jsonl", "the format")
        super().run(log)

    def settled(self, batches: list[Batch]) -> list[Batch]:
        return [batch._replace(columns=_possible(batch.columns)) if batch.line.prefix else batch for batch in batches]


def _possible(columns: dict[str, Cells]) -> dict[str, Cells]:
    """The metrics without values that none of them can have (matrix square roots overflow to 1e57, and to -1e68)."""
    return {
        name: Cells(values, (np.abs(values) < _LARGEST_DISTANCE) & (values >= 0))
        for name, (values, _) in columns.items()
    }
