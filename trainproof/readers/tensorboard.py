"""TensorBoard event files, from the wire format: scalars as `simple_value` and as tensors; all else is passed over.

Events of one shape (the same fields of the same sizes, as one tag's are) are read together, in columns. `line` is the
number of the event, counted on over the files of a run. The CRC of an event's data is
checked for every event that gives values and for every small one; that of images would cost more than all the rest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainproof.frame import Floats, Ints
from trainproof.readers.builder import FrameBuilder
from trainproof.readers.events import Shape, declare_hparams, shape_of
from trainproof.readers.outputs import held_out_part
from trainproof.readers.protobuf import FIXED64, WireError, fields
from trainproof.readers.source import LogInput
from trainproof.readers.tfrecord import (
    HEADER,
    Block,
    Bytes,
    Damage,
    Words,
    blocks,
    columns_at,
    crc32c,
    is_header,
    masked,
    stored_crc,
)
from trainproof.readers.values import LARGEST_STEP, SMALLEST_STEP

#: events larger than this are checked only when they hold scalars
ALWAYS_CHECKED_BYTES = 4096
#: events of one size are read one by one when, after FREE_SHAPES shapes, a shape fits fewer than EVENTS_A_SHAPE of them
FREE_SHAPES, EVENTS_A_SHAPE = 16, 4


class TensorBoardReader:
    name = "tensorboard"
    description = "TensorBoard: event files (`*.tfevents.*`), from the wire format; several in one folder are one run"

    def sniff(self, head: bytes) -> float:
        """A sound TFRecord header, and an event: the field 1 (wall_time) that every event begins with is a double."""
        if not is_header(head):
            return 0.0
        size = HEADER.unpack_from(head)[0]
        try:
            first = next(fields(head, HEADER.size, min(HEADER.size + size, len(head))), None)
        except WireError:
            return 0.0
        return 1.0 if first is not None and first[:2] == (1, FIXED64) else 0.0

    def read(self, log: LogInput, out: FrameBuilder) -> None:
        self.read_run([log], out)

    def read_run(self, logs: Sequence[LogInput], out: FrameBuilder) -> None:
        run = _Run(out)
        paths = [log.path for log in logs]
        for log in logs:
            run.read(log, held_out_part(log.path, paths))
            log.close()


class _Events(NamedTuple):
    """n events of one size: their bytes (size, n), and the stored CRC and the number of each, (n,)."""

    columns: Bytes
    crcs: Words
    lines: Ints

    def take(self, chosen: NDArray[np.bool_]) -> _Events:
        return (
            self
            if chosen.all()
            else _Events(self.columns.compress(chosen, axis=1), self.crcs[chosen], self.lines[chosen])
        )


def _shape_or_none(event: bytes) -> Shape | None:
    try:
        return shape_of(event)
    except WireError:
        return None


class _Run:
    """One run: events are counted on, and time runs on, over all its files."""

    def __init__(self, out: FrameBuilder) -> None:
        self.out = out
        self.events = 0
        self.start = math.inf  # wall time of the first event
        self.clocks: dict[str, list[tuple[Ints, Floats, Ints]]] = {}
        self.part = ""
        out.on_take(self._give_time)

    def read(self, log: LogInput, part: str) -> None:
        """One file; `part` stands before the names of its metrics."""
        self.clocks, self.part = {}, part
        with np.errstate(all="ignore"):  # the bytes may be any numbers at all
            for block in blocks(log.open()):
                if isinstance(block, Damage):
                    self.events += 1
                    self.out.drop(self.events, block.why)
                else:
                    self._read_block(block)
            self._give_time()

    def _read_block(self, block: Block) -> None:
        """The events of a block, those of one size at a time."""
        lines = self.events + 1 + np.arange(len(block.begins))
        self.events += len(lines)
        order = np.argsort(block.sizes, kind="stable")
        borders = np.flatnonzero(np.diff(block.sizes[order])) + 1
        for members in np.split(order, borders):
            self._read_size(block, block.begins[members], int(block.sizes[members[0]]), lines[members])

    def _read_size(self, block: Block, begins: Ints, size: int, lines: Ints) -> None:
        """Events of one size: take the first, find its likes, read them together, go on with the others."""
        events = _Events(columns_at(block.data, begins, size), stored_crc(block.data, begins + size), lines)
        shapes, total = 0, len(lines)
        while len(events.lines):
            if shapes > FREE_SHAPES + (total - len(events.lines)) // EVENTS_A_SHAPE:
                self._read_singly(events)
                return
            shapes += 1
            shape = _shape_or_none(events.columns[:, 0].tobytes())
            care = shape.care[:, None] if shape is not None else np.uint8(0xFF)
            alike = (((events.columns ^ events.columns[:, :1]) & care) == 0).all(axis=0)
            self._read_alike(shape, events.take(alike))
            events = events.take(~alike)

    def _read_singly(self, events: _Events) -> None:
        for i in range(len(events.lines)):
            event = _Events(events.columns[:, i : i + 1], events.crcs[i : i + 1], events.lines[i : i + 1])
            self._read_alike(_shape_or_none(event.columns.tobytes()), event)

    def _read_alike(self, shape: Shape | None, events: _Events) -> None:
        """Events of one shape, or of none that can be read."""
        if shape is None or shape.scalars or len(events.columns) <= ALWAYS_CHECKED_BYTES:
            sound = masked(crc32c(events.columns)) == events.crcs
            if not sound.all():
                self._drop(events.lines[~sound], "corrupt event (wrong checksum)")
                events = events.take(sound)
        if shape is None:
            self._drop(events.lines, "unreadable event")
        elif len(events.lines):
            if shape.hparams is not None:
                declare_hparams(events.columns[:, 0].tobytes(), shape.hparams, self.out.facts)
            if shape.scalars:
                self._give(shape, events.columns, events.lines)

    def _give(self, shape: Shape, columns: Bytes, lines: Ints) -> None:
        steps, walls = shape.steps(columns), shape.walls(columns)
        usable = (steps >= SMALLEST_STEP) & (steps <= LARGEST_STEP)
        if not usable.all():
            self._drop(lines[~usable], "step out of bounds")
            columns, lines, steps, walls = columns[:, usable], lines[usable], steps[usable], walls[usable]
        if not len(lines):
            return
        self.start = min(float(walls.min()), self.start)
        for scalar in shape.scalars:
            self.out.extend(self.part + scalar.tag, steps, scalar.values(columns), lines)
            self.clocks.setdefault(scalar.tag, []).append((steps, walls, lines))

    def _drop(self, lines: Ints, why: str) -> None:
        for line in lines.tolist():
            self.out.drop(line, why)

    def _give_time(self) -> None:
        """The seconds since the first event, at the points of the file's longest tag (the others would repeat them)."""
        counts = {tag: sum(len(lines) for _, _, lines in clock) for tag, clock in self.clocks.items()}
        if not counts or self.part:
            return
        clock = self.clocks[max(counts, key=lambda tag: counts[tag])]
        for steps, walls, lines in clock:
            self.out.extend("wall_time", steps, walls - self.start, lines)
        self.clocks = {}
