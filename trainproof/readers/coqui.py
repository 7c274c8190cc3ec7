"""Coqui Trainer text logs (`trainer_0_log.txt`).

Training values are the instantaneous ones, not the running mean in brackets. Evaluation averages become `eval_<metric>` at the last
global step. Record lines are anchored: nothing else in the file is looked at.
"""

from __future__ import annotations

import re

from trainproof.readers.builder import FrameBuilder
from trainproof.readers.source import LogInput
from trainproof.readers.values import as_step, parse_number

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_STEP = re.compile(r"\s*--> (?:TIME: (?P<time>[\d\- :]+) -- )?STEP: (?P<step>\d+)(?:/\d+)?(?: -- GLOBAL_STEP: (?P<global>\d+))?\s*\Z")
_VALUE = re.compile(r"\s*\| > (?P<name>[\w./-]+):\s*(?P<value>[-+\w.]+)(?:\s+\((?P<mean>[-+\w.]+)\))?\s*\Z")
_EPOCH = re.compile(r"\s*> EPOCH: (?P<epoch>\d+)/(?P<epochs>\d+)\s*\Z")
_TRAINING = re.compile(r"\s*> TRAINING\b")
_EVALUATION = re.compile(r"\s*> EVALUATION\b")
_PERFORMANCE = re.compile(r"\s*--> EVAL PERFORMANCE\s*\Z")


class CoquiReader:
    name = "coqui"
    description = "Coqui Trainer: trainer_0_log.txt"

    def sniff(self, head: bytes) -> float:
        text = _ANSI.sub("", head.decode("utf-8", "replace"))
        lines = text.split("\n")
        steps = sum(_STEP.match(line.rstrip("\r")) is not None for line in lines)
        values = sum(_VALUE.match(line.rstrip("\r")) is not None for line in lines)
        return 0.9 if steps and values else 0.5 if values > 2 and "EVAL PERFORMANCE" in text else 0.0

    def read(self, log: LogInput, out: FrameBuilder) -> None:
        parser = _Parser(out)
        for line, text in log.lines():
            parser.line(line, _ANSI.sub("", text))


class _Parser:
    """Where in the log we are: the global step, the epoch, and whether values belong to training, to an evaluation, or to nothing."""

    def __init__(self, out: FrameBuilder) -> None:
        self.out = out
        self.step: int | None = None
        self.epoch: int | None = None
        self.block = ""  # "train" (values of a step), "eval" (averages), or "" (neither)
        self.evaluating = False

    def line(self, number: int, text: str) -> None:
        if match := _VALUE.match(text):
            self._value(number, match)
        elif match := _STEP.match(text):
            self._step(match)
        elif match := _EPOCH.match(text):
            self.epoch, self.block = int(match["epoch"]), ""
            self.out.facts.declare("epochs", int(match["epochs"]), "the log")
        elif _PERFORMANCE.match(text):
            self.block = "eval"
        elif _TRAINING.match(text):
            self.block, self.evaluating = "", False
        elif _EVALUATION.match(text):
            self.block, self.evaluating = "", True

    def _step(self, match: re.Match[str]) -> None:
        """A training step names its global step; the steps that an evaluation prints have none."""
        step = as_step(match["global"]) if match["global"] else None
        if step is None or self.evaluating:
            self.block = ""
            return
        self.step, self.block = step, "train"

    def _value(self, number: int, match: re.Match[str]) -> None:
        value = parse_number(match["value"])
        if value is None:
            self.out.drop(number, f"{match['name']}: {match['value']!r} is no number")
            return
        if self.block == "eval" and match["name"].startswith("avg_"):
            self.out.add(self.step or 0, {f"eval_{match['name'].removeprefix('avg_')}": value}, number)
        elif self.block == "train" and self.step is not None:
            values = {match["name"]: value}
            if self.epoch is not None and match["name"].startswith("current_lr") and not match["name"].endswith("_1"):
                values["epoch"] = float(self.epoch)
            self.out.add(self.step, values, number)
