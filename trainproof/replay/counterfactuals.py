"""What would have happened: a stretch of a recorded run again, with some of its samples replaced by harmless ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from trainproof.errors import InputError
from trainproof.record.changes import Change, Level, changed, hold_rate, ids_of, listed
from trainproof.record.framework import torch
from trainproof.record.rng import capture_rng, restore_rng
from trainproof.record.storage import load_state, own_rank, place_of
from trainproof.replay.job import Target, make_job
from trainproof.replay.runner import Runner


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
        state = load_state(place_of(self.places[start], own_rank()))
        first = int(state["stream"]["cursor"])
        runner = self.runner(change, first, until - start)
        runner.restore(state)
        value = _trained(runner, until)
        if self.level.near(value, change):
            apply_change(runner, change.afterwards, first, self.level.settle)
            value = _trained(runner, until + self.level.settle)
            self.steps += self.level.settle
        runner.close()
        return value, self.level.collapsed(value)

    def runner(self, change: Change, first: int = 0, steps: int = 0) -> Runner:
        """The job, made anew, that trains under the change for so many steps from micro-batch `first` on."""
        runner = Runner(make_job(self.target), keyed=self.keyed)
        apply_change(runner, change, first, steps)
        return runner


def _trained(runner: Runner, until: int) -> float:
    """The held-out loss after step `until`, or where a loss is no number any more. Ranks that wait for each other go on together, and the
    loss of rank 0 is that of all."""
    together = torch().distributed.is_available() and torch().distributed.is_initialized()
    while runner.step < until:
        done = runner.micro_step()
        if done is None or not (together or math.isfinite(done[1].loss)):
            break
    value = torch().tensor(runner.evaluate(), dtype=torch().float64)
    if together:
        torch().distributed.broadcast(value, 0)
    return float(value)


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
    hold_rate(runner.job.stateful.get("optimizer"), change)
    ids = runner.ids(cursor) or ids_of(batch)
    shard_of = getattr(runner.job, "shard_of", None)
    return changed(
        batch, change, cursor, None if ids is None else listed(ids), shard_of, lambda: _harmless(runner, first, cursor)
    )


def _harmless(runner: Runner, first: int, cursor: int) -> Any:
    """A batch to put in the place of another: what the job says is one, else one that the run trained on before the checkpoint."""
    benign = getattr(runner.job, "benign", None)
    return benign(cursor) if benign is not None else next(iter(runner.job.batches(cursor % max(first, 1))))
