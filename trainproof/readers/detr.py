"""The `log.txt` of DETR, DeiT, MAE and their kin: one JSON object an epoch, `train_` and `test_` before every metric."""

from __future__ import annotations

from collections.abc import Mapping

from trainproof.readers.jsonl import KnownJSONL


class DETRReader(KnownJSONL):
    name = "detr"
    description = "DETR, DeiT, MAE and their kin: `log.txt`, one JSON object an epoch"

    def claims(self, record: Mapping[str, object]) -> bool:
        return {"train_lr", "train_loss", "epoch"} <= record.keys() and "step" not in record
