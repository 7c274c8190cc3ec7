"""fairseq: its log in the formats "simple", "tqdm" and "json"; losses are in bits.

2023-06-28 18:40:31 | INFO | train_inner | epoch 001:     50 / 102400 loss=15.321, ppl=38395.4, num_updates=50, lr=8e-05, gnorm=1.9
2023-06-28 18:51:14 | INFO | valid | epoch 001 | valid on 'valid' subset | loss 8.1 | nll_loss 7.2 | ppl 150.1 | num_updates 1000
2023-06-28 18:40:31 | INFO | train_inner | {"epoch": 1, "update": 0.05, "loss": "15.321", "num_updates": "50", "lr": "8e-05"}
"""

from __future__ import annotations

from trainproof.readers.builder import FrameBuilder
from trainproof.readers.console.engine import ConsoleReader, Reading
from trainproof.readers.console.fields import Cells
from trainproof.readers.console.line import Batch, Line

_LOG = r"(?:\S{1,40}: ?)?[\d-]{10} [\d:,.]{8,15} \| INFO \| "


_UPDATES = frozenset({"num_updates", "valid_num_updates", "train_num_updates"})


class FairseqReader(ConsoleReader):
    name = "fairseq"
    description = "fairseq: train.log and console output"
    lines = (
        Line(" / ", rf"(?:{_LOG}train(?:_inner)? )?\| epoch (?P<epoch>\d+): +\d+ / \d+ ", r"(?=[\w.]+=)[^\n]*"),
        Line("train_inner", rf'{_LOG}train_inner \| \{{(?=")'),
        Line(
            "valid",
            rf"{_LOG}valid \| (?:epoch (?P<epoch>\d+) \| )?valid on '[^'\n]*' subset \| ",
            prefix="eval_",
            sure=False,
        ),
        Line("valid", rf'{_LOG}valid \| \{{(?=")', sure=False),
        Line("train", rf"{_LOG}train \| epoch (?P<epoch>\d+) \| (?=train_loss |loss )", prefix="train_", sure=False),
        Line("train", rf'{_LOG}train \| \{{(?=")', sure=False),
    )

    def reading(self, out: FrameBuilder) -> Reading:
        return _FairseqReading(self, out)


class _FairseqReading(Reading):
    def settled(self, batches: list[Batch]) -> list[Batch]:
        return [batch._replace(columns=_by_updates(batch.columns)) for batch in batches]


def _by_updates(columns: dict[str, Cells]) -> dict[str, Cells]:
    """The columns with the updates done as the step; what is printed beside the epoch counts batches."""
    return {"step" if name in _UPDATES else name: cells for name, cells in columns.items()}
