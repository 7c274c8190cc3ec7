"""What would have happened: a stretch of a recorded run again, with some of its samples replaced by harmless ones."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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

    @classmethod
    def of(cls, told: list[Any]) -> Change:
        """The change as JSON tells it. Raises ValueError or TypeError for what tells none."""
        shards, batches, samples, only, rate, shift = told
        rate = None if rate is None else float(rate)
        return cls(tuple(shards), tuple(batches), tuple(samples), bool(only), rate, int(shift))

    @property
    def nothing(self) -> bool:
        return self == Change()


class Try(NamedTuple):
    """One counterfactual: where it began, where it ended, what was changed, the held-out loss at the end, and whether that is collapsed. Of
    a finding: the last training loss, and whether the same rule flags it again."""

    start: int
    until: int
    change: Change
    value: float
    collapsed: bool


def told(attempt: Try, measure: str = "held-out loss", words: tuple[str, str] = ("collapsed", "healthy")) -> str:
    """The counterfactual as a sentence. measure: what its value is; words: for one that collapsed, and for one that did not."""
    change = attempt.change
    named = (("shards", change.shards), ("batches", _runs(change.batches)), ("samples", change.samples))
    what = "; ".join(f"{name} {', '.join(map(str, some))}" for name, some in named if some)
    how = f"all but {what or 'nothing'} replaced" if change.only else f"{what} replaced" if what else "as it was"
    how += f", the rate held at {change.rate:g}" if change.rate is not None else ""
    how += f", on the batches of {change.shift} later" if change.shift else ""
    word = words[not attempt.collapsed]
    return f"steps {attempt.start + 1} to {attempt.until}, {how}: {measure} {attempt.value:.4g}, {word}"


def _runs(numbers: Sequence[int]) -> list[str]:
    """1, 2, 3, 7 as "1-3" and "7"."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and found[-1][-1] == number - 1:
            found[-1][1:] = [number]
        else:
            found.append([number])
    return ["-".join(map(str, ends)) for ends in found]


class Level(NamedTuple):
    """What a collapse is. above: the held-out loss above which a run has collapsed. unsure: within so much of it a run under a change is
    trained on harmless data for `settle` more steps, and looked at again: what has collapsed stays so."""

    above: float
    unsure: float = 0.0
    settle: int = 0


class Bench:
    """Runs counterfactuals of one recorded run, counts them, and stops at a budget."""

    def __init__(self, places: dict[int, Path], target: Target, keyed: int | None, level: Level, budget: int) -> None:
        """places: the checkpoints by step. keyed: the seed of the randomness of each batch. budget: replays at most."""
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
        value, collapsed = self._run(start, until, change)
        self.steps += until - start
        self.tries.append(Try(start, until, change, value, collapsed))
        return self.tries[-1].collapsed

    def _run(self, start: int, until: int, change: Change) -> tuple[float, bool]:
        state = load_state(self.places[start])
        first = int(state["stream"]["cursor"])
        runner = self.runner(change, first, until - start)
        runner.restore(state)
        value = _trained(runner, until)
        if abs(value - self.level.above) <= self.level.unsure and not change.nothing:
            apply_change(runner, Change(only=True, rate=change.rate), first, self.level.settle)
            value = _trained(runner, until + self.level.settle)
            self.steps += self.level.settle
        runner.close()
        return value, not value <= self.level.above  # a loss that is not a number has collapsed

    def runner(self, change: Change, first: int = 0, steps: int = 0) -> Runner:
        """The job, made anew, that trains under the change for so many steps from micro-batch `first` on."""
        runner = Runner(make_job(self.target), keyed=self.keyed)
        apply_change(runner, change, first, steps)
        return runner


def _trained(runner: Runner, until: int) -> float:
    """The held-out loss after step `until`, or where a loss is no number any more."""
    while runner.step < until:
        done = runner.micro_step()
        if done is None or not math.isfinite(done[1].loss):
            break
    return runner.evaluate()


def apply_change(runner: Runner, change: Change, first: int, steps: int) -> None:
    """Let the runner train under the change, for so many steps. first: the micro-batch that it begins with; those before it are taken to be
    harmless. To be called before a state is put back: a job whose loop goes forward only fetches now what it is to train on later."""
    if change.nothing:
        return
    fetch = getattr(runner.job, "fetch", None)
    ahead = fetch(first + change.shift, steps) if fetch is not None and change.shift else None

    def edited(cursor: int, batch: Any) -> Any:
        kept = capture_rng()  # fetching other samples draws nothing from the generators of the step
        if change.shift:
            batch = (
                ahead[cursor - first] if ahead is not None else next(iter(runner.job.batches(cursor + change.shift)))
            )
        batch = _edited(runner, first, cursor + change.shift, batch, change)
        restore_rng(kept)
        return batch

    runner.edit = edited


def _edited(runner: Runner, first: int, cursor: int, batch: Any, change: Change) -> Any:
    if change.rate is not None:
        for group in getattr(runner.job.stateful.get("optimizer"), "param_groups", []):
            group["lr"] = change.rate
    if change._replace(rate=None).nothing:
        return batch
    ids = runner.ids(cursor)
    if ids is None:
        return _harmless(runner, first, cursor) if (cursor in change.batches) != change.only else batch
    rows = [i for i, sample in enumerate(ids) if _hit(runner, cursor, sample, change) != change.only]
    return with_rows(batch, _harmless(runner, first, cursor), rows) if rows else batch


def _hit(runner: Runner, cursor: int, sample: Any, change: Change) -> bool:
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
