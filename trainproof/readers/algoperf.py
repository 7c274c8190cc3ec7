"""AlgoPerf `measurements.csv` and `eval_measurements.csv`: a row a measurement, blank where a value was not measured or was NaN."""

from __future__ import annotations

from trainproof.readers.builder import FrameBuilder
from trainproof.readers.delimited import KnownTable, Sniffed

_COLUMNS = frozenset({"global_step", "accumulated_submission_time", "preemption_count"})


class AlgoPerfReader(KnownTable):
    name = "algoperf"
    description = "AlgoPerf: `measurements.csv` and `eval_measurements.csv`"

    def claims(self, found: Sniffed) -> bool:
        return set(found.table.names) >= _COLUMNS

    def declare(self, out: FrameBuilder) -> None:
        out.mask("loss")  # a NaN is written as a blank cell
