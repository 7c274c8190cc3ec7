"""One log that grows: its new records at each look, whatever its format.

Formats that are read as a stream go on where they stopped. While such a log is short it is read anew from memory at each look, so that
what its first lines decide (its columns, what numbers its records) is decided as in the finished log. Formats that are rewritten as a
whole, compressed, or spread over several files are read again when they have changed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from trainproof.errors import TrainproofError
from trainproof.frame import Series
from trainproof.readers.base import Reader, spreads
from trainproof.readers.builder import FrameBuilder
from trainproof.readers.source import HEAD_BYTES, LogInput
from trainproof.readers.streams import is_plain
from trainproof.watching.feed import Pump
from trainproof.watching.tail import Tail

#: (line, step, values) of a record
Row = tuple[int, int, dict[str, float]]
Points = dict[str, Series]


class News(NamedTuple):
    """New records of one run of the log, by its name ("" where it has only one), in the order of the log; `anew`: of a log that took
    the place of the one before."""

    run: str
    rows: list[Row]
    anew: bool


class Follower:
    """Follows one log, of one file or several. `out` holds what the log declares; `problem` is why nothing could be read of it."""

    def __init__(self, paths: Sequence[str], reader: Reader, mapping: Mapping[str, str]) -> None:
        self.paths, self.reader = paths, reader
        self.problem: TrainproofError | None = None
        self.out = FrameBuilder(mapping)
        self._mapping = mapping
        self._tail = Tail(paths[0])
        self._whole = len(paths) > 1  # read as a whole at each change
        self._streams: bool | None = None
        self._seen: tuple[object, ...] = ()  # of files that are read as a whole: by what a change is known
        self._begin()

    def _begin(self) -> None:
        self._head = b""  # the log so far, while it is short
        self._pump: Pump | None = None
        self._given: dict[tuple[str, str], int] = {}  # (run, metric) -> points that were given
        self._first: dict[tuple[str, str], tuple[int, float]] = {}  # ... and the first of them

    @property
    def bytes_read(self) -> int:
        """Bytes read of a log that is read as a stream: each of them once."""
        return self._tail.bytes_read

    @property
    def ended(self) -> bool:
        """Whether the logger's own end-of-run marker was seen."""
        return self.out.ended or bool(getattr(self.reader, "ended", False))

    def look(self, last: bool = False) -> list[News]:
        """What has come since the last look. `last`: nothing more will come, so a line without its end is one."""
        if self._whole:
            return list(self._look_at_files(last))
        found: list[News] = []
        anew = False
        for data, of_another in self._tail.poll():
            if of_another:
                found += self._so_far(True, anew)
                self.close()
                self._begin()
                anew = True
            if self._pump is None:
                self._head += data
            else:
                self._pump.feed(data)
        return found + self._so_far(last, anew)

    def move_to(self, paths: Sequence[str]) -> None:
        """The log goes on in other files, which hold it from its beginning."""
        self.close()
        self.paths, self._whole, self._seen = paths, True, ()

    def close(self) -> None:
        """Let go of the file and of the reader's thread."""
        self._tail.close()
        if self._pump is not None:
            self._pump.abandon()
            self._pump = None

    def _so_far(self, last: bool, anew: bool) -> list[News]:
        """What is new in what was read of a log that is read as a stream."""
        if self._pump is not None:
            if last:
                self._pump.end()
            self.out, self.problem = self._pump.out, self._pump.problem
            return [News(run, rows_of(points), anew) for run, points in self.out.take().items() if points]
        if not self._head:
            return []
        data = self._head if last else whole_lines(self._head)
        out = self._read([LogInput(self.paths[0], data)]) if data else None
        points = {} if out is None else out.take()
        if self._streams is None and (points or len(self._head) >= HEAD_BYTES):
            self._streams = self._can_stream(_size(points))
        if self._streams is False:
            self._whole = True
            return list(self._look_at_files(last))
        if len(self._head) >= HEAD_BYTES:
            self._pump = Pump(self.paths[0], self.reader, FrameBuilder(self._mapping), self._head)
            self._head, out = b"", self._pump.out
            points = out.take()
        self.out = out or self.out
        return self._news(points, anew)

    def _can_stream(self, size: int) -> bool:
        """Whether the reader finds as many points in the stream as it finds in the whole."""
        if not is_plain(self._head):
            return False
        pump = Pump(self.paths[0], self.reader, FrameBuilder(self._mapping), self._head)
        pump.abandon()
        return pump.streams and _size(pump.out.take()) == size

    def _look_at_files(self, last: bool) -> Iterator[News]:
        """Read the files again, if they have changed."""
        seen = tuple(_signature(path) for path in self.paths)
        if (seen == self._seen and not last) or None in seen or (not last and _is_half_written(self.paths[0])):
            return
        out = self._read([LogInput(path) for path in self.paths])
        if out is not None:
            self._seen, self.out = seen, out
            yield from self._news(out.take(), False)

    def _read(self, logs: list[LogInput]) -> FrameBuilder | None:
        """Read finished logs; None when they cannot be read, for now at least."""
        out = FrameBuilder(self._mapping)
        try:
            if spreads(self.reader) and len(logs) > 1:
                self.reader.read_run(logs, out)
            else:
                self.reader.read(logs[0], out)
        except TrainproofError as error:
            self.problem = error
        except OSError as error:
            self.problem = TrainproofError(f"{logs[0].path}: {error.strerror or error}")
        else:
            self.problem = None
        finally:
            for log in logs:
                log.close()
        return out if self.problem is None else None

    def _news(self, runs: dict[str, Points], anew: bool) -> list[News]:
        """The points of a log read from its beginning that were not given before."""
        found = []
        for run, points in runs.items():
            if any(self._differs(run, series) for series in points.values()):
                self._given, self._first, anew = {}, {}, True
            new = {}
            for name, series in points.items():
                given = self._given.get((run, name), 0)
                self._given[run, name] = len(series)
                self._first[run, name] = (int(series.step[0]), float(series.value[0]))
                if len(series) > given:
                    new[name] = series.take(slice(given, None))
            if new:
                found.append(News(run, rows_of(new), anew))
        return found

    def _differs(self, run: str, series: Series) -> bool:
        """Whether a metric is shorter than it was, or begins with another point: this is another log."""
        key = (run, series.name)
        if key not in self._given:
            return False
        step, value = self._first[key]
        same = (step, value) == (series.step[0], series.value[0]) or value != value
        return len(series) < self._given[key] or not same


def whole_lines(data: bytes) -> bytes:
    """The data up to its last line end; all of it where it is no text."""
    return data if b"\0" in data else data[: data.rfind(b"\n") + 1]


def rows_of(points: Points) -> list[Row]:
    """Points as records, in the order of the log: neighbours of one step are one record."""
    found: list[Row] = []
    for line, step, name, value in sorted(
        (line, step, name, value)
        for name, series in points.items()
        for line, step, value in zip(series.line.tolist(), series.step.tolist(), series.value.tolist(), strict=True)
    ):
        if not found or found[-1][1] != step or name in found[-1][2]:
            found.append((line, step, {}))
        found[-1][2][name] = value
    return found


def _size(runs: dict[str, Points]) -> int:
    return sum(len(series) for points in runs.values() for series in points.values())


def _signature(path: str) -> tuple[int, int, int] | None:
    with suppress(OSError):
        seen = Path(path).stat()
        return seen.st_ino, seen.st_size, seen.st_mtime_ns
    return None


def _is_half_written(path: str) -> bool:
    """Whether a JSON document has no end yet."""
    with suppress(OSError), Path(path).open("rb") as file:
        start = file.read(16).lstrip()[:1]
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 64))
        end = file.read().rstrip()[-1:]
        return start in (b"{", b"[") and end not in (b"}", b"]")
    return False
