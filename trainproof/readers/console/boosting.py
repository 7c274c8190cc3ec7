"""Gradient boosting on the console: XGBoost, LightGBM, CatBoost, scikit-learn.

[10]\ttrain-logloss:0.41712\teval-logloss:0.43120
[10]\ttraining's binary_logloss: 0.417121\tvalid_1's binary_logloss: 0.431203
[LightGBM] [Info] Iteration:10, valid_1 l2 : 0.431203
10:\tlearn: 0.4171210\ttest: 0.4312030\tbest: 0.4312030 (10)\ttotal: 51ms\tremaining: 4.9s
[10/100] 1 tree, 31 leaves, max depth = 8, train loss: 0.41712, val loss: 0.43120, in 0.012s
        10           0.4171            2.90s
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from trainproof.readers.builder import FrameBuilder
from trainproof.readers.console.engine import ConsoleReader, Reading
from trainproof.readers.console.line import NUMBER, Batch, Line
from trainproof.readers.console.text import Block, Piece, cleaned, pieces
from trainproof.readers.source import LogInput

_POSSESSIVE = re.compile(rb"(?<=\t)([\w-]{1,60})'s ([\w@.-]{1,60}): ")
_OWN_LINE = re.compile(rb"^\[LightGBM\] \[Info\] Iteration:(\d{1,12}), ([\w-]{1,60}) ([\w@.-]{1,60}) : ", re.MULTILINE)
_BEST = re.compile(rb"^\d{1,12}:\tlearn: [^\n]{1,200}\tbest: ([-+.\w]{1,30}) \(", re.MULTILINE)
_LEARN = re.compile(rb"^\d{1,12}:\tlearn: ([-+.\w]{1,30})\t", re.MULTILINE)
#: what is minimised, in the order in which one is taken for the loss where several are printed
_LOSSES = re.compile(
    r"(?:binary_|multi_|m)?(?:log_?loss)(?:@\d+)?|rmse|l2|mse|cross_entropy|xentropy|l1|mae|rmsle|mape|huber|mphe|quantile|fair|"
    r"poisson(?:-nloglik)?|(?:gamma|tweedie|cox)(?:-n?loglik|-nloglik@[\d.]+|-deviance)?|kldiv|kullback_leibler"
)
_SET_0 = re.compile(rb"\bvalid(?:ation)?_0\b")
_TRAIN = frozenset(("train", "training", "dtrain", "learn", "train_set"))
#: scikit-learn's name of XGBoost's first set: the training set, where another follows
_FIRST = "validation_0"


class BoostingReader(ConsoleReader):
    name = "boosting"
    description = "XGBoost, LightGBM, CatBoost, scikit-learn's boosting: console output"
    lines = (
        Line("]\t", r"(?:\[[\d:]{8}\] )?\[(?P<step>\d+)\]\t(?=[\w-]+-[\w@.-]+:)"),
        Line("\tlearn: ", r"(?P<step>\d+):\t(?=learn: )"),
        Line(" tree", r"\[(?P<step>\d+)/(?P<of>\d+)\] \d+ trees?, (?=[^\n]*train loss: )"),
        Line(
            ".",
            rf" {{3,10}}(?P<step>\d+) {{4,20}}(?P<train_loss>{NUMBER})(?: {{4,20}}(?P<oob_improve>{NUMBER}))? {{4,20}}\d+\.\d\d[sm]",
            "",
            sure=False,
        ),
    )
    aliases: ClassVar = {
        "max depth": "",
        "total": "",
        "remaining": "",
        "best": "",
        "train loss": "loss",
        "val loss": "eval_loss",
        "in": "",
    }

    def sniff(self, head: bytes) -> float:
        text = _rewritten(cleaned(head))
        sure = any(line.sure for line, _ in self.records_in(text))
        return (
            0.9
            if sure or re.search(rb"^ +Iter +Train Loss +(?:OOB Improve +)?Remaining Time", text, re.MULTILINE)
            else 0.0
        )

    def reading(self, out: FrameBuilder) -> Reading:
        return _BoostingReading(self, out)


class _BoostingReading(Reading):
    """Which metric of the training set is the loss, and which way CatBoost's goes, are what the first records say."""

    def run(self, log: LogInput) -> None:
        self._grows: bool | None = None
        self._first = self._loss = ""
        self._first_trains = False
        super().run(log)

    def pieces(self, log: LogInput) -> Iterator[Piece]:
        for (text, numbers), soft in pieces(log):
            if self._grows is None and b":\tlearn: " in text:
                self._grows = _grows(text)
            if not self._first and b"valid" in text:
                self._first_trains = b"validation_1-" in text
                self._first = "1" if self._first_trains or not _SET_0.search(text) else "0"
            yield Piece(Block(_rewritten(text), numbers), soft)

    def settled(self, batches: list[Batch]) -> list[Batch]:
        return [
            batch._replace(columns={self._named(name): cells for name, cells in batch.columns.items()})
            for batch in batches
        ]

    def _named(self, name: str) -> str:
        if name == "learn" or re.fullmatch(r"test\d*", name):
            metric = "score" if self._grows else "loss"
            return metric if name == "learn" else f"eval_{metric}{name[4:]}"
        data, dash, metric = name.partition("-")
        if not dash:
            return name
        if not self._loss and _LOSSES.fullmatch(metric):
            self._loss = metric
        metric = "loss" if metric == self._loss else metric
        trains = data in _TRAIN or (data == _FIRST and self._first_trains)
        return metric if trains else f"eval_{metric}{self._number(data)}"

    def _number(self, data: str) -> str:
        """What tells a set of several: nothing for the first that is no training set."""
        number = re.sub(r"\D", "", data)
        return "" if number in ("", self._first) else number


def _rewritten(text: bytes) -> bytes:
    """LightGBM's lines as XGBoost's."""
    if b"'s " in text:
        text = _POSSESSIVE.sub(rb"\1-\2:", text)
    return _OWN_LINE.sub(rb"[\1]\t\2-\3:", text) if b"] Iteration:" in text else text


def _grows(head: bytes) -> bool:
    """Whether CatBoost's metric is one that is to grow, which it does not say: its best value grew, or it rose between 0 and 1."""
    best = _values(_BEST, head)
    if len(best) > 1:
        return bool(best[-1] > best[0])
    learn = _values(_LEARN, head)
    return len(learn) > 1 and learn.min() >= 0 and learn[0] < learn[-1] <= 1


def _values(pattern: re.Pattern[bytes], text: bytes) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    try:
        return np.array([float(value) for value in pattern.findall(text)])
    except ValueError:
        return np.zeros(0)
