"""Runs a job step by step, takes its whole state, and puts it back, or all of it but a part."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from trainproof.errors import InputError
from trainproof.plugins import described
from trainproof.record.digests import digest, digests
from trainproof.record.rng import capture_rng, restore_rng, rng_digests, seed_all
from trainproof.replay.job import Job, StepResult

Edit = Callable[[int, Any], Any]


class Row(NamedTuple):
    """One micro-batch: the optimizer steps after it, its number, whether the optimizer stepped on it, its loss, the rate, the samples, the
    digest of its contents, and a digest a channel of the state after it (model, optimizer, ..., gradients, rng.torch, stream)."""

    step: int
    cursor: int
    updated: bool
    loss: float
    lr: float | None
    ids: tuple[Any, ...] | None
    input: str
    channels: dict[str, str]


class Runner:
    """A job in the middle of its training. `step` counts optimizer steps, `cursor` micro-batches."""

    def __init__(self, job: Job, *, keyed: int | None = None) -> None:
        """keyed: the randomness of each micro-batch is drawn from (this, its number), so that leaving one out does not shift the rest."""
        self.job, self.keyed = job, keyed
        #: (number, batch) -> the batch to train on instead
        self.edit: Edit | None = None
        self.step, self.cursor = 0, 0
        self._batches: Iterator[Any] | None = None

    # running

    def micro_step(self) -> tuple[Any, StepResult] | None:
        """Train on the next micro-batch; None at the end of the data. Raises InputError when the job fails."""
        try:
            if self._batches is None:
                self._batches = iter(self.job.batches(self.cursor))
            if self.keyed is not None:
                seed_all(self.keyed, self.cursor)
            batch = next(self._batches, _END)
            if batch is _END:
                return None
            if self.edit is not None:
                batch = self.edit(self.cursor, batch)
            said = self.job.step(batch)
        except InputError:
            raise
        except Exception as error:
            raise InputError(f"the job failed at micro-batch {self.cursor}: {described(error)}") from error
        result = said if isinstance(said, StepResult) else StepResult(_number(said))
        self.cursor += 1
        self.step += result.updated
        return batch, result

    def close(self) -> None:
        """Let go of what the job holds beside memory, such as a loop that waits."""
        close = getattr(self.job, "close", None)
        if close is not None:
            close()

    def refetch(self) -> None:
        """Ask the job for its batches anew before the next one, as a run that starts from here does."""
        self._batches = None

    def rows(self, until: int, channels: bool = True) -> Iterator[Row]:
        """A row a micro-batch until `until` optimizer steps are made, or the data ends."""
        while self.step < until:
            done = self.micro_step()
            if done is None:
                return
            batch, result = done
            yield Row(
                self.step,
                self.cursor,
                result.updated,
                _number(result.loss),
                self.lr,
                self.ids(self.cursor - 1),
                digest(batch),
                self.channels() if channels else {},
            )

    @property
    def lr(self) -> float | None:
        groups = getattr(self.job.stateful.get("optimizer"), "param_groups", None)
        return float(groups[0]["lr"]) if groups else None

    def ids(self, cursor: int) -> tuple[Any, ...] | None:
        """The samples of a micro-batch, where the job tells them."""
        told = getattr(self.job, "ids", None)
        return None if told is None else tuple(told(cursor))

    def evaluate(self) -> float:
        """The held-out loss; the generators are left as they were. Raises InputError for a job without one."""
        told = getattr(self.job, "evaluate", None)
        if told is None:
            raise InputError("the job has no evaluate(), which tells the held-out loss")
        kept = capture_rng()
        try:
            value = _number(told())
        except Exception as error:
            raise InputError(f"the job's evaluate() failed after step {self.step}: {described(error)}") from error
        restore_rng(kept)
        return value

    # state

    def capture(self) -> dict[str, Any]:
        """The whole state: every stateful part, partial gradients, generators, and the position in the data. Copies."""
        state: dict[str, Any] = {name: copied(part.state_dict()) for name, part in self.job.stateful.items()}
        grads = self._grads()
        if grads:
            state["gradients"] = copied(grads)
        state["rng"] = copied(capture_rng())
        state["stream"] = {"cursor": self.cursor, "step": self.step}
        return state

    def restore(self, state: Mapping[str, Any], without: frozenset[str] = frozenset()) -> None:
        """Put a state back, but for the parts named in `without` (a channel such as "rng" or "rng.torch"). Raises InputError where it is not
        of this job."""
        try:
            self._restore(state, without)
        except InputError:
            raise
        except Exception as error:
            raise InputError(f"the checkpoint's state does not fit the job: {described(error)}") from error

    def _restore(self, state: Mapping[str, Any], without: frozenset[str]) -> None:
        self.step = int(state["stream"]["step"])
        self.cursor = 0 if "stream" in without else int(state["stream"]["cursor"])
        if self.step < 0 or self.cursor < 0:
            raise InputError(f"a broken checkpoint: of step {self.step}, micro-batch {self.cursor}")
        seek = getattr(self.job, "seek", None)
        if seek is not None:
            seek(self.cursor)
        for name, part in self.job.stateful.items():
            if name in state and name not in without:
                part.load_state_dict(copied(state[name]))
        if "gradients" not in without:
            self._set_grads(state.get("gradients", {}))
        if "rng" in state and "rng" not in without:
            restore_rng(state["rng"], frozenset(name.removeprefix("rng.") for name in without))
        self.refetch()

    def restore_parts(self, state: Mapping[str, Any], parts: frozenset[str]) -> None:
        """Put back only the parts named, over what is there."""
        for name, part in self.job.stateful.items():
            if name in parts:
                part.load_state_dict(copied(state[name]))
        if "gradients" in parts:
            self._set_grads(state.get("gradients", {}))
        if "rng" in parts:
            restore_rng(state["rng"])
        if "stream" in parts:
            self.cursor = int(state["stream"]["cursor"])
            self.refetch()

    def channels(self) -> dict[str, str]:
        """A digest of each channel of the state."""
        found = {name: digest(part.state_dict()) for name, part in self.job.stateful.items()}
        found["gradients"] = digest(self._grads())
        found |= {f"rng.{name}": value for name, value in rng_digests().items()}
        found["stream"] = str(self.cursor)
        return found

    def leaves(self) -> dict[str, str]:
        """A digest of each tensor of each stateful part."""
        found: dict[str, str] = {}
        for name, part in self.job.stateful.items():
            found |= digests(part.state_dict(), name)
        return found

    def _parameters(self) -> list[tuple[str, Any]]:
        model = self.job.stateful["model"]
        return list(model.named_parameters()) if hasattr(model, "named_parameters") else []

    def _grads(self) -> dict[str, Any]:
        """The gradients that are not zero: those of an update that is made are done with."""
        return {name: p.grad for name, p in self._parameters() if p.grad is not None and bool(p.grad.any())}

    def _set_grads(self, grads: Mapping[str, Any]) -> None:
        for name, parameter in self._parameters():
            parameter.grad = grads[name].clone().reshape(parameter.shape) if name in grads else None


_END = object()


def copied(value: Any) -> Any:
    """A deep copy of a tree; tensors are cloned."""
    if isinstance(value, Mapping):
        return {key: copied(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(copied(item) for item in value) if type(value) in (list, tuple) else value
    if hasattr(value, "clone") and hasattr(value, "detach"):
        return value.detach().clone()
    return value


def _number(value: Any) -> float:
    """What a job gives as a loss: a number, or a tensor or array of one, with its graph or without."""
    return float(value.item() if hasattr(value, "item") else value)
