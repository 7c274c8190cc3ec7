"""YOLO 5 to 12: console output; the columns of the losses differ from version to version, but for the first.

Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size
1/100      2.52G      1.215      3.403      1.102         15        640: 100%|##########| 50/50 [00:10<00:00,  5.00it/s]
             all        128        929      0.681      0.612      0.655      0.451
"""

from __future__ import annotations

from trainproof.readers.console.engine import ConsoleReader
from trainproof.readers.console.line import Line

_NUMBER = r"[ \t]+(?P<{}>[-+.\deE]+|nan|inf)"


class YoloReader(ConsoleReader):
    name = "yolo"
    description = "Ultralytics YOLO and its forebears: console output"
    lines = (
        Line(
            "%|",
            r"[ \t]*(?P<step>\d+)/(?P<of>\d+)[ \t]+[\d.]+[GM]"
            + "".join(map(_NUMBER.format, ("box_loss", "second_loss", "third_loss")))
            + r"(?:"
            + _NUMBER.format("loss")
            + r")?[ \t]+\d+[ \t]+\d+: +\d+%\|",
            "",
            r"[^\n]*",
            total="epochs",
        ),
        Line(
            "all ",
            r"[ \t]+all[ \t]+\d+[ \t]+\d+" + "".join(map(_NUMBER.format, ("precision", "recall", "map50", "map"))),
            "",
            r"[^\n]*",
            prefix="eval_",
            sure=False,
        ),
    )
    refreshed = True
