"""What a training job must offer to be run again, and how one is found: "train.py:make" names a function that makes it anew."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Mapping
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from trainproof.errors import InputError, TrainproofError, UsageError
from trainproof.plugins import described


class StepResult(NamedTuple):
    """What one micro-batch gave: its loss, whether the optimizer stepped, and other numbers to record."""

    loss: float
    updated: bool = True
    metrics: Mapping[str, float] = {}


class Job(Protocol):
    """A training, made anew by a factory that sets its own seeds.

    `stateful` is everything that `step` changes, by name: objects with state_dict() and load_state_dict(); the model and the optimizer
    are "model" and "optimizer", the scheduler is "scheduler". A job may also have `evaluate() -> float` (the held-out loss),
    `ids(cursor) -> list` (the samples of a micro-batch), `shard_of(id) -> str`, `benign(cursor) -> batch`, `seek(cursor)`, which is called
    before a state is put back, and `save(folder, cursor)` and `load(folder) -> cursor`, its own way to store itself; save returns False
    where it cannot, between the micro-batches of a step.
    """

    stateful: Mapping[str, Any]

    def batches(self, cursor: int) -> Iterator[Any]:
        """The micro-batches from number `cursor` (0, 1, ...) on, in the same order every time, across epochs."""

    def step(self, batch: Any) -> StepResult | float:
        """Forward and backward of one micro-batch, and the update where it is due. A plain loss means that the optimizer stepped."""


class Target(NamedTuple):
    """Where a job comes from: the factory as it was named, and the settings that it is given."""

    named: str
    settings: dict[str, Any]

    @property
    def file(self) -> str:
        return self.named.rpartition(":")[0]


def make_job(target: Target) -> Job:
    """The job. Raises UsageError when there is no such factory, InputError in one line when it fails."""
    file, _, name = target.named.rpartition(":")
    if not file or not name.isidentifier():
        raise UsageError(f"{target.named!r}: expected FILE.py:FUNCTION, for example train.py:make")
    factory = getattr(_module(file), name, None)
    if not callable(factory):
        raise UsageError(f"{file} has no function {name!r}")
    try:
        parameters = inspect.signature(factory).parameters
        job: Job = factory(dict(target.settings)) if parameters else factory()
    except TrainproofError:
        raise
    except Exception as error:
        raise InputError(f"{target.named} failed: {described(error)}") from error
    lacking = [need for need in ("stateful", "batches", "step") if not hasattr(job, need)]
    if not lacking and "model" not in job.stateful:
        lacking = ["a model in stateful"]
    if lacking:
        raise UsageError(f"{target.named} made no job: it lacks {lacking[0]}")
    return job


def _module(file: str) -> Any:
    path = Path(file).resolve()
    if not path.is_file():
        raise UsageError(f"{file}: no such file; expected FILE.py:FUNCTION")
    name = f"_trainproof_job_{path.stem}"
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{file}: no Python file")
    module = module_from_spec(spec)
    sys.modules[name] = module
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise InputError(f"{file} failed: {described(error)}") from error
    return module
