"""Find what made a recorded run collapse: the checkpoint interval, the shard, the batch, the sample; each by experiment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from trainproof import stats
from trainproof.errors import InputError
from trainproof.experiments import Cause
from trainproof.output import tell
from trainproof.record.changes import Change, Level
from trainproof.record.tape import Tape
from trainproof.replay.counterfactuals import Bench
from trainproof.replay.fresh import RanksBench, ScriptBench
from trainproof.replay.job import Target
from trainproof.thresholds import ExperimentThresholds

T = TypeVar("T")
LIMITS = ExperimentThresholds()
#: evaluations before the bad point; evaluations after which a level is no surer, since they are not independent
LEAST_BEFORE, SURE = 2, 3
#: changes before the bad point whose largest rise is how the course swings
RECENT = 6
#: evaluations after which a counterfactual that was near the level is looked at again
SETTLE = 2


class Bad(NamedTuple):
    """Where the held-out loss went bad: the first evaluation that is, the level above which a run has collapsed, and how far from it one can
    be sure."""

    step: int
    level: float
    unsure: float = 0.0


def bad_point(evaluations: dict[int, float], bad: int | None = None) -> Bad | None:
    """The change-point of the held-out loss: the evaluation at which it rises most to a level that it keeps. bad: the first bad evaluation
    as the user says. None where the loss did not rise by more than its noise."""
    steps = sorted(evaluations)
    values = np.array([evaluations[step] for step in steps])
    values = np.where(np.isfinite(values), values, np.nanmax(np.append(values[np.isfinite(values)], 0.0)) * 10 + 10)
    if bad is not None:
        split = next((i for i, step in enumerate(steps) if step >= bad), None)
        if split is None or split < 1:
            raise InputError(
                f"--bad {bad}: expected a step with an evaluation before it and one from it on; evaluations: {steps}"
            )
        found = _Rise(float(values[:split].min()), float(values[split]), 0.0)
        return found.bad(steps[split]) if found.high > found.low else None
    # how much worse than untrained it is says nothing, and would hide where it began
    ceiling = float(values[0] + max(values[0] - values.min(), abs(values[0]))) if len(values) else 0.0
    capped = np.minimum(values, ceiling)
    rises = [
        (rise, step)
        for split, step in enumerate(steps[LEAST_BEFORE:], LEAST_BEFORE)
        if (rise := _rise(capped, split)) is not None
    ]
    most, step = max(rises, key=lambda found: found[0].high - found[0].low, default=(None, 0))
    return most.bad(step) if most is not None and most.high - most.low >= most.least else None


class _Rise(NamedTuple):
    """The level just before a split, the level that is kept from it on, and the least that they must differ by."""

    low: float
    high: float
    least: float

    def bad(self, step: int) -> Bad:
        return Bad(step, (self.low + self.high) / 2, LIMITS.unsure * (self.high - self.low))


def _rise(values: np.ndarray, split: int) -> _Rise | None:
    """What is bad stays bad: of the values from the split on, all but the lowest quarter count, so that a spike that passes is none. None for
    a single value at the end, unless nearly all that was learned is lost."""
    lowest = split - LEAST_BEFORE + int(np.argmin(values[split - LEAST_BEFORE : split]))
    low, kept = float(values[lowest]), values[split:]
    high = float(min(np.quantile(kept, LIMITS.rise_kept), values[split]))
    if len(kept) == 1 and high - low < LIMITS.rise_lost * (values[0] - low):
        return None
    # a falling loss has a trend, and what it rises by on its way is its noise; a level that n evaluations keep is surer than one
    changes, known = np.diff(values[: lowest + 1]), min(len(kept), SURE)
    ups = changes[changes > 0]
    noise = stats.MAD_TO_SIGMA * stats.median(ups) / known**0.5 if len(ups) else 0.0
    swing = float(max(0.0, *changes[-RECENT:])) if len(changes) else 0.0
    learned = SURE / known * (float(values[0]) - low)
    least = (
        LIMITS.rise_noise * noise,
        LIMITS.rise_swing * swing,
        LIMITS.rise_share * abs(low),
        LIMITS.rise_learned * learned,
    )
    return _Rise(low, high, max(least))


def run_bisect(folder: str, job: str | None, bad: int | None, budget: int, kept: str | None = None) -> dict[str, Any]:
    """Find the cause of a recorded run's collapse. kept: where a script's batches are. Returns what was found, as JSON."""
    tape = Tape(Path(folder))
    found = bad_point(tape.evaluations, bad)
    if found is None:
        return {"bad": None, "cause": None, "tries": [], "steps": 0}
    bench = _bench(tape, job, found, budget, kept)
    cause = _search(bench, tape, found)
    return {"bad": found, "cause": cause, "tries": bench.tries, "steps": bench.steps}


def run_try(
    folder: str, job: str | None, bad: int | None, start: int, until: int, change: list[Any], kept: str | None = None
) -> dict[str, Any]:
    """One counterfactual, as a report names it: the held-out loss at its end, and whether that is collapsed. Raises InputError."""
    tape = Tape(Path(folder))
    found = bad_point(tape.evaluations, bad)
    bench = _bench(tape, job, found or Bad(until, float("inf")), 1, kept)
    if start not in bench.places:
        raise InputError(f"{folder}: no checkpoint of step {start}")
    bench.collapsed(start, until, Change.of(change))
    return {"value": bench.tries[0].value, "collapsed": bench.tries[0].collapsed}


def _bench(tape: Tape, job: str | None, bad: Bad, budget: int, kept: str | None) -> Bench:
    gaps = np.diff(sorted(tape.evaluations))
    level = Level(bad.level, bad.unsure, SETTLE * int(stats.median(gaps)) if len(gaps) else 0)
    if kept is not None:
        return ScriptBench(tape, kept, level, budget)
    target = Target(tape.job_now(job), tape.settings)
    if tape.ranks > 1:
        return RanksBench(tape, target, level, budget)
    return Bench(tape.checkpoints(), target, tape.keyed, level, budget)


def _search(bench: Bench, tape: Tape, bad: Bad) -> Cause:
    starts = [step for step in bench.places if step < bad.step and _healthy(tape, bad, step)]
    if not starts:
        raise InputError(f"{tape.folder}: no healthy checkpoint before step {bad.step}")
    last = starts[-1]
    tell(f"the held-out loss is bad from step {bad.step} on; does it come back from the checkpoint of step {last}?")
    if not bench.collapsed(last, bad.step, Change()):
        return Cause(
            "UNPROVEN",
            (last, bad.step),
            why="the collapse does not come back when the steps are done again; see trainproof replay",
        )
    start = bracket(bench, starts, bad.step)
    if start is None:
        return not_data(bench, tape, last, bad.step)
    tell(f"it lies after the checkpoint of step {start}, and in the data")
    return _data(bench, tape, start, starts, bad.step)


def _healthy(tape: Tape, bad: Bad, step: int) -> bool:
    """Whether the held-out loss at the checkpoint, or at the last evaluation before it, was not collapsed."""
    known = [value for at, value in sorted(tape.evaluations.items()) if at <= step]
    return not known or known[-1] <= bad.level


def bracket(bench: Bench, starts: Sequence[int], until: int) -> int | None:
    """The last checkpoint from which harmless data does not collapse: the trigger lies after it. None where there is none: it is not the
    data. What heals from a checkpoint heals from those before it, so a binary search finds it."""
    harmless = Change(only=True)
    if not bench.collapsed(starts[-1], until, harmless):
        return starts[-1]
    low, high = -1, len(starts) - 1
    while high - low > 1:
        middle = (low + high) // 2
        if bench.collapsed(starts[middle], until, harmless):
            high = middle
        else:
            low = middle
    return starts[low] if low >= 0 else None


def not_data(bench: Bench, tape: Tape, start: int, until: int) -> Cause:
    """LEARNING RATE where the same data does no harm with the rate held, or with a tenth of it where it did not rise; else STATE."""
    rates = {step: row["lr"] for step, row in tape.steps.items() if row.get("lr") is not None}
    held = rates.get(start, rates.get(min(tape.steps)))
    told = "held"
    if held is not None:
        rose = any(rate > held for step, rate in rates.items() if start < step <= until)
        rate, told = (held, "held where it was") if rose else (held / 10, "cut to a tenth")
        if not bench.collapsed(start, until, Change(rate=float(rate))):
            why = f"harmless data does it too, and with the learning rate {told} the recorded data does not"
            return Cause("LEARNING RATE", (start, until), why=why)
    why = (
        f"harmless data does it too, from every healthy checkpoint, and the recorded data with the learning rate {told}"
    )
    return Cause("STATE", (start, until), why=why)


def _data(bench: Bench, tape: Tape, start: int, starts: Sequence[int], until: int) -> Cause:
    """The shard, then the batch, then the sample, as far as each is proved."""
    known = tape.samples()
    cursors = _cursors(tape, start, until)
    shards = sorted({shard for cursor in cursors for _, shard in known.get(cursor, ())} - {""})
    loss = {cursor: _loss(tape, cursor) for cursor in cursors}
    shard, within = "", Change()
    if shards:
        named = _proved(bench, start, until, shards, lambda some: Change(shards=tuple(some)))
        if len(named) != 1:
            return Cause(
                "UNPROVEN", (start, until), why="no one shard is both necessary and sufficient for the collapse"
            )
        shard, within = named[0], Change(shards=tuple(named))
        cursors = [cursor for cursor in cursors if any(one == shard for _, one in known.get(cursor, ()))]
        tell(f"shard {shard} is necessary and sufficient")
    cursors.sort(key=lambda cursor: -loss[cursor])
    batches = _proved(bench, start, until, cursors, lambda some: within._replace(batches=tuple(sorted(some))))
    if not shard and not batches:
        return Cause(
            "UNPROVEN", (start, until), why="no group of batches is both necessary and sufficient for the collapse"
        )
    single: list[Any] = []
    if len(batches) == 1:
        tell(f"batch {batches[0]} is necessary and sufficient")
        candidates = [sample for sample, one in known.get(batches[0], ()) if not shard or one == shard]
        single = _proved(
            bench, start, until, candidates, lambda some: Change(batches=tuple(batches), samples=tuple(some))
        )
    culprit = Change(shards=within.shards, batches=tuple(sorted(batches)))
    # before the first evaluation the held-out loss is high whatever is trained on
    others = [step for step in starts if min(tape.evaluations) <= step < start and step in tape.steps]
    apart = list(dict.fromkeys((others[0], others[len(others) // 2]))) if others else []
    kind, why = kind_of(bench, tape, start, apart, until, culprit)
    proof = f"replaced by harmless data the collapse does not come, with only it left it comes; {why}"
    return Cause(
        kind,
        (start, until),
        shard,
        tuple(sorted(batches)) if len(batches) == 1 else (),
        tuple(single) if len(single) == 1 else (),
        proof,
    )


def _cursors(tape: Tape, start: int, until: int) -> list[int]:
    """The micro-batches of the steps after `start` until `until`."""
    first = int(tape.steps[start]["cursor"]) if start in tape.steps else 0
    return list(range(first, int(tape.steps[until]["cursor"])))


def _loss(tape: Tape, cursor: int) -> float:
    """The recorded loss of the step that a micro-batch was in: where it is high the culprit is looked for first."""
    row = next((row for row in tape.steps.values() if row["cursor"] > cursor), None)
    value = float("nan") if row is None or row["loss"] is None else float(row["loss"])
    return value if np.isfinite(value) else float("inf")


def _proved(
    bench: Bench, start: int, until: int, items: Sequence[T], change: Callable[[Sequence[T]], Change]
) -> list[T]:
    """The smallest group, found by halving, without which the run does not collapse, and with only which it does. Empty where the two do
    not both hold: then nothing is named."""
    group = list(items)
    while len(group) > 1:
        half = len(group) // 2
        halves = group[:half], group[half:]
        healing = next((some for some in halves if not bench.collapsed(start, until, change(some))), None)
        if healing is None:  # either half is enough: the cause is in both
            break
        group = list(healing)
    necessary = not bench.collapsed(start, until, change(group))
    sufficient = bench.collapsed(start, until, change(group)._replace(only=True))
    return group if necessary and sufficient else []


def kind_of(
    bench: Bench, tape: Tape, start: int, others: Sequence[int], until: int, culprit: Change
) -> tuple[str, str]:
    """DATA where the culprit collapses two of the other healthy checkpoints; DATA x STATE where one of them trains on it without a collapse;
    DATA, FROM THIS STATE where there are too few to say. Of several the first two of `others` are tried."""
    tried = others[:2]
    for other in tried:
        shift = int(tape.steps[start]["cursor"]) - int(tape.steps[other]["cursor"])
        if not bench.collapsed(other, other + until - start, culprit._replace(only=True, shift=shift)):
            return "DATA x STATE", f"on the same data it does not come from the checkpoint of step {other}"
    if len(tried) > 1:
        return "DATA", f"it does the same from the checkpoints of steps {' and '.join(map(str, tried))}"
    return "DATA, FROM THIS STATE", "too few other healthy checkpoints to say whether the state matters"
