"""W&B's `wandb-summary.json`: the last value of each metric. It is recognised to be told apart from a curve, and refused."""

from __future__ import annotations

from trainproof.errors import FormatError
from trainproof.readers.builder import FrameBuilder
from trainproof.readers.source import LogInput
from trainproof.readers.values import decode_json

#: what W&B writes into every summary; the history has the last two in every record as well
_OWN, _RUNTIME, _STEP = "_wandb", "_runtime", "_step"


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
