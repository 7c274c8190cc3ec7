"""The recorder: what a training loop does, step by step, and checkpoints from which any step can be done again.

rec = trainproof.Recorder("runs/a", model=model, optimizer=optimizer, scheduler=scheduler, checkpoint_every=200)
for batch in rec.batches(loader):
    with rec.step() as step:
        loss = ...; loss.backward(); optimizer.step()
        step.loss(loss)
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trainproof.errors import InputError
from trainproof.output import tell
from trainproof.record.changes import ShardOf, ids_of, listed, shard_named
from trainproof.record.digests import digest, quick_hashes
from trainproof.record.fingerprint import fingerprint
from trainproof.record.framework import torch
from trainproof.record.goal import Goal, script_of_process
from trainproof.record.rng import capture_rng, restore_rng, seed_all
from trainproof.record.storage import own_rank, place_of, write_checkpoint
from trainproof.record.tape import TapeWriter


class Step:
    """One step that is being recorded."""

    def __init__(self) -> None:
        self.losses: list[Any] = []
        self.metrics: dict[str, float] = {}

    def loss(self, value: Any) -> None:
        """The loss of this step, or of one micro-batch of it: a number or a tensor."""
        self.losses.append(value.detach() if hasattr(value, "detach") else value)

    def log(self, **metrics: float) -> None:
        """Other numbers of this step."""
        self.metrics.update(metrics)


class Recorder:
    """Records one run into a folder, one file a rank.

    model: its parameters are hashed. optimizer: its rate is recorded, and the gradient norms of its steps. scheduler, stateful:
    further parts of the state, objects with state_dict(). checkpoint_every: optimizer steps between checkpoints, 0 for none; the first is
    taken before the first step. hashes: of every parameter after every step. keyed: the seed from which the randomness of each batch is
    drawn, so that changing one shifts no other: `trainproof bisect` needs it. shard_of: sample -> its shard. header: what else the first
    row says.

    Under `trainproof replay` the same script makes the same recorder, which then goes past the batches before a checkpoint, puts the state
    back, and ends the script at the last step that is wanted (trainproof.record.goal).

    Raises InputError when the folder holds a recording already or cannot be written. Later a full disk ends the recording with a warning,
    never the training.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        model: Any,
        optimizer: Any,
        scheduler: Any = None,
        stateful: Mapping[str, Any] | None = None,
        checkpoint_every: int = 0,
        hashes: bool = True,
        keyed: int | None = None,
        shard_of: ShardOf | None = None,
        source: str | None = None,
        header: Mapping[str, Any] | None = None,
    ) -> None:
        self.rank, self.keyed, self.shard_of = own_rank(), keyed, shard_of
        self.goal = Goal.of_environment() if "job" not in (header or {}) else None
        self.folder = Path(folder) if self.goal is None else self.goal.out
        if (self.folder / f"steps-{self.rank}.jsonl").exists():
            raise InputError(f"{folder}: holds a recorded run already; name another folder")
        self.parts = {
            "model": model,
            "optimizer": optimizer,
            **({"scheduler": scheduler} if scheduler is not None else {}),
            **(stateful or {}),
        }
        self.checkpoint_every, self.hashes = checkpoint_every if self.goal is None else 0, hashes
        self.steps, self.cursor, self._passes = 0, 0, 0
        self._epoch = (0, 0, 0)
        #: (micro-batch, states of the generators before it was fetched) of the pass, and where a batch is fetched ahead
        self._marks: dict[str, tuple[int, dict[str, Any], list[Any]]] = {}
        named = (
            [(name, p) for name, p in model.named_parameters() if p.requires_grad]
            if hasattr(model, "named_parameters")
            else []
        )
        self._names, self._tensors = [name for name, _ in named], [p for _, p in named]
        self._optimizer = optimizer
        self._norms: Any = None
        self._rate: float | None = None
        self._updated = False
        self._digests: list[str] = []
        self._ids: list[Any] = []
        self._shards: list[str] = []
        self._sizes: list[int] = []
        self._open: Step | None = None
        script = script_of_process() if "job" not in (header or {}) else None
        self.fingerprint = fingerprint(source or (script["file"] if script else None), optimizer, model)
        about = {
            "rank": self.rank,
            "tensors": self._names if hashes else [],
            "fingerprint": self.fingerprint,
            **({"script": script} if script else {}),
            **({"keyed": keyed} if keyed is not None else {}),
            **(header or {}),
        }
        if self.goal is not None:
            self.goal.check(self.fingerprint)
        self._tape: TapeWriter | None = TapeWriter(self.folder, about, self.rank)
        # after the update, since a closure makes the gradients within it; no optimizer changes them
        if hasattr(optimizer, "register_step_post_hook"):
            optimizer.register_step_post_hook(self._after_update)

    # what a training loop calls

    def epochs(self, count: int) -> Iterator[int]:
        """0 to count - 1; a replay begins with the epoch of its checkpoint, and runs nothing of those before."""
        first = 0
        if self.going:
            first, self._passes, self.cursor = self._stream().get("epoch", (0, 0, 0))
        for epoch in range(first, count):
            self._epoch = (epoch, self._passes, self.cursor)
            yield epoch

    def batches(self, loader: Iterable[Any]) -> Iterator[Any]:
        """The loader's batches; each is digested, and the state before the first, and before every `checkpoint_every`-th step, is kept. A
        replay goes past those before its checkpoint, pass after pass, before it gives any."""
        more = True
        while more:
            self.before_fetch(begins=generators_of(loader))
            more = False
            for batch in loader:
                more = self.going
                if more:
                    self.passed()
                else:
                    yield self.fetched(batch)
                self.before_fetch()
            more = more and self.going

    @property
    def going(self) -> bool:
        """Whether this is a replay that has not come to its checkpoint yet: nothing is trained on."""
        return self.goal is not None and not self.goal.reached

    def before_fetch(self, begins: Sequence[Any] | None = None, ahead: bool = False) -> None:
        """To be called before batches are fetched: keeps the state where a checkpoint is due; in a replay, puts it back where it was kept.
        begins: a pass over the data begins, whose order these generators draw too. ahead: a batch more is fetched than is trained on."""
        self._passes += begins is not None
        if self.going:
            self._go(begins or ())
        else:
            self._keep(begins, ahead)
        if self.keyed is not None:
            seed_all(self.keyed, self.cursor)

    def _keep(self, begins: Sequence[Any] | None, ahead: bool) -> None:
        """Keep the state where a checkpoint is due, and what a replay needs to go there."""
        if self.checkpoint_every and begins is not None:
            self._marks = {"pass": (self.cursor, capture_rng(), [one.get_state() for one in begins])}
        self.checkpoint_if_due()
        if self.checkpoint_every and ahead and (self.steps + 1) % self.checkpoint_every == 0:
            self._marks["ahead"] = (self.cursor, capture_rng(), [])

    def passed(self) -> None:
        """Note a batch that a replay goes past."""
        self.cursor += 1

    def fetched(self, batch: Any, ids: Iterable[Any] | None = None) -> Any:
        """Note a batch: its digest, and the samples that are in it. What is to be trained on: the batch, but where a replay changes it."""
        told = ids if ids is not None else ids_of(batch)
        samples = None if told is None else listed(told)
        self._digests.append(digest(batch))
        self._ids += samples or ()
        self._sizes.append(len(samples or ()))
        if self.shard_of is not None:
            self._shards += [shard_named(self.shard_of, sample) for sample in samples or ()]
        given = batch if self.goal is None else self.goal.given(batch, samples, self)
        self.cursor += 1
        return given

    @contextmanager
    def step(self) -> Iterator[Step]:
        """Record one step; a step in which the optimizer does not step is a micro-batch of the one that follows."""
        yield self.opened()
        self.ended()

    def opened(self) -> Step:
        """A micro-batch begins; the step that it belongs to."""
        self._open, self._updated = self._open or Step(), False
        return self._open

    def ended(self) -> None:
        """A micro-batch, and the update where there was one, is done."""
        if self._updated and self._open is not None:
            self._write(self._open)
            self._open = None
            if self.goal is not None:
                self.goal.end_if_done(self.steps)

    def evaluated(self, **metrics: float) -> None:
        """Numbers of an evaluation after the steps so far: eval_loss=..., eval_accuracy=..."""
        row = {name: float(value) for name, value in metrics.items()}
        self._row({"step": self.steps, **row})
        if self.goal is not None:
            self.goal.end_if_settled(self.steps, row.get("eval_loss"), self.rank)

    def checkpoint_if_due(self) -> bool:
        """Keep the state where a checkpoint is due; not between the micro-batches of a step. Returns whether it was."""
        due = self.checkpoint_every > 0 and self.steps % self.checkpoint_every == 0 and self._open is None
        if due:
            self.checkpoint()
        return due

    def checkpoint(self) -> None:
        """Keep the whole state now, before the next batch is fetched."""
        state = {name: part.state_dict() for name, part in self.parts.items()}
        stream = {"cursor": self.cursor, "step": self.steps, "passes": self._passes, "epoch": self._epoch}
        stream["marks"] = list(self._marks.values())
        state |= {"rng": capture_rng(), "stream": stream}
        place = place_of(self.folder / "checkpoints" / f"step-{self.steps:08d}", self.rank)
        try:
            write_checkpoint(place, state, {"step": self.steps, "cursor": self.cursor, "fingerprint": self.fingerprint})
        except InputError as error:
            tell(f"no checkpoint: {error}")

    def close(self) -> None:
        if self._tape is not None:
            self._tape.close()
            self._tape = None

    # how it does it

    def _stream(self) -> dict[str, Any]:
        """Where the checkpoint of a replay lies in the data."""
        stream: dict[str, Any] = self.goal.state(self.rank)["stream"] if self.goal is not None else {}
        return stream

    def _go(self, generators: Sequence[Any]) -> None:
        """In a replay, before a fetch: the generators are what they were where that is known; at the checkpoint, the whole state is."""
        stream = self._stream()
        for cursor, rng, states in stream.get("marks", ()):
            if cursor == self.cursor:
                restore_rng(rng)
                for generator, state in zip(generators, states, strict=False):
                    generator.set_state(state)
        if self.goal is not None and (self.cursor, self._passes) == (stream["cursor"], stream.get("passes")):
            self.goal.reached, self.steps = True, stream["step"]
            state = self.goal.state(self.rank)
            for name, part in self.parts.items():
                part.load_state_dict(state[name])
            for tensor in self._tensors:
                tensor.grad = None
            restore_rng(state["rng"])

    def _after_update(self, *_: Any) -> None:
        if self.going:
            return
        self._updated = True
        self._rate = float(self._optimizer.param_groups[0]["lr"])
        grads = [p.grad if p.grad is not None else p.new_zeros(()) for p in self._tensors]
        with torch().no_grad():
            self._norms = torch().stack(list(torch()._foreach_norm(grads))) if grads else None

    def _write(self, step: Step) -> None:
        self.steps += 1
        values = [float(value) for value in step.losses]
        row: dict[str, Any] = {"step": self.steps, "loss": sum(values) / len(values) if values else None}
        if self._rate is not None:
            row["lr"] = self._rate
        tensors = b""
        if self._norms is not None:
            norms = self._norms.float()
            row["grad_norm"] = float(torch().linalg.vector_norm(norms))
            if self.hashes:
                tensors = quick_hashes(self._tensors) + norms.cpu().numpy().astype("<f4").tobytes()
                row["params"] = hashlib.blake2b(tensors[: 8 * len(self._tensors)], digest_size=8).hexdigest()
        row |= step.metrics
        if self._digests:
            row["batch"] = self._digests[0] if len(self._digests) == 1 else digest(self._digests)
        if self._ids:
            row["ids"] = self._ids
            row |= {"shards": self._shards} if self._shards else {}
            row |= {"sizes": self._sizes} if len(self._sizes) > 1 else {}
        self._row({**row, "cursor": self.cursor}, tensors)
        self._digests, self._ids, self._shards, self._sizes = [], [], [], []

    def _row(self, row: dict[str, Any], tensors: bytes = b"") -> None:
        if self._tape is None:
            return
        try:
            self._tape.row(row, tensors)
        except OSError as error:
            tell(f"{self.folder}: the recording ends here ({error.strerror})")
            self._tape = None


def generators_of(loader: Any) -> list[Any]:
    """The generators of its own from which a DataLoader draws the order of its data."""
    sampler = getattr(loader, "sampler", None)
    found = [getattr(one, "generator", None) for one in (loader, sampler)]
    return list({id(one): one for one in found if hasattr(one, "get_state")}.values())
