"""Meters of `value (running mean)`: timm, torchvision's references and their kin (DETR, MAE, DINO), PyTorch's ImageNet example.

Train: 0 [ 200/390 ( 51%)]  Loss: 13.39 (13.5)  Time: 0.6s, 400.1/s  (0.7s, 380.2/s)  LR: 1.000e-04
Epoch: [0]  [ 20/400]  eta: 0:10:00  lr: 0.000100  loss: 6.9012 (6.9512)  time: 0.6123  data: 0.0002
Epoch: [0][ 100/5005]  Time  0.321 ( 1.212)  Data  0.012 ( 0.512)  Loss 6.9e+00 (7.0e+00)  Acc@1   0.10 (  0.12)
Test: [  78/78]  Time: 0.011 (0.105)  Loss:  4.1528 (4.1677)  Acc@1: 31.2500 (10.7600)

A training record has the values of its batch, an evaluation the means over its data: the last line of its loop has them all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import ClassVar

from trainproof.readers.builder import FrameBuilder
from trainproof.readers.console.engine import ConsoleReader, Reading
from trainproof.readers.console.line import Line
from trainproof.readers.console.text import Block, Piece, pieces
from trainproof.readers.source import LogInput

_BEFORE = r"(?:[^\n]{0,150}?[ \t])??"
_POSITION = r"\[ *(?P<batch>\d+)/ *(?P<batches>\d+) *"
_TEST = r"(?:Test|Val|Valid|Validation|Eval)[ \w().-]{0,30}: +\[ *\d+/ *\d+\]"
_TEST_LINE = re.compile(rb"^" + (_BEFORE + _TEST).encode() + rb"[^\n]*", re.MULTILINE)
_MEAN = re.compile(rb"(?<=[ \t])[-+.\deE]++[ \t]+\([ \t]*(?=[-+.\deE]+\))")


class MetersReader(ConsoleReader):
    name = "meters"
    description = "timm, torchvision references, PyTorch ImageNet example: console output"
    lines = (
        Line("Train: ", _BEFORE + r"Train: (?P<epoch>\d+) " + _POSITION + r"\( *\d+%\)\]", first_epoch=0),
        Line("Epoch: [", _BEFORE + r"Epoch: \[(?P<epoch>\d+)\] *" + _POSITION + r"\]", first_epoch=0),
        Line("[", _BEFORE + _TEST, prefix="eval_", sure=False),
    )
    aliases: ClassVar = {"Time": "step_time", "time": "step_time", "Data": "data_time", "data": "data_time", "eta": ""}
    refreshed = True

    def reading(self, out: FrameBuilder) -> Reading:
        return _MetersReading(self, out)

    def metric(self, line: Line, name: str) -> str:
        """Times are those of training alone."""
        return "" if line.prefix and name.lower() in ("time", "data", "eta") else super().metric(line, name)


class _MetersReading(Reading):
    def pieces(self, log: LogInput) -> Iterator[Piece]:
        """The log, with the means alone in the lines of evaluations."""
        for (text, numbers), soft in pieces(log):
            yield Piece(Block(_TEST_LINE.sub(lambda match: _MEAN.sub(b"", match[0]), text), numbers), soft)
