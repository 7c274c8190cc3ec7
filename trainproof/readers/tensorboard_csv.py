"""A scalar that TensorBoard or Neptune lets one download as CSV: one series a file, its metric in the file's name."""

from __future__ import annotations

import re
from pathlib import PurePath

from trainproof.names import known_tail, plain
from trainproof.readers.builder import FrameBuilder
from trainproof.readers.delimited import KnownTable, Sniffed
from trainproof.readers.header import TENSORBOARD, Table, metric_names
from trainproof.readers.source import LogInput
from trainproof.readers.values import clean_name

#: "run-<run>-tag-<tag>.csv"; newer versions leave out which part is which
_FILE = re.compile(r"(?P<marked>.*-tag-)?(?:run-)?(?P<tag>.+?)(?:\.csv)?(?:\.gz|\.zst|\.xz)?", re.DOTALL)


class TensorBoardCSVReader(KnownTable):
    name = "tensorboard-csv"
    description = "TensorBoard, Neptune: a scalar downloaded as CSV (`Wall time,Step,Value`)"

    def claims(self, found: Sniffed) -> bool:
        names = list(map(plain, found.table.names))
        return tuple(names) == TENSORBOARD or sorted(set(names) - {"", "timestamp"}) == ["step", "value"]

    def read(self, log: LogInput, out: FrameBuilder) -> None:
        self._file = PurePath(log.path).name
        super().read(log, out)

    def metric_names(self, table: Table) -> list[str]:
        match = _FILE.fullmatch(self._file)
        if match is None:
            return metric_names(table)
        tag = clean_name(match["tag"])
        ours = tag if match["marked"] else known_tail(tag)
        return [ours if plain(name) == "value" else name for name in table.names]
