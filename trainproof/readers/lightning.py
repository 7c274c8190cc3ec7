"""Lightning's CSVLogger `metrics.csv`: a row carries one set of metrics (a step's, an epoch's, a validation's), the other cells
are blank."""

from __future__ import annotations

from trainproof.readers.columns import Batch
from trainproof.readers.delimited import KnownTable, Sniffed

#: -1 when hyperparameters were saved and no metric was given with them
HP_METRIC = "hp_metric"


class LightningReader(KnownTable):
    name = "lightning"
    description = "Lightning: CSVLogger's `metrics.csv`"

    def claims(self, found: Sniffed) -> bool:
        """Columns `epoch` and `step` among sorted ones, or rows that lack some of the others, or metrics in their _step and _epoch
        forms."""
        names = found.table.names
        if found.table.delimiter != "," or len(names) < 3 or not {"epoch", "step"} <= set(names):
            return False
        forms = any(name.endswith("_step") and f"{name[:-5]}_epoch" in names for name in names)
        return forms or list(names) == sorted(names) or any("" in row for row in found.rows)

    def refine(self, batch: Batch) -> Batch:
        return batch.without(lambda name, values: (values == -1) & (name == HP_METRIC))
