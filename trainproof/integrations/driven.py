"""A framework's own training loop as a job that can be recorded, replayed, resumed and bisected.

The loop runs in a thread of its own, and waits before every micro-batch until it is told to go on. So its own code is what runs, step by step:
accumulation, clipping, schedules and callbacks are the framework's.
"""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any

from trainproof.errors import InputError
from trainproof.record.changes import ShardOf
from trainproof.replay.job import StepResult
from trainproof.replay.runner import copied

#: given to the loop in the place of a batch: go on without training on it
SKIP = object()
#: batches that were gone past, kept to take the place of others
MOST_PASSED = 64


class _Stopped(BaseException):
    """Ends the loop's thread; no framework takes it for an error of its own."""


class Loop:
    """A training loop in a thread. `waiting`: it has fetched `batch` and waits; otherwise it has ended. Raises what the loop raises."""

    def __init__(self, run: Callable[[Loop], None]) -> None:
        self.batch: Any = None
        self.loss = float("nan")
        self.waiting = False
        self._here: SimpleQueue[tuple[Any] | BaseException | None] = SimpleQueue()
        self._go: SimpleQueue[tuple[Any] | None] = SimpleQueue()
        self._thread = Thread(target=self._body, args=(run,), daemon=True)
        self._thread.start()
        self._wait()

    def arrive(self, batch: Any) -> Any:
        """Called by the loop before it trains on a batch: what it is to train on, or SKIP."""
        self._here.put((batch,))
        said = self._go.get()
        if said is None:
            raise _Stopped
        return said[0]

    def proceed(self, batch: Any) -> float:
        """Let the loop train on a batch, until it has fetched the next one; the loss."""
        self._go.put((batch,))
        self._wait()
        return self.loss

    def stop(self) -> None:
        if self.waiting:
            self._go.put(None)
            self._wait()
        self._thread.join()

    def _wait(self) -> None:
        said = self._here.get()
        self.waiting = isinstance(said, tuple)
        if isinstance(said, tuple):
            self.batch = said[0]
        elif said is not None:
            raise said

    def _body(self, run: Callable[[Loop], None]) -> None:
        try:
            run(self)
        except _Stopped:
            self._here.put(None)
        except BaseException as error:
            self._here.put(error)
        else:
            self._here.put(None)


class DrivenJob(ABC):
    """A job (see `trainproof.replay.job.Job`) made of a framework's trainer.

    build: makes the trainer anew, its model and data too, and sets the seeds. save_every: the trainer saves itself every so many steps, and
    `trainproof resume` resumes it from there; 0 for never, and then its whole state is put back instead. shard_of: sample -> its
    shard; samples are what a batch has as "ids". It goes to a later batch by fetching those before it: the order of the data may depend on
    the seed and the epoch only.
    """

    def __init__(self, build: Callable[[], Any], save_every: int = 0, shard_of: ShardOf | None = None) -> None:
        self.build, self.save_every, self.shard_of = build, save_every, shard_of
        self._loop: Loop | None = None
        self._passed: list[Any] = []
        self._start(None, 0)
        if save_every:
            self.save, self.load = self._save, self._load

    @property
    @abstractmethod
    def stateful(self) -> Mapping[str, Any]:
        """Model, optimizer, and scheduler where there is one."""

    @abstractmethod
    def fit(self, loop: Loop, resume: str | None) -> None:
        """Run the framework's loop, which calls `loop.arrive` before each micro-batch, and keeps the loss in `loop.loss`."""

    @abstractmethod
    def steps(self) -> int:
        """Optimizer steps so far."""

    @abstractmethod
    def saved(self) -> Path:
        """Where the trainer saves itself after the step that it has just made."""

    def batches(self, cursor: int) -> Iterator[Any]:
        self.seek(cursor)
        while self.loop.waiting:
            yield self.loop.batch

    def step(self, batch: Any) -> StepResult:
        before = self.steps()
        loss = self.loop.proceed(batch)
        self.cursor += 1
        self.between = self.steps() == before
        return StepResult(loss, not self.between)

    def seek(self, cursor: int) -> None:
        """Go to a micro-batch without training on those before it. The state must be put back after this."""
        if cursor < self.cursor:
            self._start(None, 0)
        while self.cursor < cursor and self.loop.waiting:
            self._passed = [*self._passed, self._pass()][-MOST_PASSED:]

    def benign(self, cursor: int) -> Any:
        """One of the batches before the place that the job went to. Raises InputError where there are none."""
        if not self._passed:
            raise InputError("nothing was trained on before this checkpoint that could take the place of a batch")
        return copied(self._passed[cursor % len(self._passed)])

    def fetch(self, cursor: int, steps: int) -> list[Any]:
        """The micro-batches of so many steps from number `cursor` on. The job must go to another place after this."""
        self.seek(cursor)
        last, found = self.steps() + steps, []
        while self.steps() < last and self.loop.waiting:
            found.append(self._pass())
        return found

    def _pass(self) -> Any:
        """The micro-batch that the loop waits with, and on to the next one without training on it."""
        batch = copied(self.loop.batch)
        self.loop.proceed(SKIP)
        self.cursor += 1
        return batch

    def close(self) -> None:
        """End the loop."""
        self.loop.stop()

    @property
    def loop(self) -> Loop:
        if self._loop is None:
            raise RuntimeError("the loop was not started")
        return self._loop

    def _start(self, resume: str | None, cursor: int) -> None:
        if self._loop is not None:
            self._loop.stop()
        self.trainer, self.cursor, self.between = self.build(), cursor, False
        self._loop = Loop(lambda loop: self.fit(loop, resume))

    def _save(self, folder: Path, cursor: int) -> bool:
        """Keep what the trainer saved after this step; False between two steps, where no trainer saves."""
        if self.between:
            return False
        place = self.saved()
        if not place.exists():
            raise InputError(
                f"the trainer saved nothing at step {self.steps()}; interrupt it at a multiple of save_every"
            )
        (shutil.copytree if place.is_dir() else shutil.copy)(place, folder / "saved")
        (folder / "cursor").write_text(str(cursor))
        return True

    def _load(self, folder: Path) -> int:
        cursor = int((folder / "cursor").read_text())
        self._start(str(folder / "saved"), cursor)
        return cursor
