"""LLaMA-Factory's `trainer_log.jsonl`, every generation: absent keys as null, `learning_rate` or `lr`, with and without preference
metrics. The run declares its planned steps in every record, and ends with a record of the last step without a loss."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from trainproof.readers.columns import Batch
from trainproof.readers.jsonl import KnownJSONL

STEP, TOTAL = "current_steps", "total_steps"


class LlamaFactoryReader(KnownJSONL):
    name = "llamafactory"
    description = "LLaMA-Factory: `trainer_log.jsonl`"
    step_key = STEP

    def claims(self, record: Mapping[str, object]) -> bool:
        return STEP in record and TOTAL in record

    def refine(self, batch: Batch) -> Batch:
        if batch.where(STEP).all() and batch.where(TOTAL).all():
            last = batch.columns[STEP].values == batch.columns[TOTAL].values
            if bool(np.any(last & ~batch.where("loss") & ~batch.where("eval_loss"))):
                self.ended = True
        return batch
