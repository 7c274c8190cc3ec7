"""Lines of `key: value` or `key=value` that no known logger printed: the last resort, and the report says so.

A text is claimed when at least 12 of its lines share what counts them and a loss. What is read this way was guessed, so the
findings on it are warnings at most, unless a value is not finite.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

import numpy as np

from trainproof.errors import FormatError
from trainproof.frame import Floats
from trainproof.names import plain
from trainproof.readers.base import FURTHER_BYTES
from trainproof.readers.builder import FrameBuilder
from trainproof.readers.console.engine import LOSS, ConsoleReader, Reading
from trainproof.readers.console.fields import COUNTERS, STRICT_FIELD, columns_of, fields_of
from trainproof.readers.console.line import Batch, Line
from trainproof.readers.console.text import Block, cleaned, pieces
from trainproof.readers.source import LogInput

#: lines that must share a counter and a loss for a text to be a log
SHARED_LINES = 12
#: lines from which it is learned what counts them
LEARNED_LINES = 2000
#: share of lines in which a counter may stay as it was and still number them
STANDING_SHARE = 0.1
_MARK = b"oss"
#: a cheap look at a line: what may be a loss and its value
_PROMISING = re.compile(rb"(?i:oss)\w*['\"]?[ \t]*[:=]?[ \t]*['\"\[(]*[-+]?(?:\.?\d|(?i:nan|inf))")
_EPOCH = re.compile(r"(?:.*[ _])?epochs?\Z", re.IGNORECASE)


class Plan(NamedTuple):
    """What counts the records (None: their order), what tells the epoch, and the loss that they share."""

    step: str | None
    epoch: str | None
    loss: str


class GenericReader:
    name = "generic-text"
    description = "lines of `key: value` or `key=value` with a step and a loss (a guess)"

    def sniff(self, head: bytes) -> float:
        text = cleaned(head)
        return 0.3 if _plan([Block(text, np.arange(text.count(b"\n")))]) else 0.0

    def read(self, log: LogInput, out: FrameBuilder) -> None:
        plan = _plan(_first_blocks(log))
        if plan is None:
            raise FormatError(
                f"{log.path}: no {SHARED_LINES} lines in it that share a step and a loss as `key: value`, expected a log"
            )
        counter = plan.step or f"the order of the lines{f' ({plan.epoch} stands still)' if plan.epoch else ''}"
        out.guess(f"read as lines of `key: value`, counted by {counter}, with the loss {plan.loss!r}")
        _GenericReading(_Planned(plan), out, plan).run(log)


class _Planned(ConsoleReader):
    """The lines that the plan speaks of, and other lines with a loss, which stand at the step before."""

    name = GenericReader.name
    description = GenericReader.description

    def __init__(self, plan: Plan) -> None:
        self.lines = (
            Line(plan.loss, "", strict=True, counted=plan.step is None),
            Line(_MARK.decode(), "", strict=True),
        )


class _GenericReading(Reading):
    def __init__(self, reader: ConsoleReader, out: FrameBuilder, plan: Plan) -> None:
        super().__init__(reader, out)
        self._plan = plan

    def settled(self, batches: list[Batch]) -> list[Batch]:
        names = {self._plan.step: "step", self._plan.epoch: "epoch"}
        return [
            batch._replace(
                columns={
                    names.get(name, plain(name)): cells
                    for name, cells in batch.columns.items()
                    if name in names or not _counts(name)
                }
            )
            for batch in batches
        ]


def _counts(name: str) -> bool:
    """Whether the last word of a name is one that counts."""
    return re.split(r"[ _/]", name.lower())[-1] in COUNTERS


def _first_blocks(log: LogInput) -> Iterator[Block]:
    seen = 0
    for block, _ in pieces(log):
        yield block
        seen += len(block.text)
        if seen >= FURTHER_BYTES:
            return


def _plan(blocks: Iterator[Block] | list[Block]) -> Plan | None:
    """What the lines share; None when too few of them share a counter and a loss."""
    lines = list(islice((found for block in blocks for found in _counted_losses(block)), LEARNED_LINES))
    shared = Counter((counters, loss) for counters, losses, _ in lines for loss in losses)
    if not shared:
        return None
    (counters, loss), count = shared.most_common(1)[0]
    if count < SHARED_LINES:
        return None
    rows = [
        [values[name] for name in counters] for names, losses, values in lines if names == counters and loss in losses
    ]
    columns = columns_of([cell for row in rows for cell in row], len(counters))
    numbering = {name: cells.values for name, cells in zip(counters, columns, strict=True) if _numbers(cells.values)}
    epoch = next((name for name in counters if _EPOCH.match(name)), None)
    step = next((name for name in numbering if name != epoch), epoch if epoch in numbering else None)
    return Plan(step, epoch if epoch != step else None, loss)


def _counted_losses(block: Block) -> Iterator[tuple[tuple[str, ...], list[str], dict[str, bytes]]]:
    """The counters, the losses and all values of each line that has both."""
    for span in block.lines_with(_MARK):
        text = block.text[span.begin : span.end]
        if not _PROMISING.search(text):
            continue
        names, values = fields_of(text, STRICT_FIELD)
        counters = tuple(dict.fromkeys(name for name in names if _counts(name)))
        losses = [name for name in dict.fromkeys(names) if LOSS.search(name) and not _counts(name)]
        if counters and losses:
            yield counters, losses, dict(zip(reversed(names), reversed(values), strict=True))


def _numbers(values: Floats) -> bool:
    """Whether a counter has whole numbers that hardly ever stand still from one record to the next."""
    whole = bool((np.isfinite(values) & (np.floor(values) == values)).all())
    return whole and float((np.diff(values) == 0).mean()) <= STANDING_SHARE
