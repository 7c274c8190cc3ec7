"""Checkpoints alone, the order of the data unknown: what can be said of a shard under reconstructed orders, and what cannot.

A shard is named only where leaving it out heals, it alone collapses, leaving out another does not heal, and its loss under the frozen weights
of the last healthy checkpoint is the highest: all of it under every reconstructed order. It is probable then, never confirmed; no batch and
no step is ever named.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trainproof.errors import InputError
from trainproof.experiments import Cause
from trainproof.record.changes import Change, Level, shard_named
from trainproof.record.storage import load_state
from trainproof.record.tape import checkpoints_in
from trainproof.replay.bisecting import LIMITS, Bad, bad_point
from trainproof.replay.counterfactuals import Bench
from trainproof.replay.job import Target
from trainproof.replay.runner import Runner

#: reconstructed orders: to see whether the collapse comes back at all, and to name a shard
BRACKET_ORDERS, CONFIRM_ORDERS = 3, 8


def run_forensic(folder: str, job: str, settings: dict[str, Any], budget: int) -> dict[str, Any]:
    """What the checkpoints of a folder say. Returns the answer as `run_bisect` does. Raises InputError."""
    places = checkpoints_in(Path(folder))
    if len(places) < 2:
        raise InputError(f"{folder}: {len(places)} whole checkpoints of the recorder, needs two or more")
    benches = [
        Bench(places, Target(job, {**settings, "order_seed": seed}), seed, Level(0.0), budget)
        for seed in range(1, CONFIRM_ORDERS + 1)
    ]
    values = {step: _value(benches[0], place) for step, place in places.items()}
    bad = bad_point(values) or _lost_at_the_end(values)
    if bad is None:
        return {"bad": None, "cause": None, "tries": [], "steps": 0}
    for bench in benches:
        bench.level = Level(bad.level)
    start = max(step for step in places if step < bad.step)
    cause = _search(benches, start, bad.step)
    return {
        "bad": bad,
        "cause": cause,
        "tries": [t for bench in benches for t in bench.tries],
        "steps": sum(bench.steps for bench in benches),
    }


def _lost_at_the_end(values: dict[int, float]) -> Bad | None:
    """Checkpoints are few: the last one alone counts where half of what had been learned is lost."""
    last, low = max(values), min(values.values())
    learned = values[min(values)] - low
    return bad_point(values, last) if values[last] - low > LIMITS.rise_lost_checkpoint * learned > 0 else None


def _value(bench: Bench, place: Path) -> float:
    runner = bench.runner(Change())
    runner.restore(load_state(place))
    return runner.evaluate()


def _search(benches: list[Bench], start: int, until: int) -> Cause:
    interval = (start, until)
    back = sum(bench.collapsed(start, until, Change()) for bench in benches[:BRACKET_ORDERS])
    if back < BRACKET_ORDERS:
        why = f"the collapse comes back under {back} of {BRACKET_ORDERS} reconstructed orders: it depends on the order; record the run to settle it"
        return Cause("UNPROVEN", interval, why=why)
    ranked = _ranked(benches[0], start)
    if len(ranked) < 2:
        return Cause("UNPROVEN", interval, why="the job has fewer than two shards to tell apart")
    suspect, other = ranked[0], ranked[1]
    mine, theirs = Change(shards=(suspect,)), Change(shards=(other,))
    for number, bench in enumerate(benches):
        held = (
            not bench.collapsed(start, until, mine)
            and bench.collapsed(start, until, mine._replace(only=True))
            and bench.collapsed(start, until, theirs)
        )
        if not held:
            why = f"{suspect} is not necessary, sufficient and specific under order {number + 1} of {len(benches)}; record the run to settle it"
            return Cause("UNPROVEN", interval, why=why)
    why = f"necessary, sufficient and specific under {len(benches)} of {len(benches)} reconstructed orders, and of the highest loss under frozen weights"
    return Cause("PROBABLE", interval, suspect, why=why)


def _ranked(bench: Bench, start: int) -> list[str]:
    """The shards by the mean loss of their samples under the weights of the last healthy checkpoint, highest first."""
    runner = bench.runner(Change())
    job: Any = runner.job
    if not (hasattr(job, "pool") and hasattr(job, "batch_of") and hasattr(job, "shard_of")):
        raise InputError(
            "the job has no pool(), batch_of(samples) and shard_of(sample), which forensic bisection needs"
        )
    state = load_state(bench.places[start])
    by_shard: dict[str, list[Any]] = {}
    for sample in job.pool():
        by_shard.setdefault(shard_named(job.shard_of, sample), []).append(sample)
    return sorted(by_shard, key=lambda shard: -_frozen_loss(runner, state, by_shard[shard]))


def _frozen_loss(runner: Runner, state: dict[str, Any], samples: list[Any]) -> float:
    """The loss of the samples before the step that they are given to; the step is undone."""
    job: Any = runner.job
    runner.restore(state)
    said = job.step(job.batch_of(samples))
    return float(getattr(said, "loss", said))
