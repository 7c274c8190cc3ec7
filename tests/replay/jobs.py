"""Jobs with one fault each, made from the built-in demonstration; found as "jobs.py:NAME"."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trainproof.record.framework import torch
from trainproof.replay.demo import Demo
from trainproof.replay.job import StepResult, Target, make_job

FILE = __file__
MLP = Path(__file__).parents[2] / "examples" / "bisect" / "mlp.py"


class Own(Demo):
    """Saves and loads itself; `kept` names what it keeps beside model, optimizer and the position."""

    def __init__(self, kept: str) -> None:
        super().__init__(0)
        self.kept = kept.split()

    def save(self, folder: Path, cursor: int) -> None:
        state: dict[str, Any] = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "cursor": cursor,
        }
        if "scheduler" in self.kept:
            state["scheduler"] = self.scheduler.state_dict()
        torch().save(state, folder / "own.pt")

    def load(self, folder: Path) -> int:
        state = torch().load(folder / "own.pt", weights_only=True)
        for name in ("model", "optimizer", *self.kept):
            self.stateful[name].load_state_dict(state[name])
        return int(state["cursor"])


def forgetful(settings: dict[str, Any]) -> Own:
    return Own(settings.get("kept", ""))


def hidden(settings: dict[str, Any]) -> Demo:
    """Draws from a generator of its own that is no part of the declared state."""
    job = Demo(0)
    generator = torch().Generator().manual_seed(3)
    batches = job.batches

    def noisy(cursor: int) -> Any:
        for batch in batches(cursor):
            batch["words"][:, int(torch().randint(12, (), generator=generator))] = 2
            yield batch

    job.batches = noisy  # type: ignore[method-assign]
    return job


def shaky(settings: dict[str, Any]) -> Demo:
    """Adds noise from the operating system to one weight in its third update."""
    job, step, count = Demo(0), Demo.step, itertools.count(1)

    def shaken(batch: Any) -> Any:
        result = step(job, batch)
        if next(count) == 6:
            job.model[2].weight.data[0, 0] += 1e-6 * (1 + os.urandom(1)[0])
        return result

    job.step = shaken  # type: ignore[method-assign]
    return job


def unseeded(settings: dict[str, Any]) -> Demo:
    job = Demo(0)
    torch().manual_seed(int.from_bytes(os.urandom(4), "little"))
    torch().nn.init.normal_(job.model[0].weight)
    return job


def broken(settings: dict[str, Any]) -> Demo:
    raise RuntimeError("no data\nat all")


def short(settings: dict[str, Any]) -> Demo:
    job, batches = Demo(0), Demo.batches
    job.batches = lambda cursor: itertools.islice(batches(job, cursor), 4)  # type: ignore[method-assign]
    return job


def faulty(settings: dict[str, Any]) -> Demo:
    """Multiplies one gradient by -100 in the update that the environment names, once: a transient fault."""
    job, step, count = Demo(0), Demo.step, os.environ.get("TRAINPROOF_TEST_FAULT")

    def faulted(batch: Any) -> Any:
        if batch["last"] and count is not None and job.scheduler.last_epoch + 1 == int(count):
            job.model[2].weight.grad[3, 3] *= -100
        return step(job, batch)

    job.step = faulted  # type: ignore[method-assign]
    return job


def pulsed(settings: dict[str, Any]) -> Demo:
    """Its schedule raises the rate to 0.5 for three updates from the 45th on."""
    job = Demo(0)
    job.scheduler.lr_lambdas = [lambda i: 500.0 if 44 <= i < 47 else 1.0]
    return job


class Several(Demo):
    """Settings: threads, bf16, compile, workers: each as a training may have it."""

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(0)
        if "threads" in settings:
            torch().set_num_threads(settings["threads"])
        self.workers = int(settings.get("workers", 0))
        self.bf16 = bool(settings.get("bf16"))
        if settings.get("compile"):
            self.model.compile(backend="eager")

    def batches(self, cursor: int) -> Iterator[Any]:
        """From a DataLoader; its workers are seeded by torch's generator where it is made."""
        rows = [self.ids(i) for i in range(cursor, cursor + 40)]
        loader = torch().utils.data.DataLoader(
            _Drawing(self.data), batch_sampler=rows, num_workers=self.workers, generator=torch().Generator()
        )
        for i, words in enumerate(loader, cursor + 1):
            yield {"words": words, "last": i % 2 == 0}

    def step(self, batch: Any) -> StepResult:
        with torch().autocast("cpu", torch().bfloat16, enabled=self.bf16):
            return super().step(batch)


class _Drawing:
    """A data set that draws from torch's generator for every sample."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, i: int) -> Any:
        row = self.data[i].clone()
        row[int(torch().randint(len(row), ()))] = 1
        return row


def several(settings: dict[str, Any]) -> Several:
    return Several(settings)


class _Ranks(Demo):
    """On two ranks, by gloo: each trains on its own half of every batch."""

    def __init__(self) -> None:
        torch().distributed.init_process_group("gloo")
        super().__init__(0)
        self.rank = torch().distributed.get_rank()
        self.net = torch().nn.parallel.DistributedDataParallel(self.model)

    def batches(self, cursor: int) -> Iterator[Any]:
        for batch in super().batches(cursor):
            yield {**batch, "words": batch["words"][2 * self.rank : 2 * self.rank + 2]}

    def step(self, batch: Any) -> StepResult:
        whole, self.model = self.model, self.net
        try:
            return super().step(batch)
        finally:
            self.model = whole


def ranks(settings: dict[str, Any]) -> Demo:
    return _Ranks()


def divided(settings: dict[str, Any]) -> Any:
    """examples/bisect/mlp.py on two ranks, by gloo: each trains on its own half of every batch."""
    torch().distributed.init_process_group("gloo")
    job: Any = make_job(Target(f"{MLP}:make", settings))
    whole, net, step = job.model, torch().nn.parallel.DistributedDataParallel(job.model), job.step
    ids, first = job.ids, 4 * torch().distributed.get_rank()
    job.ids = lambda cursor: ids(cursor)[first : first + 4]

    def together(batch: Any) -> Any:
        job.model = net
        try:
            return step(batch)
        finally:
            job.model = whole

    job.step = together
    return job


def changing(settings: dict[str, Any]) -> Demo:
    """Its data are others where the environment says so."""
    job = Demo(0)
    job.data = (job.data + int(os.environ.get("TRAINPROOF_TEST_DATA", "0"))) % 32
    return job


def failing(settings: dict[str, Any]) -> Demo:
    """Its data are gone after five micro-batches."""
    job, batches = Demo(0), Demo.batches

    def gone(cursor: int) -> Any:
        yield from itertools.islice(batches(job, cursor), 5 - cursor)
        raise OSError("gone")

    job.batches = gone  # type: ignore[method-assign]
    return job
