"""The clips of a manifest as a sequence that lies in a file: a list of 10 million clips would fill the memory of every worker."""

from __future__ import annotations

import mmap
import pickle
import tempfile
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import IO, overload

from trainproof.errors import InputError
from trainproof.preflight.clip import Clip

#: clips that are written and read together
AT_ONCE = 200


class ClipList(Sequence[Clip]):
    """The clips in their order; those that were asked for last are in memory."""

    def __init__(self, clips: Iterable[Clip]) -> None:
        """Raises InputError when a disk is full."""
        self._ends, self._length = array("q", [0]), 0
        self._last: tuple[int, list[Clip]] = (-1, [])
        rest = iter(clips)
        with tempfile.TemporaryFile() as file:
            while some := list(islice(rest, AT_ONCE)):
                self._ends.append(self._ends[-1] + _written(file, pickle.dumps(some)))
                self._length += len(some)
            self._file = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if self._length else b""

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Clip]:
        for number in range(len(self._ends) - 1):
            yield from self._some(number)

    @overload
    def __getitem__(self, index: int) -> Clip: ...
    @overload
    def __getitem__(self, index: slice) -> list[Clip]: ...
    def __getitem__(self, index: int | slice) -> Clip | list[Clip]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self._length))]
        if not -self._length <= index < self._length:
            raise IndexError(index)
        number, at = divmod(index % self._length, AT_ONCE)
        return self._some(number)[at]

    def _some(self, number: int) -> list[Clip]:
        if self._last[0] != number:
            written = self._file[self._ends[number] : self._ends[number + 1]]
            self._last = number, pickle.loads(written)  # noqa: S301  this process wrote it, into a file that has no name
        return self._last[1]


def _written(file: IO[bytes], data: bytes) -> int:
    try:
        written = file.write(data)
        file.flush()
    except OSError as error:
        raise InputError(f"{tempfile.gettempdir()}: {error.strerror}; name a folder with room by TMPDIR") from None
    return written
