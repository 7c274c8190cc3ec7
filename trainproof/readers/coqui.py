"""Coqui Trainer text logs (`trainer_0_log.txt`).

Training values are the instantaneous ones, not the running mean in brackets. Evaluation averages become `eval_<metric>`
at the last global step. Values count only below a heading that says what they are; nothing else is looked at.
"""

from __future__ import annotations

import re

from trainproof.readers.builder import FrameBuilder
from trainproof.readers.fatal_lines import Watch
from trainproof.readers.source import LogInput
from trainproof.readers.values import as_step, clean_name, parse_number

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_VALUE = re.compile(r"\s*\| > (?P<name>[^:\s][^:]{0,200}?)\s*:\s*(?P<value>\S+)")
_HEADING = re.compile(r"\s*(?:-->|>|!)\s*(?P<text>.+)")
_STEP = re.compile(
    r"(?:TIME: [\d\- :.]+ -- )?STEP: (?P<step>\d+)(?:/(?P<steps>\d+))?(?: -- GLOBAL_STEP: (?P<global>\d+))?\s*\Z"
)
_EPOCH = re.compile(r"EPOCH: (?P<epoch>\d+)/(?P<epochs>\d+)\s*\Z")
_RESTORED = re.compile(r"Model restored from step (?P<step>\d+)\s*\Z")
_WHERE = "the log"


class CoquiReader:
    name = "coqui"
    description = "Coqui Trainer: `trainer_0_log.txt`"

    def sniff(self, head: bytes) -> float:
        """Values below a heading of a step or of an evaluation."""
        below = False
        for line in _ANSI.sub("", head.decode("utf-8", "replace")).split("\n"):
            if heading := _HEADING.match(line):
                text = heading["text"].rstrip()
                below = text == "EVAL PERFORMANCE" or _STEP.match(text) is not None
            elif below and (value := _VALUE.match(line)) and parse_number(value["value"]) is not None:
                return 0.9
        return 0.0

    def read(self, log: LogInput, out: FrameBuilder) -> None:
        parser = _Parser(out)
        for line, text in log.lines():
            parser.read(line, _ANSI.sub("", text) if "\x1b" in text else text)
        parser.watch.finish()


class _Parser:
    """Where in the log we are: the global step, and whether values belong to training, an evaluation or neither."""

    def __init__(self, out: FrameBuilder) -> None:
        self.out = out
        self.watch = Watch(out)
        self.step = 0
        self.epoch: int | None = None
        self.steps_per_epoch = 0
        self.block = ""  # "train" (values of a step), "eval" (averages), or "" (neither)
        self.unseen = False  # an epoch of training that has printed no step so far

    def read(self, line: int, text: str) -> None:
        if match := _VALUE.match(text):
            if self.block:
                self._value(line, clean_name(match["name"]), match["value"])
        elif match := _HEADING.match(text):
            self._heading(line, match["text"].rstrip())
        elif text:
            self.watch.line(line, text.encode("utf-8", "replace"))

    def _heading(self, line: int, text: str) -> None:
        self.block = ""
        if match := _STEP.match(text):
            self._step(line, match)
        elif match := _EPOCH.match(text):
            self.epoch = as_step(match["epoch"])
            self.out.facts.declare("epochs", as_step(match["epochs"]), _WHERE)
        elif match := _RESTORED.match(text):
            self.step = as_step(match["step"]) or 0
        elif text.startswith("TRAINING"):
            self.unseen = True
        elif text == "EVAL PERFORMANCE":
            self.block = "eval"
            if self.unseen:  # else two evaluations would stand at one step
                self.step += self.steps_per_epoch
                self.unseen = False

    def _step(self, line: int, match: re.Match[str]) -> None:
        """A training step names its global step; the steps that an evaluation prints have none."""
        if match["global"] is None:
            return
        step = as_step(match["global"])
        if step is None:
            self.out.drop(line, f"GLOBAL_STEP {match['global'][:20]} is no step")
            return
        self.step, self.block, self.unseen = step, "train", False
        self.steps_per_epoch = as_step(match["steps"]) or 0
        if self.steps_per_epoch:
            self.out.facts.declare("steps_per_epoch", self.steps_per_epoch, _WHERE)
        if self.epoch is not None:
            self.out.add(step, {"epoch": float(self.epoch)}, line)

    def _value(self, line: int, name: str, text: str) -> None:
        value = parse_number(text)
        if value is None:
            self.out.drop(line, f"{name}: {text[:40]!r} is no number")
        elif self.block == "train":
            self.out.add(self.step, {name: value}, line)
            self.watch.record(line)
        else:
            self.out.add(self.step, {f"eval_{name.removeprefix('avg_')}": value}, line)
