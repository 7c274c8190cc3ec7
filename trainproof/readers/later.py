"""The later half of a large JSONL log, decoded by a second process while this one reads the earlier half."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from trainproof.aside import aside, worth_a_process
from trainproof.errors import InputError
from trainproof.readers.columns import Cells
from trainproof.readers.layout import Layout
from trainproof.readers.source import LogInput
from trainproof.readers.streams import is_plain

if TYPE_CHECKING:
    from concurrent.futures import Future

#: offset and length of a chunk -> the cells of its records: a chunk that is found under both is the same, though the log may grow
Decoded = dict[tuple[int, int], dict[str, Cells]]


class LaterHalf:
    """What is known of the later chunks of one log. It lives as long as `stack`."""

    def __init__(self, log: LogInput, layout: Layout, stack: ExitStack) -> None:
        self._promised: Future[Decoded] | None = None
        self._from = log.size_on_disk // 2
        if worth_a_process(log.size_on_disk) and _is_plain(log.path):
            self._promised = stack.enter_context(aside(_decoded, log.path, self._from, layout.learned()))

    def take(self, offset: int, length: int) -> dict[str, Cells] | None:
        """The cells of the chunk at `offset`; None where they are not known."""
        return self._found.pop((offset, length), None) if offset >= self._from else None

    @cached_property
    def _found(self) -> Decoded:
        from concurrent.futures import BrokenExecutor

        try:
            return {} if self._promised is None else self._promised.result()
        except (BrokenExecutor, MemoryError):  # the process was killed: this one does its work
            return {}


def _decoded(path: str, start: int, learned: Mapping[str, bool]) -> Decoded:
    """All chunks from the offset `start` on whose records have the keys that are known."""
    layout, offset, found = Layout(learned), 0, {}
    log = LogInput(path)
    try:
        for chunk in log.chunks():
            cells = layout.cells_of_lines(chunk) if offset >= start else None
            if cells is not None:
                found[offset, len(chunk)] = cells
            offset += len(chunk)
    except InputError:  # the log is gone by now: the first process says so
        return {}
    finally:
        log.close()
    return found


def _is_plain(path: str) -> bool:
    with Path(path).open("rb") as log:
        return is_plain(log.read(256))
