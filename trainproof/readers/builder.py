"""FrameBuilder: what readers pour records into, and what makes Frames of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from trainproof.facts import Facts
from trainproof.frame import Dropped, Event, Floats, Frame, Ints, Series, Source
from trainproof.names import resolve
from trainproof.objective import objective_of
from trainproof.segments import split_runs

#: columns that say in every record what the run declared
FACT_COLUMNS = frozenset(
    {"total_steps", "max_steps", "accumulation", "gradient_accumulation_steps", "world_size", "warmup_steps"}
)
#: dropped lines kept with their text of reason; the rest are only counted
DROPPED_SHOWN = 20
#: steps beyond this have differences that do not fit 64 bits
LARGEST_STEP = 2**62


class _Records(NamedTuple):
    """Records of one and the same metrics: their numbers in the log, steps, lines and rows of values."""

    numbers: list[int]
    steps: list[int]
    lines: list[int]
    rows: list[tuple[float, ...]]


class _Joined(NamedTuple):
    """The steps and lines of several blocks, and how their points were put in the order of the log, if they had to be."""

    steps: Ints
    lines: Ints
    order: Ints | None


class FrameBuilder:
    """Collects points under the logger's own names; `build` renames, segments and freezes them into Frames.

    `line` is the source line from 1, or the record's number where a format has no lines: it is also the order of the log.
    `mapping` is the user's: our name -> the logger's (`--map loss=my_loss` is {"loss": "my_loss"}).
    """

    def __init__(self, mapping: Mapping[str, str] | None = None) -> None:
        self.mapping = dict(mapping or {})
        self.facts = Facts()
        self.ended = False
        self._count = 0
        self._records: dict[tuple[str, ...], _Records] = {}
        self._blocks: dict[str, list[tuple[Ints, Floats, Ints]]] = {}
        self._dropped: list[Dropped] = []
        self._dropped_count = 0
        self._masked: set[str] = set()
        self._events: list[Event] = []
        self._guessed = ""
        self._soft: list[Ints] = []
        self._held: list[Callable[[], None]] = []
        self._runs: dict[str, FrameBuilder] = {}

    def run(self, name: str) -> FrameBuilder:
        """The builder of one of several runs that the log holds side by side; `build` gives its frames under that name.

        What is declared and dropped here, outside of all runs, counts for each of them and for the first of them.
        """
        if name not in self._runs:
            self._runs[name] = FrameBuilder()
        return self._runs[name]

    def add(self, step: int, values: Mapping[str, float], line: int) -> None:
        """One record. A value that was not logged is absent from `values`; a NaN in it means that the logger wrote NaN.

        A record whose step is out of bounds is dropped.
        """
        if not -LARGEST_STEP <= step <= LARGEST_STEP:
            self.drop(line, "step out of bounds")
            return
        key = tuple(values)
        records = self._records.get(key)
        if records is None:
            records = self._records[key] = _Records([], [], [], [])
        self._count += 1
        records.numbers.append(self._count)
        records.steps.append(step)
        records.lines.append(line)
        records.rows.append(tuple(values.values()))

    def extend(self, name: str, steps: Ints, values: Floats, lines: Ints) -> None:
        """Many points of one metric, three arrays of shape (n,), in the order of the log: for readers that work in columns.

        The arrays are kept, not copied; metrics that were logged together may share their steps and lines. Points whose
        step is out of bounds are dropped. Raises ValueError when the arrays are not equally long.
        """
        if not len(steps) == len(values) == len(lines):
            raise ValueError(f"{name}: {len(steps)} steps, {len(values)} values, {len(lines)} lines; expected one each")
        if not len(values):
            return
        if steps.min() < -LARGEST_STEP or steps.max() > LARGEST_STEP:
            good = (steps >= -LARGEST_STEP) & (steps <= LARGEST_STEP)
            for line in lines[~good].tolist():
                self.drop(line, "step out of bounds")
            self.extend(name, steps[good], values[good], lines[good])
        else:
            self._blocks.setdefault(name, []).append((steps, values, lines))

    def on_take(self, hand_over: Callable[[], None]) -> None:
        """Called before points are taken: for those who hold some back until the end of the log."""
        self._held.append(hand_over)

    def take(self) -> dict[str, dict[str, Series]]:
        """The points that came since the last call, run by run and metric by metric under the logger's names, in the order of the log;
        they are not kept. The run of a log that holds only one is called ""."""
        for hand_over in self._held:
            hand_over()
        own = self._all_series()
        self._blocks = {}
        runs = {name: points for name, run in self._runs.items() for points in run.take().values()}
        return {"": own, **runs} if own else runs

    def take_notes(self, other: FrameBuilder, run: str = "") -> None:
        """Take over what another builder knows beside the points: of the whole log, or of one of its runs."""
        source = other._runs.get(run, other)
        self.facts = source.facts.merged(other.facts)
        self.ended = source.ended
        self._dropped, self._dropped_count = [*source._dropped], source._dropped_count
        self._masked, self._events, self._guessed = {*source._masked}, [*source._events], source._guessed
        self._soft = [*source._soft]

    @property
    def event_count(self) -> int:
        """Number of lines that announced a fatal event."""
        return len(self._events)

    def drop(self, line: int, why: str) -> None:
        """A line (or record) that was not understood, and the reason; counted, and the first few shown."""
        self._dropped_count += 1
        if len(self._dropped) < DROPPED_SHOWN:
            self._dropped.append(Dropped(line, why))

    def mask(self, name: str) -> None:
        """The logger is known to hide non-finite values of this metric."""
        self._masked.add(name)

    def event(self, kind: str, text: str, line: int) -> None:
        """A line that announces a fatal event (rule TP104)."""
        self._events.append(Event(kind, text, line))

    def soft(self, lines: Ints) -> None:
        """Lines, ascending, whose end is none of the log's own (a carriage return): they keep records in order, and `build` counts
        them out of the line numbers."""
        if len(lines):
            self._soft.append(lines)

    def guess(self, how: str) -> None:
        """The log is of no known format, and was read in this way: findings on it are warnings at most (rule TP006)."""
        self._guessed = how

    def end(self) -> None:
        """The logger's own end-of-run marker was seen."""
        self.ended = True

    def build(self, source: Source, facts: Facts | None = None, beside: Facts | None = None) -> list[Frame]:
        """The runs of this log, usually one. `facts` are those given by the user; they win over what the log declares,
        which wins over what lies `beside` the log.

        Raises UsageError when the user's mapping names a metric that the log does not have.
        """
        given, around = facts or Facts(), self.facts.merged(beside or Facts())
        for builder in (self, *self._runs.values()):
            builder._held.clear()  # it and the builder would keep each other, and so the log's points, in memory
        if not self._runs:
            return self._frames(self._all_series(), self.mapping, source, given.merged(around))
        series = {name: run._all_series() for name, run in self._runs.items()}
        resolve(dict.fromkeys(metric for run in series.values() for metric in run), self.mapping)
        self._hand_on()
        return [
            frame
            for name, run in self._runs.items()
            for frame in run._frames(
                series[name],
                {ours: theirs for ours, theirs in self.mapping.items() if theirs in series[name]},
                source._replace(name=name),
                given.merged(run.facts).merged(around),
            )
        ]

    def _hand_on(self) -> None:
        """Give what was dropped outside of all runs to the first of them."""
        first = next(iter(self._runs.values()))
        first._dropped = [*self._dropped, *first._dropped][:DROPPED_SHOWN]
        first._dropped_count += self._dropped_count

    def _frames(self, raw: dict[str, Series], mapping: Mapping[str, str], source: Source, facts: Facts) -> list[Frame]:
        """One run's series under our names, split where the log holds several runs one after another."""
        declared = {name: float(series.value[0]) for name, series in raw.items() if _declares_fact(series)}
        names = resolve([name for name in raw if name not in declared], mapping)
        frame = Frame(
            {ours: _renamed(raw[theirs], ours) for theirs, ours in names.items()},
            source,
            facts.merged(Facts(declared, "the log's records")),
            dropped=tuple(self._dropped),
            dropped_count=self._dropped_count,
            masked=frozenset(names.get(name, name) for name in self._masked),
            events=tuple(self._events),
            ended=self.ended,
            guessed=self._guessed,
            original_names={ours: theirs for theirs, ours in names.items()},
        )
        runs = split_runs(frame)
        if self._soft:
            soft = np.concatenate(self._soft)
            runs = [_counted_out(run, soft) for run in runs]
        return [run.replace(objective=objective_of(run)) for run in runs]

    def _all_series(self) -> dict[str, Series]:
        """Each metric's points in the order of the log, not yet by step."""
        self._pour_records()
        joined: dict[tuple[int, ...], _Joined] = {}
        return {name: _series(name, blocks, joined) for name, blocks in self._blocks.items()}

    def _pour_records(self) -> None:
        """Turn the added records into columns; metrics of the same records share their steps and lines."""
        keys, groups = list(self._records), list(self._records.values())
        self._records = {}
        values: dict[str, list[float]] = {}
        members: dict[str, list[int]] = {}
        for i, (key, records) in enumerate(zip(keys, groups, strict=True)):
            for name, column in zip(key, zip(*records.rows, strict=True), strict=True):
                values.setdefault(name, []).extend(column)
                members.setdefault(name, []).append(i)
        shared: dict[tuple[int, ...], tuple[Ints, Ints, Ints]] = {}
        for name, which in members.items():
            key_of_groups = tuple(which)
            if key_of_groups not in shared:
                shared[key_of_groups] = _in_order([groups[i] for i in which])
            steps, lines, order = shared[key_of_groups]
            self.extend(name, steps, np.array(values.pop(name), np.float64)[order], lines)


def _in_order(groups: list[_Records]) -> tuple[Ints, Ints, Ints]:
    """The steps and lines of several groups of records in the order in which they were added, and that order."""
    numbers = np.array([n for group in groups for n in group.numbers], np.int64)
    order = np.argsort(numbers)
    steps = np.array([step for group in groups for step in group.steps], np.int64)
    lines = np.array([line for group in groups for line in group.lines], np.int64)
    return steps[order], lines[order], order


def _series(name: str, blocks: list[tuple[Ints, Floats, Ints]], joined: dict[tuple[int, ...], _Joined]) -> Series:
    """The points of one metric in the order of the log. `joined` holds the steps and lines that other metrics share."""
    if len(blocks) == 1:
        return Series(name, *blocks[0])
    steps, values, lines = zip(*blocks, strict=True)
    key = (*map(id, steps), *map(id, lines))
    if key not in joined:
        step, line = np.concatenate(steps), np.concatenate(lines)
        order = np.argsort(line, kind="stable") if (line[1:] < line[:-1]).any() else None
        joined[key] = _Joined(step, line, None) if order is None else _Joined(step[order], line[order], order)
    step, line, order = joined[key]
    value = np.concatenate(values)
    return Series(name, step, value if order is None else value[order], line)


def _counted_out(run: Frame, soft: Ints) -> Frame:
    """The run with the log's own line numbers: what comes after a soft line end is on the same line."""

    def line(number: int) -> int:
        return number - int(np.searchsorted(soft, number))

    done: dict[int, Ints] = {}  # the lines of metrics that were logged together stay one array
    series = {}
    for name, points in run.items():
        key = id(points.line)
        if key not in done:
            done[key] = points.line - np.searchsorted(soft, points.line)
        series[name] = Series(name, points.step, points.value, done[key])
    return run.replace(
        series=series,
        repairs=tuple(repair._replace(line=line(repair.line)) for repair in run.repairs),
        dropped=tuple(dropped._replace(line=line(dropped.line)) for dropped in run.dropped),
        events=tuple(event._replace(line=line(event.line)) for event in run.events),
    )


def _declares_fact(series: Series) -> bool:
    """Whether a column only repeats a declared number, such as total_steps in every record."""
    return series.name in FACT_COLUMNS and series.constant and series.value[0] > 0


def _renamed(series: Series, name: str) -> Series:
    return Series(name, series.step, series.value, series.line)
