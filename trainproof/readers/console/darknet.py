"""Darknet (YOLO 2 to 4, 7): console output.

1000: 2.155323, 2.187253 avg loss, 0.002610 rate, 6.370815 seconds, 64000 images, 3.7 hours left
mean_average_precision (mAP@0.50) = 0.809347
"""

from __future__ import annotations

from trainproof.readers.console.engine import ConsoleReader
from trainproof.readers.console.line import NUMBER, Line


class DarknetReader(ConsoleReader):
    name = "darknet"
    description = "Darknet: console output"
    lines = (
        Line(
            " rate, ",
            rf"[ \t]*(?P<step>\d+): (?P<loss>{NUMBER}), (?P<smoothed_loss>{NUMBER}) avg(?: loss)?, (?P<lr>{NUMBER}) rate, "
            rf"(?P<step_time>{NUMBER}) seconds, (?P<samples>\d+) images",
            "",
            r"[^\n]*",
        ),
        Line(
            "mean_average_precision",
            rf"[ \t]*mean_average_precision \(mAP@[\d.]+\) = (?P<map>{NUMBER})",
            "",
            r"[^\n]*",
            prefix="eval_",
            sure=False,
        ),
    )
