"""The settings of every gallery run: one healthy set, and what each faulty run changes in it."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

SEEDS = (42, 43, 44)


class Knobs(NamedTuple):
    """What a fine-tune can get wrong. A faulty run changes one field of `HEALTHY` (`fp16_nan` changes three)."""

    learning_rate: float = 2e-3
    weights_dtype: str = "float32"  # of the frozen base; peft keeps the adapter in float32
    max_grad_norm: float = 1.0  # 0 switches clipping off
    train_windows: int = 2400  # size of the fine-tune set, in sequences
    shuffle_labels: bool = False  # permute the labels inside each sequence, in both splits
    masked_batch: int | None = None  # this batch (counted from 1) has every label set to -100


class Schedule(NamedTuple):
    """What all fine-tunes share, or what the base uses. Lengths are in optimiser steps."""

    max_steps: int
    warmup_steps: int
    logging_steps: int
    eval_steps: int
    batch_size: int
    threads: int  # the last digits of a sum depend on it


HEALTHY = Knobs()
HOT_RATE = HEALTHY.learning_rate * 100

RUNS: dict[str, Knobs] = {
    "healthy": HEALTHY,
    "lr_hot": HEALTHY._replace(learning_rate=HOT_RATE),
    "lr_zero": HEALTHY._replace(learning_rate=0.0),
    "fp16_nan": HEALTHY._replace(weights_dtype="float16", learning_rate=HOT_RATE, max_grad_norm=0.0),
    "nan": HEALTHY._replace(masked_batch=150),
    "bad_labels": HEALTHY._replace(shuffle_labels=True),
    "overfit": HEALTHY._replace(train_windows=16),
}


class Loop(NamedTuple):
    """A run of a plain loop: `module:function`, and the arguments in which it differs from its healthy twin."""

    made_by: str
    changed: Mapping[str, object] = MappingProxyType({})
    declared: Mapping[str, object] = MappingProxyType({})  # what its configuration says, beside the log


SIGMOID: dict[str, object] = {"preference_loss": "sigmoid"}
LOOPS: dict[str, Loop] = {
    "experts": Loop("loops:mixture"),
    "experts_collapsed": Loop("loops:mixture", {"balance": 0.0}),
    "adversaries": Loop("loops:adversaries"),
    "adversaries_lost": Loop("loops:adversaries", {"generator_rate": 0.0}),
    "losses_kept": Loop("loops:kept_losses"),
    "graphs_kept": Loop("loops:kept_losses", {"as_numbers": False}),
    "preferences": Loop("preferences:direct", declared=SIGMOID),
    "preferences_other_reference": Loop("preferences:direct", {"own_reference": False}, SIGMOID),
    "rewards": Loop("preferences:grouped"),
    "rewards_all_or_nothing": Loop("preferences:grouped", {"partial_credit": False}),
}

# 300 steps with a record every 5 give 60 training records, and 11 evaluations with the one at step 0. One thread each, because two runs
# side by side finish sooner on two cores than one after the other with two threads.
FINE_TUNE = Schedule(max_steps=300, warmup_steps=15, logging_steps=5, eval_steps=30, batch_size=8, threads=1)

BASE_LEARNING_RATE = 2e-3
BASE_SEED = 42
BASE = Schedule(max_steps=1500, warmup_steps=75, logging_steps=10, eval_steps=150, batch_size=16, threads=2)


def changed(knobs: Knobs) -> dict[str, dict[str, object]]:
    """The fields in which `knobs` differs from `HEALTHY`, with both values."""
    pairs = zip(Knobs._fields, HEALTHY, knobs, strict=True)
    return {name: {"healthy": good, "here": here} for name, good, here in pairs if good != here}
