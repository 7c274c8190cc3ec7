"""Frame and Series: every log, normalised.

A Frame is one run's log: an ordered mapping from canonical metric name to a Series of three equally long arrays. A metric that was
not logged at a step has no entry there; a NaN in `value` means that the logger wrote NaN. Nothing here knows files or rules.
"""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator, Mapping, ValuesView
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from trainproof.facts import Facts

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
T = TypeVar("T")


class Series:
    """One metric of one run: `step`, `value` and source `line` (from 1), three arrays of shape (n,), ordered by step."""

    def __init__(self, name: str, step: Ints, value: Floats, line: Ints) -> None:
        self.name, self.step, self.value, self.line = name, step, value, line
        self._memo: dict[object, Any] = {}

    def __len__(self) -> int:
        return len(self.value)

    def __repr__(self) -> str:
        return f"Series({self.name!r}, n={len(self)})"

    def take(self, index: slice | Ints | NDArray[np.bool_]) -> Series:
        """The points at `index`, under the same name."""
        return Series(self.name, self.step[index], self.value[index], self.line[index])

    @property
    def finite(self) -> Series:
        """The finite points: what statistics are computed on (non-finite ones are the business of family TP1)."""
        return self if self._finite_part is None else self._finite_part

    @cached_property
    def _finite_part(self) -> Series | None:
        """None where every point is finite: a series that refers to itself stays in memory until the garbage collector comes."""
        mask = np.isfinite(self.value)
        return None if mask.all() else self.take(mask)

    @cached_property
    def constant(self) -> bool:
        """True when every value is the same (a placeholder column is no evidence)."""
        return len(self) > 0 and bool((self.value == self.value[0]).all())

    def memo(self, function: Callable[..., T], *args: Any) -> T:
        """`function(self.value, *args)`, computed once a series: several rules look at the same statistic."""
        key = (function, args)
        if key not in self._memo:
            self._memo[key] = function(self.value, *args)
        result: T = self._memo[key]
        return result

    def derived(self, function: Callable[..., T], *args: Any) -> T:
        """`function(self, *args)`, computed once a series: as `memo`, for statistics that need steps or other memos."""
        key = (function, args)
        if key not in self._memo:
            self._memo[key] = function(self, *args)
        result: T = self._memo[key]
        return result

    def at(self, step: int) -> float | None:
        """The last value logged at `step`, or None."""
        index = int(np.searchsorted(self.step, step, side="right")) - 1
        return float(self.value[index]) if index >= 0 and self.step[index] == step else None

    def upto(self, steps: Ints) -> Ints:
        """The index of the last point at or before each of `steps` (ordered, each once), -1 where there is none."""
        if np.array_equal(steps, self.step):  # metrics of the same records, the usual case
            return np.arange(len(steps))
        return np.searchsorted(self.step, steps, side="right") - 1

    def align(self, other: Series) -> tuple[Ints, Ints]:
        """Indices (mine, others) of the points that share a step; both series are ordered by step."""
        if len(self) == len(other) and np.array_equal(self.step, other.step):
            same = np.arange(len(self))
            return same, same
        _, mine, others = np.intersect1d(self.step, other.step, return_indices=True)
        return mine, others


class Segment(NamedTuple):
    """A stretch of one run between restarts: first and last step, and why it began ("start", "resume at step 200", ...)."""

    start: int
    end: int
    why: str


class Dropped(NamedTuple):
    """A line that was not understood, and the reason."""

    line: int
    why: str


class Repair(NamedTuple):
    """Something `segments` put right: kind is "duplicates", "overlap", "disorder", "repeats", "epochs" or "writers"; `count`
    points of `of`."""

    kind: str
    first_step: int
    last_step: int
    line: int
    count: int  # type: ignore[assignment]  # the tuple's own count() is not wanted here
    of: int
    detail: str


class Event(NamedTuple):
    """A fatal-looking line of a text log (see rule TP104): its kind, its text and its line number."""

    kind: str
    text: str
    line: int


class Source(NamedTuple):
    """Where a run came from: `path` as the user named it, the `format` read, and the run's name when one file holds several."""

    path: str
    format: str
    name: str | None = None


class Frame(Mapping[str, Series]):
    """One run's log. Behaves as a read-only mapping from canonical metric name to Series, in the order of the log."""

    def __init__(
        self,
        series: dict[str, Series],
        source: Source = Source("<memory>", "dict"),
        facts: Facts | None = None,
        objective: str = "unknown",
        *,
        segments: tuple[Segment, ...] = (),
        repairs: tuple[Repair, ...] = (),
        dropped: tuple[Dropped, ...] = (),
        dropped_count: int = 0,
        masked: frozenset[str] = frozenset(),
        events: tuple[Event, ...] = (),
        ended: bool = False,
        guessed: str = "",
        original_names: Mapping[str, str] | None = None,
    ) -> None:
        self._series = series
        self.source = source
        self.facts = facts if facts is not None else Facts()
        self.objective = objective
        self.segments = segments
        self.repairs = repairs
        self.dropped = dropped  # the first few, for the report; dropped_count has them all
        self.dropped_count = dropped_count or len(dropped)
        self.masked = masked  # metrics whose logger is known to hide non-finite values
        self.events = events
        self.ended = ended  # the log carries its logger's end-of-run marker
        self.guessed = guessed  # how a log of no known format was read; "" where the format is known
        self.original_names = dict(original_names or {})

    def __getitem__(self, name: str) -> Series:
        return self._series[name]

    def __contains__(self, name: object) -> bool:
        return name in self._series

    def __iter__(self) -> Iterator[str]:
        return iter(self._series)

    def __len__(self) -> int:
        return len(self._series)

    def values(self) -> ValuesView[Series]:
        """The series, in the order of the log."""
        return self._series.values()

    def items(self) -> ItemsView[str, Series]:
        """(name, series), in the order of the log."""
        return self._series.items()

    def __repr__(self) -> str:
        return f"Frame({self.source.path!r}, {self.records} records, metrics={list(self)})"

    @cached_property
    def records(self) -> int:
        """Number of records of the main series (the loss, else the longest)."""
        main = self.main
        return len(main) if main is not None else 0

    @cached_property
    def main(self) -> Series | None:
        """The series that carries the run's step axis: the loss, else the longest."""
        if "loss" in self._series:
            return self._series["loss"]
        return max(self._series.values(), key=len, default=None)

    @cached_property
    def first_step(self) -> int | None:
        return min((int(s.step[0]) for s in self._series.values() if len(s)), default=None)

    @cached_property
    def last_step(self) -> int | None:
        return max((int(s.step[-1]) for s in self._series.values() if len(s)), default=None)

    @property
    def total_steps(self) -> int | None:
        """Planned optimizer steps: what the run declared, else nothing (the last step is no plan)."""
        total = self.facts.number("total_steps")
        return int(total) if total else None

    def replace(self, **changes: Any) -> Frame:
        """A copy with some of the constructor's arguments changed (`series=` included)."""
        kept = {
            name: getattr(self, name)
            for name in (
                "source facts objective segments repairs dropped dropped_count masked events ended guessed original_names".split()
            )
        }
        kept["series"] = self._series
        return Frame(**{**kept, **changes})

    def with_loss(self, name: str) -> Frame:
        """The same run with the part `name` in the place of the loss: a loss known only in parts is judged by part."""
        series = {"loss": self._series[name], **{k: s for k, s in self._series.items() if k != name}}
        return self.replace(series=series)

    def between(self, start: int, end: int) -> Frame:
        """The points with start <= step <= end of every series; used to judge one segment by itself."""
        series = {}
        for name, s in self._series.items():
            lo, hi = np.searchsorted(s.step, [start, end + 1])
            if hi > lo:
                series[name] = s if (lo, hi) == (0, len(s)) else s.take(slice(int(lo), int(hi)))
        return self.replace(series=series)

    @cached_property
    def by_loss(self) -> tuple[Frame, ...]:
        """The same run once with each part of its loss in the place of the loss: made once, as all rules look at them."""
        return tuple(self.with_loss(name) for name in self._series if name.startswith("loss/"))

    @cached_property
    def by_segment(self) -> tuple[Frame, ...]:
        """Each of its segments by itself."""
        return tuple(self.between(segment.start, segment.end) for segment in self.segments)

    def to_pandas(self) -> pd.DataFrame:
        """The wide table: one row a step (index `step`), one column a metric, NaN where a metric was not logged."""
        import pandas as pd

        columns = {
            name: pd.Series(s.value, index=s.step)[~pd.Index(s.step).duplicated(keep="last")]
            for name, s in self._series.items()
        }
        return pd.DataFrame(columns).sort_index().rename_axis("step")

    @classmethod
    def from_pandas(
        cls, table: pd.DataFrame, *, mapping: Mapping[str, str] | None = None, nan_is_logged: bool = False
    ) -> Frame:
        """The Frame of a DataFrame, or of a mapping of columns: steps from its index or its step column.

        NaN means "not logged" unless `nan_is_logged`; see `trainproof.readers.memory.frames_of`. Raises FormatError.
        """
        from trainproof.readers.memory import frame_of

        return frame_of(table, mapping=mapping, nan_is_logged=nan_is_logged)
