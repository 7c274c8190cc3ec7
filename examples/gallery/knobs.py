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
PLANNED: dict[str, object] = {
    "max_steps": 240,
    "warmup_steps": 24,
    "lr_scheduler_type": "linear",
    "learning_rate": 2e-3,
    "vocab_size": 256,
}
DESCENT: dict[str, object] = {"max_steps": 400, "warmup_steps": 0}
LOOPS: dict[str, Loop] = {
    "experts": Loop("loops:mixture"),
    "experts_collapsed": Loop("loops:mixture", {"balance": 0.0}),
    "adversaries": Loop("loops:adversaries"),
    "adversaries_lost": Loop("loops:adversaries", {"generator_rate": 0.0}),
    "adversaries_minimax": Loop("loops:adversaries", {"minimax": True}),
    "adversaries_minimax_lost": Loop("loops:adversaries", {"minimax": True, "generator_rate": 0.0}),
    "critics": Loop("density:critics"),
    "critics_clipped": Loop("density:critics", {"clip": 1e-3}),
    "density": Loop("density:narrow"),
    "halves": Loop("density:halves"),
    "halves_without_epsilon": Loop("density:halves", {"epsilon": 0.0}),
    "losses_kept": Loop("loops:kept_losses"),
    "graphs_kept": Loop("loops:kept_losses", {"as_numbers": False}),
    "timed": Loop("machine:timed"),
    "data_searched": Loop("machine:timed", {"indexed": False}),
    "hooks_kept": Loop("machine:timed", {"remove_hooks": False}),
    "evaluated_each_step": Loop("machine:timed", {"evaluated_from": 120}),
    "evaluated_at_length": Loop("machine:timed", {"evaluated_from": 120, "looks": 128}),
    "course": Loop("course:course", declared=PLANNED),
    "warmup_in_epochs": Loop("course:course", {"scheduler_every": 60}, PLANNED),
    "scheduler_four_times": Loop("course:course", {"scheduler_times": 4}, PLANNED),
    "poisoned_shard": Loop("course:course", {"poisoned": (120, 130)}, PLANNED),
    "one_hot_step": Loop("course:course", {"hot_step": 35}, PLANNED),
    "in_order": Loop("course:course", {"shuffle": False}, PLANNED),
    "another_optimizer": Loop("course:course", {"shuffle": False, "optimizer_of": "copy"}, PLANNED),
    "resumed": Loop("course:course", {"crashes": (150,)}, PLANNED),
    "resumed_without_weights": Loop("course:course", {"crashes": (150,), "lost": "model"}, PLANNED),
    "resumed_without_optimizer": Loop("course:course", {"crashes": (150,), "lost": "optimizer"}, PLANNED),
    "resumed_without_scheduler": Loop("course:course", {"crashes": (150,), "lost": "scheduler"}, PLANNED),
    "resumed_without_sampler": Loop("course:course", {"crashes": (150,), "lost": "data"}, PLANNED),
    "restart_loop": Loop("course:course", {"crashes": (150,) * 6}, PLANNED),
    "lengths_mixed": Loop("sources:bucketed"),
    "lengths_in_stretches": Loop("sources:bucketed", {"shuffled": False}),
    "squares": Loop("curves:squares", declared=DESCENT),
    "squares_settled": Loop("curves:squares", {"rate": 0.3}, DESCENT),
    "squares_warm": Loop("curves:squares", {"rate": 0.46}, DESCENT),
    "squares_hot": Loop("curves:squares", {"rate": 1.0}, DESCENT),
    "squares_left_blank": Loop("curves:squares", {"rate": 1.0, "keep_nan": False}, DESCENT),
    "seen_once": Loop("curves:remembered"),
    "seen_again": Loop("curves:remembered", {"texts": 6400}),
    "next_byte": Loop("curves:next_byte"),
    "few_contexts": Loop("curves:next_byte", {"contexts": 512}),
    "units_killed": Loop("curves:next_byte", {"hot_step": 300}),
    "preferences": Loop("preferences:direct", declared=SIGMOID),
    "preferences_other_reference": Loop("preferences:direct", {"own_reference": False}, SIGMOID),
    "rewards": Loop("preferences:grouped"),
    "rewards_all_or_nothing": Loop("preferences:grouped", {"partial_credit": False}),
    "rewards_hot": Loop("preferences:grouped", {"rate": 2.0}),
}
#: what the trainers of transformers and trl train and log by themselves
STOCK_PLAN = PLANNED | {"max_steps": 160, "warmup_steps": 16}
DECAY: dict[str, object] = {"num_decay_steps": 32, "min_lr_ratio": 0.0}
STOCK: dict[str, Loop] = {
    "stock": Loop("stock:stock", declared=STOCK_PLAN),
    "batch_of_one": Loop("stock:stock", {"batch": 1}, STOCK_PLAN),
    "warmup_stable_decay": Loop(
        "stock:stock",
        {"schedule": "warmup_stable_decay", "schedule_options": DECAY},
        STOCK_PLAN | {"lr_scheduler_type": "warmup_stable_decay"},
    ),
    "curriculum": Loop("stock:stock", {"easy_first": True}, STOCK_PLAN),
    "epochs": Loop("stock:stock", {"windows": 480}, STOCK_PLAN),
    "eval_leaked": Loop("stock:stock", {"windows": 480, "leaked": True}, STOCK_PLAN),
    "warmup_ignored": Loop("stock:stock", {"schedule": "constant"}, STOCK_PLAN | {"lr_scheduler_type": "constant"}),
    "accumulation": Loop(
        "stock:stock", {"accumulation": 4, "batch": 2}, STOCK_PLAN | {"gradient_accumulation_steps": 4}
    ),
    "accumulation_summed": Loop(
        "stock:stock",
        {"accumulation": 4, "batch": 2, "own_loss": True},
        STOCK_PLAN | {"gradient_accumulation_steps": 4},
    ),
    "all_masked": Loop("stock:stock", {"masked": True}, STOCK_PLAN),
    "dpo": Loop("policies:dpo", declared=SIGMOID),
    "dpo_hot": Loop("policies:dpo", {"rate": 5e-3}, SIGMOID),
    "grpo": Loop("policies:grpo"),
    "grpo_without_kl": Loop("policies:grpo", {"beta": 0.0}),
    "grpo_loss_of_zero": Loop("policies:grpo", {"beta": 0.0, "loss": "grpo"}),
    "grpo_hot": Loop("policies:grpo", {"rate": 2e-2}),
    "grpo_other_end": Loop("policies:grpo", {"end": 0}),
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
