"""Kaldi's neural networks: the objective of nnet3, which grows towards 0, is minus the loss.

LOG (nnet3-train[5.5]:PrintStatsForThisPhase():nnet-training.cc:291) Average objective function for 'output' for minibatches 100-199 is -3.30404 over 12800 frames.
LOG (nnet3-train[5.5]:PrintTotalStats():nnet-training.cc:331) Overall average objective function for 'output' is -2.91 over 123456 frames.
%Iter\tduration\ttrain_objective\tvalid_objective\tdifference
ITERATION 01: TRAIN AVG.LOSS 2.1221, (lrate0.008), CROSSVAL AVG.LOSS 1.9987, nnet accepted (nnet_iter01)
"""

from __future__ import annotations

from trainproof.readers.builder import FrameBuilder
from trainproof.readers.console.engine import ConsoleReader, Reading
from trainproof.readers.console.fields import Cells
from trainproof.readers.console.line import NUMBER, Batch, Line
from trainproof.readers.source import LogInput

_LOG = r"LOG \(nnet3-[^)\n]{1,80}\([^)\n]{0,80}\)[^)\n]{0,80}\) "
_SUM = rf"(?:{NUMBER} \+ {NUMBER} = )?"  # of the objective and a term of regularisation


_OBJECTIVES = {
    "objective": "loss",
    "overall": "loss",
    "eval_objective": "eval_loss",
    "objective_xent": "loss/xent",
}


class KaldiReader(ConsoleReader):
    name = "kaldi"
    description = "Kaldi nnet1, nnet3: train.*.log, accuracy.report"
    lines = (
        Line(
            "for minibatches",
            _LOG
            + rf"Average objective function for 'output' for minibatches \d+-(?P<step>\d+) is {_SUM}(?P<objective>{NUMBER}) over ",
        ),
        Line(
            "for minibatches",
            _LOG
            + rf"Average objective function for 'output-xent' for minibatches \d+-(?P<step>\d+) is {_SUM}(?P<objective_xent>{NUMBER}) over ",
            sure=False,
        ),
        Line(
            "Overall average",
            _LOG + rf"Overall average objective function for 'output' is {_SUM}(?P<overall>{NUMBER}) over ",
            counted=True,
        ),
        Line(
            "\t",
            rf"(?P<step>\d+)\t{NUMBER}\t(?P<objective>-{NUMBER}|nan|-?inf)\t(?P<eval_objective>-{NUMBER}|nan|-?inf)\t{NUMBER}",
            "",
            sure=False,
        ),
        Line(
            "AVG.LOSS",
            rf"ITERATION (?P<step>\d+): TRAIN AVG\.LOSS (?P<loss>{NUMBER}), \(lrate(?P<lr>{NUMBER})\), "
            rf"CROSSVAL AVG\.LOSS (?P<eval_loss>{NUMBER}),[^\n]*",
            "",
        ),
    )

    def sniff(self, head: bytes) -> float:
        sure = any(line.sure for line, _ in self.records_in(head))
        return 0.9 if sure or b"\ttrain_objective\tvalid_objective" in head else 0.0

    def reading(self, out: FrameBuilder) -> Reading:
        return _KaldiReading(self, out)


class _KaldiReading(Reading):
    """The objective as a loss; that of a whole file only where no stretches of it were told."""

    def run(self, log: LogInput) -> None:
        self._whole = True
        super().run(log)

    def settled(self, batches: list[Batch]) -> list[Batch]:
        self._whole = self._whole and all(batch.line.mark != "for minibatches" for batch in batches)
        kept = [batch for batch in batches if self._whole or not batch.line.counted]
        return [batch._replace(columns=dict(map(_as_loss, batch.columns.items()))) for batch in kept]


def _as_loss(column: tuple[str, Cells]) -> tuple[str, Cells]:
    name, cells = column
    if name not in _OBJECTIVES:
        return column
    return _OBJECTIVES[name], cells._replace(values=-cells.values)
