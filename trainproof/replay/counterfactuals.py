"""What would have happened: a stretch of a recorded run again, with some of its samples replaced by harmless ones."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from trainproof.errors import InputError
from trainproof.record.rng import capture_rng, restore_rng
from trainproof.record.storage import load_state
from trainproof.replay.job import Target, make_job
from trainproof.replay.runner import Runner


class Change(NamedTuple):
    """What is changed. shards, batches, samples: what is replaced; only: instead, all but these is replaced. rate: the learning rate is
    held at this. shift: the batches are those of this many micro-batches later: another checkpoint meets the same data."""

    shards: tuple[str, ...] = ()
    batches: tuple[int, ...] = ()
    samples: tuple[Any, ...] = ()
    only: bool = False
    rate: float | None = None
    shift: int = 0

    @property
    def nothing(self) -> bool:
        return self == Change()


class Try(NamedTuple):
    """One counterfactual: where it began, where it ended, what was changed, the held-out loss at the end, and whether that is collapsed."""

    start: int
    until: int
    change: Change
    value: float
    collapsed: bool


class Bench:
    """Runs counterfactuals of one recorded run, counts them, and stops at a budget."""

    def __init__(self, places: dict[int, Path], target: Target, keyed: int, level: float, budget: int) -> None:
        """places: the checkpoints by step. keyed: the seed of the randomness of each batch. level: the held-out loss above which a run has
        collapsed. budget: replays at most."""
        self.places, self.target, self.keyed, self.level, self.budget = places, target, keyed, level, budget
        self.tries: list[Try] = []
        self.steps = 0

    def collapsed(self, start: int, until: int, change: Change) -> bool:
        """Whether the run from the checkpoint after step `start` to step `until` collapses under the change. Raises InputError when the
        budget is used up or the job fails."""
        known = next((t for t in self.tries if (t.start, t.until, t.change) == (start, until, change)), None)
        if known is not None:
            return known.collapsed
        if len(self.tries) >= self.budget:
            raise InputError(f"the budget of {self.budget} replays is used up; give more with --budget")
        value = self._run(start, until, change)
        self.steps += until - start
        # a loss that is not a number has collapsed
        self.tries.append(Try(start, until, change, value, not value <= self.level))
        return self.tries[-1].collapsed

    def _run(self, start: int, until: int, change: Change) -> float:
        state = load_state(self.places[start])
        runner = self.runner(change, int(state["stream"]["cursor"]))
        runner.restore(state)
        while runner.step < until:
            if change.rate is not None:
                for group in getattr(runner.job.stateful.get("optimizer"), "param_groups", []):
                    group["lr"] = change.rate
            done = runner.micro_step()
            if done is None or not math.isfinite(done[1].loss):
                break
        return runner.evaluate()

    def runner(self, change: Change, first: int = 0) -> Runner:
        """The job, made anew, that trains under the change from micro-batch `first` on."""
        runner = Runner(make_job(self.target), keyed=self.keyed)
        if not (change.nothing or (change.rate is not None and not change.shards)):
            runner.edit = lambda cursor, batch: self._edited(runner, first, cursor, batch, change)
        return runner

    def _edited(self, runner: Runner, first: int, cursor: int, batch: Any, change: Change) -> Any:
        """The batch under the change; fetching harmless samples draws nothing from the generators of the step."""
        kept = capture_rng()
        if change.shift:
            cursor += change.shift
            batch = next(iter(runner.job.batches(cursor)))
        ids = runner.ids(cursor)
        if ids is None:
            batch = _harmless(runner, first, cursor) if (cursor in change.batches) != change.only else batch
        else:
            rows = [i for i, sample in enumerate(ids) if self._hit(runner, cursor, sample, change) != change.only]
            batch = with_rows(batch, _harmless(runner, first, cursor), rows) if rows else batch
        restore_rng(kept)
        return batch

    def _hit(self, runner: Runner, cursor: int, sample: Any, change: Change) -> bool:
        """Whether the sample in this batch is one of those that the change names: in all of the ways in which it names any."""
        named = []
        if change.shards:
            named.append(shard_of(runner, sample) in change.shards)
        if change.batches:
            named.append(cursor in change.batches)
        if change.samples:
            named.append(sample in change.samples)
        return bool(named) and all(named)


def _harmless(runner: Runner, first: int, cursor: int) -> Any:
    """A batch to put in the place of another: what the job says is one, else one that the run trained on before the checkpoint."""
    benign = getattr(runner.job, "benign", None)
    return benign(cursor) if benign is not None else next(iter(runner.job.batches(cursor % max(first, 1))))


def shard_of(runner: Runner, sample: Any) -> str:
    """The shard that the job says a sample is of; "" where it has none."""
    told = getattr(runner.job, "shard_of", None)
    return "" if told is None else str(told(sample))


def with_rows(batch: Any, donor: Any, rows: list[int]) -> Any:
    """The batch with some of its samples (the first dimension of each tensor) replaced by the donor's."""
    if isinstance(batch, Mapping):
        return {name: with_rows(value, donor[name], rows) for name, value in batch.items()}
    if isinstance(batch, (list, tuple)):
        return type(batch)(with_rows(value, other, rows) for value, other in zip(batch, donor, strict=True))
    if not hasattr(batch, "clone") or not batch.ndim:
        return batch
    changed = batch.clone()
    for row in rows:
        changed[row] = donor[row % len(donor)]
    return changed
