"""Ultralytics' `results.csv` (YOLOv5 to v8 and their kin): a row an epoch, the loss only in parts.

`time` counts seconds since the start; the first learning rate of a group may come down from a warm-up's high start.
"""

from __future__ import annotations

from trainproof.readers.delimited import KnownTable, Sniffed

_LOSSES = ("train/box_loss", "train/loss", "train/seg_loss", "train/pose_loss")
_OTHERS = ("metrics/", "val/", "lr/pg", "x/lr")


class UltralyticsReader(KnownTable):
    name = "ultralytics"
    description = "Ultralytics YOLO: `results.csv`, versions 5 to 8"

    def claims(self, found: Sniffed) -> bool:
        """`epoch` first, losses of training, and two other groups of columns."""
        names = found.table.names
        groups = sum(any(name.startswith(prefix) for name in names) for prefix in _OTHERS)
        return names[0] == "epoch" and any(name in names for name in _LOSSES) and groups >= 2
