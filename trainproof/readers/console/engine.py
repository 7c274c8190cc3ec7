"""What all readers of console output share: from lines to points, each at its step."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainproof.frame import Floats, Ints
from trainproof.readers.builder import FrameBuilder
from trainproof.readers.console.line import PLACES, Batch, Line, LineReader, reader_of
from trainproof.readers.console.text import Block, Piece, cleaned, pieces
from trainproof.readers.fatal_lines import Watch
from trainproof.readers.source import LogInput
from trainproof.readers.values import LARGEST_STEP, SMALLEST_STEP

#: record lines of a kind that are looked at to recognise a format
SNIFFED_LINES = 500
#: names that one log may have; what comes after them is dropped
MOST_NAMES = 5000
#: integers beyond this are not exact as floats
_EXACT = 2.0**53
_WHERE = "the log"
_NOWHERE = np.zeros(0, np.int64)
#: a name that speaks of a loss
LOSS = re.compile(r"loss(?![_ -]?scal)|(?:trl|tel)\Z", re.IGNORECASE)


class ConsoleReader:
    """A console format: its kinds of record line, and what its metrics are called."""

    name: str
    description: str
    lines: tuple[Line, ...]
    #: the logger's name of a metric -> the name that tells it; "" where it is none
    aliases: ClassVar[Mapping[str, str]] = {}
    #: metrics that the logger repeats until they are measured again, by their names' begins
    repeated: ClassVar[tuple[str, ...]] = ()
    #: a line is printed again and again until its step is done
    refreshed: ClassVar[bool] = False
    #: a line with this text is the logger's own end of the run
    end_mark: ClassVar[bytes] = b""

    @cached_property
    def line_readers(self) -> tuple[LineReader, ...]:
        return tuple(map(reader_of, self.lines))

    def sniff(self, head: bytes) -> float:
        """A record line with a loss."""
        return (
            0.9
            if any(LOSS.search(name) for line, names in self.records_in(head) if line.sure for name in names)
            else 0.0
        )

    def records_in(self, head: bytes) -> Iterator[tuple[Line, list[str]]]:
        """The record lines in the beginning of a log, kind by kind, with the metrics in each."""
        text = cleaned(head)
        block = Block(text, np.arange(text.count(b"\n")))
        for reader in self.line_readers:
            for names in reader.names_in(block, SNIFFED_LINES):
                yield reader.line, [self.metric(reader.line, name) for name in names]

    def metric(self, line: Line, name: str) -> str:
        """The name under which a field or group of a line is given; "" when it is no metric."""
        if name in PLACES:
            return ""
        alias = self.aliases.get(name, name)
        return line.prefix + alias if alias and name != "epoch" else alias

    def read(self, log: LogInput, out: FrameBuilder) -> None:
        self.reading(out).run(log)

    def reading(self, out: FrameBuilder) -> Reading:
        return Reading(self, out)


class Points(NamedTuple):
    """Points of one metric: the line of each, its step and its value; shape (n,)."""

    lines: Ints
    steps: Ints
    values: Floats

    def take(self, kept: NDArray[np.bool_]) -> Points:
        return self if kept.all() else Points(self.lines[kept], self.steps[kept], self.values[kept])


class Reading:
    """One pass over a log."""

    def __init__(self, reader: ConsoleReader, out: FrameBuilder) -> None:
        self.reader, self.out = reader, out
        self.watch = Watch(out)
        self.step = 0  # of the last line that had one
        self._last: dict[str, float] = {}  # the last value of each metric that the logger repeats
        self._names: set[str] = set()

    def run(self, log: LogInput) -> None:
        for block, soft in self.pieces(log):
            self.out.soft(soft)
            batches: list[Batch] = []
            for reader in self.reader.line_readers:
                found, block = reader.read(block)
                batches += found
            if batches:
                self._give(self.settled(batches))
            last = max((int(batch.lines.max()) for batch in batches if len(batch.lines)), default=None)
            if self.watch.interested(block.text):
                for line, text in zip(block.numbers.tolist(), block.text.split(b"\n"), strict=False):
                    self.watch.line(line, text)
            if last is not None:
                self.watch.record(last)
            if self.reader.end_mark and self.reader.end_mark in b"\n" + block.text:
                self.out.end()
        total = self.out.facts.number("total_steps")
        self.watch.finish(done=total is not None and self.step >= total)

    def pieces(self, log: LogInput) -> Iterator[Piece]:
        """The text of the log, piece by piece."""
        return pieces(log)

    def settled(self, batches: list[Batch]) -> list[Batch]:
        """A hook for formats whose records need more than their names."""
        return batches

    def _give(self, batches: Sequence[Batch]) -> None:
        """Hand a piece's records to the builder, in the order of the log."""
        counted = np.sort(np.concatenate([_NOWHERE, *(batch.lines for batch in batches if batch.line.counted)]))
        own = [self._own_steps(batch, counted) for batch in batches]
        anchors = _merged(
            [
                Points(batch.lines, steps, steps.astype(np.float64)).take(steps >= SMALLEST_STEP)
                for batch, steps in zip(batches, own, strict=True)
                if steps is not None
            ]
        )
        found: dict[str, list[Points]] = {}
        for batch, steps in zip(batches, own, strict=True):
            if steps is None:
                steps = self._carried(batch.lines, anchors)
            self._collect(batch, steps, found)
        for name in sorted(found, key="epoch".__eq__):  # last: it is no main series
            points = self._without_repeats(name, _merged(found[name]))
            if len(points.values):
                self.out.extend(name, points.steps, points.values, points.lines)
        if len(anchors.steps):
            self.step = int(anchors.steps[-1])

    def _collect(self, batch: Batch, steps: Ints, found: dict[str, list[Points]]) -> None:
        for name, (values, present) in batch.columns.items():
            metric = self.reader.metric(batch.line, name)
            if not metric or (metric not in self._names and len(self._names) >= MOST_NAMES):
                continue
            self._names.add(metric)
            points = Points(batch.lines, steps, values)
            kept = steps >= SMALLEST_STEP
            found.setdefault(metric, []).append(points.take(kept if present is None else kept & present))

    def _own_steps(self, batch: Batch, counted: Ints) -> Ints | None:
        """The step of each record, SMALLEST_STEP - 1 where it has none that can be used; None when the lines name no step."""
        line, columns = batch.line, batch.columns
        self._declare(batch)
        if line.counted:
            return self.step + 1 + np.searchsorted(counted, batch.lines)
        if "step" in columns:
            return self._checked(columns["step"].values, batch.lines)
        if "batch" in columns:
            steps = columns["batch"].values
            if "epoch" in columns and "batches" in columns:
                steps = (columns["epoch"].values - line.first_epoch) * columns["batches"].values + steps
            return self._checked(steps, batch.lines)
        return None

    def _checked(self, steps: Floats, lines: Ints) -> Ints:
        most = min(_EXACT, float(LARGEST_STEP))
        good = (steps >= SMALLEST_STEP) & (steps <= most) & (np.floor(steps) == steps)
        for line in lines[~good].tolist():
            self.out.drop(line, "its step is not a whole number that can be one")
        return np.where(good, steps, SMALLEST_STEP - 1).astype(np.int64)

    def _declare(self, batch: Batch) -> None:
        for group, fact in (("of", batch.line.total), ("batches", "steps_per_epoch")):
            if group in batch.columns and len(batch.lines):
                total = float(batch.columns[group].values[0])
                if total > 0 and total.is_integer():
                    self.out.facts.declare(fact, int(total), _WHERE)

    def _carried(self, lines: Ints, anchors: Points) -> Ints:
        """The steps at which lines without one stand: those of the lines before."""
        before = np.searchsorted(anchors.lines, lines, side="right") - 1
        if not len(anchors.steps):
            return np.full(len(lines), self.step, np.int64)
        return np.where(before >= 0, anchors.steps[np.maximum(before, 0)], self.step)

    def _without_repeats(self, name: str, points: Points) -> Points:
        """The points without those that the logger only printed again."""
        if self.reader.refreshed and len(points.steps):
            points = points.take(np.append(points.steps[1:] != points.steps[:-1], True))
        if name.startswith(self.reader.repeated) and len(points.steps):
            before = np.concatenate([[self._last.get(name, np.nan)], points.values[:-1]])
            known = np.arange(len(before)) > 0 if name not in self._last else np.ones(len(before), bool)
            same = (points.values == before) | (np.isnan(points.values) & np.isnan(before))
            self._last[name] = float(points.values[-1])
            points = points.take(~(same & known))
        return points


def _merged(parts: Sequence[Points]) -> Points:
    """Points of several batches in the order of the log."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return Points(_NOWHERE, _NOWHERE, np.zeros(0))
    lines, steps, values = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(lines, kind="stable")
    return Points(lines[order].astype(np.int64), steps[order].astype(np.int64), values[order])
