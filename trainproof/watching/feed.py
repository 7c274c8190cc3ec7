"""A reader that waits for more: it reads a growing log as if it were a finished one, from a stream that blocks at its end.

The reader runs in a thread of its own, and only while `Pump.feed` or `Pump.end` waits for it: there is never more than one at work.
"""

from __future__ import annotations

import threading

from trainproof.errors import TrainproofError
from trainproof.readers.base import Reader
from trainproof.readers.builder import FrameBuilder
from trainproof.readers.source import HEAD_BYTES, LogInput, Stream


class _NotStreamed(TrainproofError):
    """The reader wants the log as a whole, or from its beginning again."""


class _Abandoned(BaseException):
    """Raised inside a reader that nobody listens to any more."""


class _GrowingInput(LogInput):
    """A log whose end is not there yet. `first` are its first bytes; it can be opened anew only while no others have come."""

    def __init__(self, path: str, first: bytes, pump: Pump) -> None:
        super().__init__(path, first[:HEAD_BYTES])
        self._pump = pump
        self._first = first

    def open(self) -> Stream:
        return self._pump.rewind(self._first)

    def read(self) -> bytes:
        raise _NotStreamed("a document")

    @property
    def head(self) -> bytes:
        return self._first[:HEAD_BYTES]


class Pump:
    """Runs `reader` over the bytes that `feed` is given; what it finds is in `out`.

    `streams` turns False when the reader cannot go on without the whole log: its `out` is then worth nothing.
    """

    def __init__(self, path: str, reader: Reader, out: FrameBuilder, first: bytes) -> None:
        self.out = out
        self.streams = True
        self.problem: TrainproofError | None = None
        self._waiting = first
        self._ended = self._abandoned = self._moved_on = False
        self._wants, self._given = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, args=(reader, _GrowingInput(path, first, self)), daemon=True)
        self._thread.start()
        self._wants.acquire()

    def feed(self, data: bytes) -> None:
        """Give the reader some more bytes, and wait until it has read them."""
        self._moved_on = True
        self._waiting += data
        self._go_on()

    def end(self) -> None:
        """Tell the reader that the log has ended, and wait until it has finished."""
        self._ended = True
        self._go_on()

    def abandon(self) -> None:
        """End the reader's thread without another word from it."""
        self._abandoned = True
        self._go_on()

    def _go_on(self) -> None:
        if self._thread.is_alive():
            self._given.release()
            self._wants.acquire()

    def _run(self, reader: Reader, log: LogInput) -> None:
        try:
            reader.read(log, self.out)
            self.streams = self._ended  # who stops earlier has read something else than the stream
        except _NotStreamed:
            self.streams = False
        except TrainproofError as error:
            self.problem = error
        except _Abandoned:
            pass
        except OSError:
            self.streams = False
        finally:
            self._wants.release()

    # called by the reader's thread

    def rewind(self, first: bytes) -> Pump:
        """The stream from its beginning."""
        if self._moved_on:
            raise _NotStreamed("the beginning again")
        self._waiting = first
        return self

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes; waits where there are none yet, and gives none at the end."""
        while not self._waiting and not self._ended:
            self._wants.release()
            self._given.acquire()
            if self._abandoned:
                raise _Abandoned
        data, self._waiting = self._waiting[:size], self._waiting[size:]
        return data
