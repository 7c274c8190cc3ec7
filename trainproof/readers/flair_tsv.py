"""flair's `loss.tsv`: a row an epoch, names in capitals, `_` where there was no value."""

from __future__ import annotations

from trainproof.readers.delimited import KnownTable, Sniffed


class FlairReader(KnownTable):
    name = "flair-tsv"
    description = "flair: `loss.tsv`"

    def claims(self, found: Sniffed) -> bool:
        return found.table.delimiter == "\t" and {"EPOCH", "TRAIN_LOSS"} <= set(found.table.names)
