"""Keras' CSVLogger: a row an epoch, metrics in the order of the alphabet. `NA` stands where a metric was not computed."""

from __future__ import annotations

from trainproof.readers.delimited import KnownTable, Sniffed


class KerasReader(KnownTable):
    name = "keras"
    description = "Keras: the file of a `CSVLogger`"

    def claims(self, found: Sniffed) -> bool:
        """`epoch`, then names in the order of the alphabet, `loss` among them and each `val_` beside its metric of training."""
        first, *names = found.table.names
        held_out = [name for name in names if name.startswith("val_")]
        return first == "epoch" and "loss" in names and names == sorted(names) and all(n[4:] in names for n in held_out)
