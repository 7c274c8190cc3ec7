"""detectron2's `metrics.json`: JSONL, a record every 20 iterations, evaluations in between.

An evaluation of a class that the data does not have is NaN by definition, not by a fault.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from trainproof.readers.columns import Batch
from trainproof.readers.jsonl import KnownJSONL

_EVALUATION = re.compile(r"(?:bbox|segm|keypoints|sem_seg|panoptic_seg|box_proposals)/.+")
_SIGNS = frozenset({"eta_seconds", "data_time", "total_loss"})


class Detectron2Reader(KnownJSONL):
    name = "detectron2"
    description = "detectron2: `metrics.json`"
    step_key = "iteration"

    def claims(self, record: Mapping[str, object]) -> bool:
        return "iteration" in record and (len(_SIGNS & record.keys()) >= 2 or any(map(_EVALUATION.match, record)))

    def refine(self, batch: Batch) -> Batch:
        names = {name: f"eval/{name}" for name in batch.columns if _EVALUATION.fullmatch(name)}
        return batch.renamed(names).without(lambda name, values: np.isnan(values) & (name in names.values()))
