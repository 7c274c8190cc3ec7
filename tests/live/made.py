"""Runs made from a seed, line by line as a training loop logs them: resumes of every kind, and what slows, feeds or splits a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from tests.live.feeding import Row
from tools import synthetic
from trainproof.facts import FactValue
from trainproof.frame import Floats

RECORDS = 240
CHECKPOINT, CRASH = 120, 150
FACTS: dict[str, FactValue] = {"total_steps": RECORDS}

Log = tuple[list[Row], Mapping[str, FactValue]]


def _rows(columns: Mapping[str, Floats], begin: int = 0, end: int = RECORDS) -> list[Row]:
    """The records begin..end (exclusive) at the steps 1, 2 ...; NaN in an evaluation is none."""
    found: list[Row] = []
    for i in range(begin, end):
        here = {name: float(column[i]) for name, column in columns.items()}
        found.append((i + 1, {name: x for name, x in here.items() if not name.startswith("eval/")}))
        held_out = {name: x for name, x in here.items() if name.startswith("eval/") and not np.isnan(x)}
        if held_out:
            found.append((i + 1, held_out))
    return found


def _run(seed: int, sigma: float = 0.05) -> dict[str, Floats]:
    return {**synthetic.healthy(RECORDS, sigma, seed), "epoch": np.arange(RECORDS) / 80}


def _resumed(
    seed: int, change: Callable[[dict[str, Floats], int], None], at: int = CHECKPOINT, crash: int = CRASH
) -> Log:
    """A run that crashed after `crash` records and went on from record `at`, with other noise and what `change` makes of it."""
    first, second = _run(seed), _run(seed + 1000)
    change(second, at)
    return [*_rows(first, 0, crash), *_rows(second, at)], FACTS


def _lost_scheduler(run: dict[str, Floats], at: int) -> None:
    run["lr"][at:] = run["lr"][: RECORDS - at]


def _lost_weights(run: dict[str, Floats], at: int) -> None:
    run["loss"][at:] *= 1.5


def _lost_sampler(run: dict[str, Floats], at: int) -> None:
    run["epoch"][at:] -= run["epoch"][at]


def _nothing(run: dict[str, Floats], at: int) -> None:
    """A faithful resume."""


def faithful(seed: int) -> Log:
    """The same seed again: every record that is logged twice is the same."""
    run = _run(seed)
    return [*_rows(run, 0, CRASH), *_rows(run, CHECKPOINT)], FACTS


def restart_loop(seed: int) -> Log:
    """Six attempts that end at one and the same record."""
    attempts = [_rows(_run(seed + 1000 * k), CHECKPOINT, CRASH) for k in range(6)]
    return [*_rows(_run(seed), 0, CHECKPOINT), *[row for attempt in attempts for row in attempt]], FACTS


def escaped_loop(seed: int) -> Log:
    """Four attempts, the last of which goes on to the end."""
    attempts = [_rows(_run(seed + 1000 * k), CHECKPOINT, CRASH) for k in range(3)]
    return [
        *_rows(_run(seed), 0, CHECKPOINT),
        *[row for attempt in attempts for row in attempt],
        *_rows(_run(seed + 9), CHECKPOINT),
    ], FACTS


def stray_line(seed: int) -> Log:
    """A healthy run with one line out of place."""
    rows = _rows(_run(seed))
    rows.insert(130, rows.pop(100))
    return rows, FACTS


RESUMES: dict[str, Callable[[int], Log]] = {
    "resumed": lambda seed: _resumed(seed, _nothing),
    "resumed, its scheduler lost": lambda seed: _resumed(seed, _lost_scheduler),
    "resumed, its weights lost": lambda seed: _resumed(seed, _lost_weights),
    "resumed, its data begun anew": lambda seed: _resumed(seed, _lost_sampler),
    "resumed at the next step": lambda seed: _resumed(seed, _nothing, CRASH),
    "resumed at the next step, its scheduler lost": lambda seed: _resumed(seed, _lost_scheduler, CRASH),
    "resumed at the next step, its data begun anew": lambda seed: _resumed(seed, _lost_sampler, CRASH),
    "resumed two records back, its weights lost": lambda seed: _resumed(seed, _lost_weights, CRASH - 2),
    "resumed behind a gap": lambda seed: _resumed(seed, _nothing, CRASH + 12),
    "faithful": faithful,
    "restart loop": restart_loop,
    "restart loop, escaped": escaped_loop,
    "stray line": stray_line,
}

Change = Callable[[np.random.Generator, Floats], Mapping[str, Floats]]


def _late(x: float, i: Floats) -> Floats:
    """From record 130 on, `x`; before, 1."""
    return np.where(i >= 130, x, 1.0)


def _loads(random: np.random.Generator, i: Floats, experts: int = 8) -> Mapping[str, Floats]:
    """Shares of experts, of which the first takes all between records 100 and 160."""
    logits = random.normal(0, 0.2, (experts, len(i)))
    logits[0] += 8 * np.clip((i - 100) / 60, 0, 1)
    loads = np.exp(logits) / np.exp(logits).sum(axis=0)
    return {f"expert_load/{k}": row for k, row in enumerate(loads)}


def _parts(random: np.random.Generator, i: Floats) -> Mapping[str, Floats]:
    main = random.lognormal(0, 0.1, len(i))
    return {"loss/ce": main, "loss/kl": np.exp(np.clip((i - 60) / 10, -1, 8)) * random.lognormal(0, 0.1, len(i))}


CHANGES: dict[str, Change] = {
    "steps at 3 x their time": lambda r, i: {"step_time": _late(3.0, i) * r.lognormal(0, 0.1, len(i))},
    "steps at 30 x their time": lambda r, i: {
        "step_time": np.where(i > 170, 30, _late(3.0, i)) * r.lognormal(0, 0.1, len(i))
    },
    "a third of the throughput": lambda r, i: {"throughput": 1e4 / _late(3.0, i) * r.lognormal(0, 0.1, len(i))},
    "a clock of slow steps": lambda r, i: {"time": np.cumsum(_late(3.0, i) * r.lognormal(0, 0.1, len(i)))},
    "steps that creep": lambda r, i: {"step_time": (1 + i / 60) * r.lognormal(0, 0.05, len(i))},
    "stalls": lambda r, i: {"step_time": np.where(r.random(len(i)) < 0.03, 20, 1) * r.lognormal(0, 0.05, len(i))},
    "waits for data": lambda r, i: {
        "step_time": 2 + 0 * i,
        "data_time": np.clip(i / 160, 0.2, 1.4) * r.lognormal(0, 0.1, len(i)),
    },
    "memory that grows": lambda r, i: {"memory": 10 + i / 20 + r.normal(0, 0.1, len(i))},
    "memory at its limit": lambda r, i: {"memory": 17 + 2 * np.clip((i - 90) / 60, 0, 1.5) + r.normal(0, 0.1, len(i))},
    "a slow rank": lambda r, i: {
        f"step_time/rank{k}": (_late(1.4, i) if k == 2 else 1) * r.lognormal(0, 0.1, len(i)) for k in range(4)
    },
    "experts that collapse": _loads,
    "a part that takes over": _parts,
    "an auxiliary loss that is still": lambda r, i: {"loss/aux": np.where(i < 90, r.random(len(i)), 1.000123)},
    "logits that grow": lambda r, i: {"max_attn_logit": _late(8.0, i) * r.lognormal(0, 0.1, len(i))},
    "attention on one token": lambda r, i: {"attn_entropy": np.where(i > 130, 0.05, 1) * r.lognormal(0, 0.1, len(i))},
    "an accuracy off a cliff": lambda r, i: {
        "time": np.cumsum(r.lognormal(0, 0.1, len(i))),
        "accuracy": np.where((i > 130) & (i < 170), 0.05, 0.7) * r.lognormal(0, 0.02, len(i)),
    },
    "sources that shift": lambda r, i: {"mixture/web": np.clip(0.7 - i / 400, 0, 1) + r.normal(0, 0.01, len(i))},
    "tokens that drift": lambda r, i: {
        "tokens": np.cumsum(np.round(1000 * (1 + i / 150) * r.lognormal(0, 0.1, len(i))))
    },
    "a queue that runs dry": lambda r, i: {"queue_size": np.clip(100 - i / 3, 0, 100) + r.normal(0, 2, len(i))},
    "a loss in cycles": lambda r, i: {"loss": (1.5 + 0.4 * np.sin(2 * np.pi * i / 20)) * r.lognormal(0, 0.02, len(i))},
    "a loss of two levels": lambda r, i: {"loss": np.where(i // 11 % 2, 1.0, 2.0) * r.lognormal(0, 0.02, len(i))},
    "losses that come back": lambda r, i: {"loss": r.lognormal(0, 0.3, len(i))[i.astype(int) % 70]},
    "a loss in parts that drifts": lambda r, i: {
        "loss/a": (1 + i / 200) * r.lognormal(0, 0.05, len(i)),
        "loss/b": (2 + i / 100) * r.lognormal(0, 0.05, len(i)),
    },
    "an epoch of half the length": lambda _, i: {"epoch": i / 40},
    "a warm-up that does not end": lambda _, i: {"lr": 1e-5 * (i + 1)},
    "a rate that comes back": lambda _, i: {"lr": 1e-3 * np.where(i < 150, 1 - i / 160, 0.9)},
}
BESIDE: dict[str, FactValue] = {"memory_limit": 20.0, "epochs": 3.0, "warmup_steps": 20.0}


def _changed(change: Change) -> Callable[[int], Log]:
    def make(seed: int) -> Log:
        run, random = _run(seed), np.random.default_rng(seed)
        changed = change(random, np.arange(RECORDS, dtype=np.float64))
        if any(name.startswith("loss/") for name in changed) and "loss/aux" not in changed:
            del run["loss"]
        return _rows({**run, **changed}), {**FACTS, **BESIDE}

    return make


def _resumed_as_it_was(change: Change, at: int) -> Callable[[int], Log]:
    """A run that crashed after CRASH records and went on from record `at` with what `change` makes of it, which is seen over the whole."""

    def make(seed: int) -> Log:
        first, second = (
            {**_run(s), **change(np.random.default_rng(s), np.arange(RECORDS, dtype=np.float64))}
            for s in (seed, seed + 1000)
        )
        return [*_rows(first, 0, CRASH), *_rows(second, at)], FACTS

    return make


def _evaluated(x: Floats, i: Floats) -> Floats:
    """Every fifth value."""
    return np.where(i % 5 == 4, x, np.nan)


ACROSS: dict[str, Change] = {
    "its queue runs dry from before": lambda r, i: {
        "queue_size": 100 - 0.6 * np.clip(i - 100, 0, 140) + r.normal(0, 2, len(i))
    },
    "its queue runs dry": lambda r, i: {"queue_size": 100 - 1.1 * np.clip(i - 130, 0, 80) + r.normal(0, 2, len(i))},
    "its accuracy off a cliff": lambda r, i: {
        "time": np.cumsum(r.lognormal(0, 0.1, len(i))),
        "accuracy": np.where(i > 155, 0.05, 0.7) * r.lognormal(0, 0.02, len(i)),
    },
    "its metric against its loss": lambda r, i: {
        "eval/loss": _evaluated(2 - np.clip(i - 150, 0, 90) / 100 + r.normal(0, 0.01, len(i)), i),
        "eval/accuracy": _evaluated(0.8 - np.clip(i - 150, 0, 90) / 200 + r.normal(0, 0.003, len(i)), i),
    },
    "nothing learned": lambda r, i: {"loss": 1.5 * r.lognormal(0, 0.02, len(i))},
}

KINDS: dict[str, Callable[[int], Log]] = {
    **RESUMES,
    **{name: _changed(change) for name, change in CHANGES.items()},
    **{f"resumed, {name}": _resumed_as_it_was(change, CHECKPOINT) for name, change in ACROSS.items()},
    **{f"resumed at the next step, {name}": _resumed_as_it_was(change, CRASH) for name, change in ACROSS.items()},
}
