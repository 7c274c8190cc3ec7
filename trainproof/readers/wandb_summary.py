"""W&B's `wandb-summary.json`, the last value of each metric, and its table of runs. They are recognised to be told apart from curves, and refused."""

from __future__ import annotations

import csv

from trainproof.errors import FormatError
from trainproof.readers.builder import FrameBuilder
from trainproof.readers.source import LogInput
from trainproof.readers.values import decode_json

#: what W&B writes into every summary; the history has the last two in every record as well
_OWN, _RUNTIME, _STEP = "_wandb", "_runtime", "_step"
#: what a run can be in the column "State" of a table of runs
_STATES = frozenset(("finished", "crashed", "running", "failed", "killed"))


class WandbSummaryReader:
    name = "wandb-summary"
    description = "W&B: `wandb-summary.json`, recognised and refused, for it is no curve"

    def sniff(self, head: bytes) -> float:
        """One object, on however many lines; a history of one record would be no curve either."""
        try:
            summary = decode_json(head)
        except ValueError:
            return 0.0
        return 0.9 if isinstance(summary, dict) and (_OWN in summary or {_RUNTIME, _STEP} <= summary.keys()) else 0.0

    def read(self, log: LogInput, out: FrameBuilder) -> None:  # noqa: ARG002  every reader's signature
        raise FormatError(
            f"{log.path}: a W&B summary, the last values of a run and no curve; expected its run-*.wandb or an exported CSV"
        )


class WandbRunsReader:
    name = "wandb-runs"
    description = "W&B: the table of a project's runs, recognised and refused, for it is no curve"

    def sniff(self, head: bytes) -> float:
        """A column of names and one of states, with nothing but states in it."""
        try:
            names, *rows = list(csv.reader(head.decode("utf-8", "replace").splitlines()[:-1][:50])) or [[]]
        except csv.Error:
            return 0.0
        if "Name" not in names or "State" not in names:
            return 0.0
        at = names.index("State")
        return 0.95 if rows and all(len(row) == len(names) and row[at] in _STATES for row in rows) else 0.0

    def read(self, log: LogInput, out: FrameBuilder) -> None:  # noqa: ARG002  every reader's signature
        raise FormatError(
            f"{log.path}: a table of W&B's runs, a row a run and no curve; expected the history of one of them"
        )
