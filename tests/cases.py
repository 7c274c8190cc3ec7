"""Logs built from the numbers of public cases: the records that were published, extended as the kind of the case says.

A case has `records` (a few published lines), a `kind`, and the verdict that a careful reader expects. RECIPES builds the log of each kind;
UNTOLD says of the others why their numbers do not make a log.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tests.rules.helpers import make_frame
from trainproof.frame import Floats, Frame
from trainproof.segments import split_runs

Records = Sequence[Mapping[str, Any]]
Row = dict[str, float]

#: a case's name of a metric -> ours
NAMES = {
    "rewards_chosen": "rewards/chosen",
    "rewards_rejected": "rewards/rejected",
    "rewards_accuracies": "rewards/accuracies",
    "rewards_margins": "rewards/margins",
    "eval_loss": "eval/loss",
    "box_loss": "loss/box",
    "cls_loss": "loss/cls",
    "dfl_loss": "loss/dfl",
    "loss_cls": "loss/cls",
    "loss_box_reg": "loss/box_reg",
    "loss_mask": "loss/mask",
    "d_loss": "loss/discriminator",
    "g_loss": "loss/generator",
    "clipped_ratio": "truncated_ratio",
    "mean_length": "completion_length",
    "mcc": "eval/mcc",
    "mem": "memory",
    "time": "step_time",
    "data": "data_time",
}
#: what is no metric of a record
OTHERS = {"step", "i", "event", "vocab", "run", "host", "exp", "peak"}
STEADY = {"lr", "epoch", "loss_scale"}


def rows_of(records: Records) -> list[Row]:
    """The records' metrics under our names; "nan" is NaN."""
    return [{NAMES.get(k, k): float(v) for k, v in record.items() if k not in OTHERS} for record in records]


def steps_of(records: Records) -> list[int]:
    """The records' steps, or their ordinals."""
    return [int(record.get("step", record.get("i", at))) for at, record in enumerate(records, 1)]


def built(
    records: Records,
    *,
    before: int = 0,
    between: int = 0,
    after: int = 0,
    noise: float = 0.02,
    level: float = 1.0,
    facts: Mapping[str, Any] | None = None,
    objective: str = "unknown",
    held: Sequence[str] = (),
) -> Frame:
    """The records with `before` healthy ones, `between` interpolated ones in each gap, and `after` more like the last.

    `level`: the loss of the ones after over that of the last record. `held`: metrics that keep a value until the next published one.
    Evaluations are not extended.
    """
    rng = np.random.default_rng(0)
    rows, steps = rows_of(records), steps_of(records)
    distance = max(1, (steps[-1] - steps[0]) // max(len(steps) - 1, 1) // (between + 1))
    names = list(dict.fromkeys(name for row in rows for name in row))
    series = {}
    for name in names:
        at = [i for i, row in enumerate(rows) if name in row]
        value = np.array([rows[i][name] for i in at])
        step = np.array([steps[i] for i in at])
        if not name.startswith("eval/"):
            step, value = _extended(name, step, value, (before, between, after), distance, name in held)
            value[-after or len(value) :] *= level if name == "loss" else 1.0
            wobble = 0.0 if name in STEADY else noise
            published = np.isin(step, steps)
            value = np.where(published, value, value * rng.lognormal(0, wobble, len(value)))
        series[name] = (step, value)
    return make_frame(series, facts=facts, objective=objective)


def _extended(
    name: str, step: Any, value: Floats, more: tuple[int, int, int], distance: int, held: bool
) -> tuple[Any, Floats]:
    before, between, after = more
    grid = step.astype(float)
    if between and len(step) > 1:
        grid = np.unique(np.concatenate([np.linspace(a, b, between + 2) for a, b in zip(step, step[1:], strict=False)]))
    since = np.searchsorted(step, grid, side="right") - 1
    filled = value[since] if held or not between else np.interp(grid, step, value)
    first = filled[0] if math.isfinite(filled[0]) else 1.0
    fall = 1 + 0.3 * np.exp(-np.arange(before) / (before / 5 + 1)) if name.startswith("loss") else np.ones(before)
    steps = np.concatenate(
        [grid[0] - distance * np.arange(before, 0, -1), grid, grid[-1] + distance * np.arange(1, after + 1)]
    )
    whole = np.round(steps - min(0, steps[0])).astype(np.int64)
    return whole, np.concatenate([first * fall, filled, np.full(after, filled[-1])])


def recipe(**how: Any) -> Callable[[Records], Frame]:
    return lambda records: built(records, **how)


def lognormal(level: Any, noise: float, n: int) -> Floats:
    values: Floats = np.asarray(level, float) * np.random.default_rng(0).lognormal(0, noise, n)
    return values


def healthy(n: int, level: float = 2.0, noise: float = 0.05) -> Floats:
    return lognormal(level * (1 + 0.5 * np.exp(-np.arange(n) / (n / 5))), noise, n)


def startup_overflow(records: Records) -> Frame:
    skipped = np.zeros(600)
    skipped[: int(records[0]["skipped"])] = 1
    skipped[[200, 400][: int(records[1]["skipped"] - records[0]["skipped"])]] = 1
    return make_frame(loss=healthy(600), skipped_steps=skipped)


def occasional_nan(records: Records) -> Frame:
    norm = lognormal(records[0]["grad_norm"], 0.3, 200)
    norm[[60, 110, 160]] = np.nan
    return make_frame(loss=healthy(200, records[0]["loss"]), grad_norm=norm)


def startup_norm(records: Records) -> Frame:
    loss = np.append([record["loss"] for record in records], healthy(80, records[1]["loss"] / 2))
    norm = np.append([np.nan, records[1]["grad_norm"]], lognormal(records[1]["grad_norm"], 0.2, 80))
    return make_frame(loss=loss, grad_norm=norm, lr=np.full(82, records[0]["lr"]))


def twice_around(records: Records) -> Frame:
    """The published cycles and the same again."""
    again = [{"loss": record["loss"]} for record in records[2:]]
    return built([{"loss": record["loss"]} for record in records] + again, noise=0.0)


def quantised(records: Records) -> Frame:
    """Every published value is used; the level falls by half over the run."""
    levels = np.array([record["loss"] for record in records])
    fall = np.repeat(np.linspace(0.75, 0, 10), 20)
    return make_frame(loss=np.random.default_rng(0).choice(levels, 200) + np.round(fall * 128) / 128)


def zero_reward(records: Records) -> Frame:
    n = int(records[0]["step"])
    return make_frame(loss=np.zeros(n), reward=np.zeros(n), objective="rl")


def wild_game(records: Records) -> Frame:
    rng = np.random.default_rng(0)
    d = np.append(rng.uniform(0.2, 1.2, 40), np.full(80, float(records[0]["d_loss"])))
    named = {"loss/discriminator": d, "loss/generator": rng.uniform(3, float(records[0]["g_loss"]), 120)}
    return make_frame(named, objective="adversarial")


def epoch_sums(records: Records) -> Frame:
    first, last = (float(record["epoch_sum"]) for record in records)
    return make_frame(loss=lognormal(np.linspace(first, last, 60), 3e-3, 60), epoch=np.arange(1, 61))


def timed(records: Records, between: int = 60) -> Frame:
    times = rows_of(records)
    level = np.interp(
        np.linspace(0, 1, between * len(times)), np.linspace(0, 1, len(times)), [row["step_time"] for row in times]
    )
    return make_frame(loss=healthy(len(level)), step_time=lognormal(level, 0.05, len(level)))


def epoch_times(records: Records) -> Frame:
    level = np.repeat([float(record["time"]) for record in records], 8)
    return make_frame(
        loss=healthy(len(level)), step_time=lognormal(level, 0.02, len(level)), epoch=1e-6 + np.arange(len(level)) / 8
    )


def collapse_of_speed(records: Records) -> Frame:
    fast, slow = (float(record["time"]) for record in records)
    level = np.append(np.full(150, fast), np.full(100, slow))
    return make_frame(loss=healthy(250), step_time=lognormal(level, 0.1, 250))


def sorted_epochs(records: Records) -> Frame:
    """Twelve epochs of 17 records whose time and loss rise as published."""
    at = np.arange(1, 18)
    i = [record["i"] for record in records]
    time, loss = (np.tile(np.interp(at, i, [record[key] for record in records]), 12) for key in ("time", "loss"))
    falling = np.repeat(np.linspace(1.5, 1, 12), 17)
    frame = {"loss": lognormal(loss * falling, 0.05, 204), "step_time": lognormal(time, 0.05, 204)}
    return make_frame({**frame, "epoch": 1e-6 + np.arange(204) / 17})


def leak(records: Records) -> Frame:
    memory = np.array([record["mem"] for record in records])
    slope = float(np.median(np.diff(memory)))
    facts = {"memory_limit": 24.0, "total_steps": 5000}
    return make_frame(loss=healthy(100), memory=2.0 + memory[0] + slope * np.arange(100), facts=facts)


def slow_leak(records: Records) -> Frame:
    memory = 8000 + records[0]["per_epoch_mb"] * np.arange(60)
    return make_frame(loss=healthy(60), memory=lognormal(memory, 0.005, 60), epoch=np.arange(60))


def zero_rate(records: Records) -> Frame:
    end, total = (int(record["step"]) for record in records)
    step = np.arange(0, total, 25)
    rate = 1e-4 * np.clip(1 - step / end, 0, 1)
    return make_frame(loss=healthy(len(step)), lr=rate, steps=step.tolist(), facts={"total_steps": total})


def warmup_in_epochs(records: Records) -> Frame:
    """The intended warm-up in epochs of 1,000 steps, over 60 epochs."""
    warmup, step = int(records[0]["warmup_steps_intended"]), np.arange(0, 60_000, 100)
    facts = {"warmup_steps": warmup, "learning_rate": 1e-4, "total_steps": 60_000}
    return make_frame(loss=healthy(600), lr=1e-4 * (step // 1000 + 1) / warmup, steps=step.tolist(), facts=facts)


def single_outliers(records: Records) -> Frame:
    level = float(records[0]["rolling_median"])
    loss = healthy(1000, level / 1.002)
    loss[[300, 600, 601, 850]] = [float(record["loss"]) for record in (*records, *records)]
    return make_frame(loss=loss)


def evals(records: Records, count: int, best: int) -> Frame:
    """`count` evaluations that fall to the published best and rise to the published last; the training loss falls on."""
    low, last = float(records[0]["eval_loss"]), float(records[1]["eval_loss"])
    value = np.append(np.linspace(2 * low, low, best), np.linspace(low, last, count - best + 1)[1:])
    step = np.arange(1, count + 1) * 100
    end = float(records[1]["loss"])
    loss = lognormal(end + low * np.exp(-np.arange(count * 10) / (count * 2)), 0.1, count * 10)
    return make_frame(
        {"loss": (np.arange(1, count * 10 + 1) * 10, loss), "eval/loss": (step, lognormal(value, 0.002, count))}
    )


def staircase(records: Records) -> Frame:
    level, loss = 1.0, []
    for epoch in range(3):
        within = float(records[min(epoch, 1)]["within"])
        loss.append(level * np.linspace(1, 1 - within, 100))
        level *= (1 - within) * (1 - float(records[min(epoch, 1)]["drop"]))
    return make_frame(loss=lognormal(np.concatenate(loss), 0.05, 300), epoch=1e-6 + np.arange(300) / 100)


def scale_floor(records: Records) -> Frame:
    """The scale halves every 20 updates down to the published minimum; each time a step is skipped."""
    n = int(records[1]["step"])
    lowest = float(records[2]["scale_to"])
    scale = np.maximum(2.0 ** (7 - np.arange(n) // 20), lowest)
    skipped = (np.arange(n) % 20 == 0).astype(float)
    skipped[-60:] = np.tile([1.0, 0.0], 30)
    norm = np.append(lognormal(records[0]["grad_norm"], 0.2, n - 20), np.full(20, records[1]["grad_norm"]))
    return make_frame(
        loss=healthy(n, records[1]["loss"] / 1.02), grad_norm=norm, loss_scale=scale, skipped_steps=skipped
    )


def late_eval(records: Records) -> Frame:
    row = records[0]
    epochs = int(row["epoch"])
    value = np.append(
        np.linspace(9, row["best_eval"], epochs // 2),
        np.linspace(row["best_eval"], row["eval_nll"], epochs - epochs // 2),
    )
    step = np.linspace(row["step"] / epochs, row["step"], epochs).astype(int)
    return make_frame({"eval/loss": (step, lognormal(value, 0.005, epochs))})


def dropped_steps(records: Records) -> Frame:
    first, last = (int(record["step"]) for record in records)
    step = np.append(np.arange(first - 10_000, first + 1, 100), np.arange(last, last + 5000, 100))
    return make_frame(loss=healthy(len(step)), steps=step.tolist())


def step_back(records: Records) -> Frame:
    last, back = (int(record["step"]) for record in records)
    step = [*range(1, last + 1), *range(back, 400)]
    [frame] = split_runs(make_frame(loss=healthy(len(step)), steps=step))
    return frame


def main_run(records: Records) -> Frame:
    mine = [{k: v for k, v in record.items() if k != "run"} for record in records if record["run"] == "main"]
    return built(mine, between=30, facts={"vocab_size": 50257}, objective="lm")


def with_vocabulary(records: Records) -> Frame:
    """The first of the two runs: its loss falls slowly from where it began."""
    start = [{**{k: v for k, v in records[0].items() if k != "vocab"}, "step": step} for step in (2, 4)]
    return built(start, after=10, level=0.9, facts={"vocab_size": records[0]["vocab"]}, objective="lm")


def bad_tokens(records: Records) -> Frame:
    return built(records, between=100, facts={"vocab_size": 150_000}, objective="lm")


def zeros_at_the_end(records: Records) -> Frame:
    n = 200
    loss = np.append(healthy(n - 20), np.zeros(20))
    step = np.arange(20, n + 1, 20)
    held_out = np.append(np.linspace(2.5, 2.0, len(step) - 1), 0.0)
    return make_frame(
        {
            "loss": loss,
            "eval/loss": (step, held_out),
            "eval/mcc": (step, np.append(np.linspace(0.1, 0.4, len(step) - 1), 0.0)),
        }
    )


def two_parts(records: Records) -> Frame:
    return built([{**record, "step": 1} for record in records], after=20)


def nan_in_the_end(records: Records) -> Frame:
    at = int(records[-1]["step"])
    step = np.arange(at - 4000, at + 500, 50)
    return make_frame(loss=np.where(step < at, healthy(len(step)), np.nan), steps=step.tolist())


def nan_parts(records: Records) -> Frame:
    at = int(records[0]["step"])
    parts = rows_of(records)[0]
    step = np.arange(1, at + 20)
    return make_frame({name: np.where(step < at, healthy(len(step), 0.5), value) for name, value in parts.items()})


def saturated_pairs(records: Records) -> Frame:
    """Ten records on the way to the published ones, within the same half epoch."""
    way = [{**records[0], "loss": loss, "rewards_margins": 5.0, "epoch": 0.2} for loss in np.linspace(0.69, 0.01, 10)]
    return built([*way, *records, *records], noise=0.0, objective="preference")


def data_share(records: Records) -> Frame:
    return make_frame(loss=healthy(100), step_time=np.ones(100), data_time=np.full(100, records[0]["data_share"]))


def kl_spikes(records: Records) -> Frame:
    return built(records, between=40, noise=0.1, objective="rl")


RECIPES: dict[str, Callable[[Records], Frame]] = {
    "grad_norm-nan-first-record": startup_norm,
    "nan-loss-intermittent": recipe(),
    "loss0-gradnan-step2": recipe(after=8),
    "grad_norm-nan-occasional": occasional_nan,
    "lr-zero-then-constant": recipe(),
    "lr-constant-though-cosine": recipe(after=400, facts={"schedule": "cosine", "total_steps": 1000}),
    "fp16-startup-overflow": startup_overflow,
    "dpo-chosen-negative": recipe(after=20, objective="preference"),
    "dpo-loss-zero-saturated": saturated_pairs,
    "grpo-loss-zero-healthy": recipe(after=60, noise=0.1, objective="rl"),
    "ppo-negative-kl": recipe(after=40, objective="rl"),
    "ppo-ratio-and-negative-kl": recipe(after=40, objective="rl"),
    "rl-reward-zero-flat": zero_reward,
    "nan-loss-to-end": recipe(after=40),
    "periodic-loss-length-buckets": twice_around,
    "lr-zero-mid-run": zero_rate,
    "divergence-after-warmup": recipe(before=100, after=30),
    "spike-recovering": recipe(before=100, after=60, level=0.41),
    "quantised-loss": quantised,
    "nan-after-data-change": nan_in_the_end,
    "fp16-scale-decay-slow": recipe(between=30, held=("loss_scale",)),
    "divergence-then-scale-minimum": late_eval,
    "grad-explosion-then-scale-minimum": scale_floor,
    "plateau-high-component": recipe(between=5, noise=0.01),
    "nan-loss-lr-too-high": nan_parts,
    "nan-loss-lr-not-scaled": nan_parts,
    "loss-exactly-zero": two_parts,
    "gan-d-zero-g-wild": wild_game,
    "loss-and-metric-exact-zero": zeros_at_the_end,
    "plateau-from-start": epoch_sums,
    "diffusion-loss-fast-low-healthy": recipe(between=30, objective="regression", noise=0.1),
    "step-time-creep": lambda records: epoch_times(records) if len(records) > 10 else timed(records),
    "step-time-collapse": collapse_of_speed,
    "step-time-ramp-within-epoch-healthy": sorted_epochs,
    "gpu-memory-leak": leak,
    "memory-leak-slow": slow_leak,
    "loss0-gradnan": recipe(),
    "loss0-gradnan-interleaved": recipe(),
    "gradnan-loss-huge": recipe(),
    "gradnan-sustained-loss-plausible": recipe(),
    "train-eval-scale-mismatch": recipe(between=9),
    "never-learned-flat": recipe(between=4),
    "eval-rise-overfit": lambda records: evals(records, 11, 4),
    "eval-rise-mild": lambda records: evals(records, 15, 12),
    "staircase-epoch": staircase,
    "single-batch-outliers-healthy": single_outliers,
    "early-divergence": recipe(after=46),
    "init-loss-above-lnV": lambda records: with_vocabulary(records) if "vocab" in records[0] else bad_tokens(records),
    "grad-accum-scaling-init": main_run,
    "warmup-never-ends": warmup_in_epochs,
    "data-bound": data_share,
    "grpo-truncation-zero-reward": recipe(after=40, noise=0.0, objective="rl"),
    "grpo-truncation": recipe(after=40, objective="rl"),
    "grpo-kl-spike-then-drop": kl_spikes,
    "log-dropped-steps": dropped_steps,
    "log-step-back": step_back,
}

#: why the numbers of a case make no log that one run can be judged by
UNTOLD = {
    "grad-accum-scaling": "needs the run it is compared with",
    "final-loss-off-reference": "needs the run it is compared with",
    "moe-aux-off": "needs the run it is compared with",
    "loss-spike-after-resume": "one record, none before the resume",
    "loss-worse-after-restore": "three records of different metrics",
    "loss-higher-after-resume": "no record before the resume",
    "grpo-kl-growth": "no values",
    "lr-discontinuity-on-resume": "the size of the jump is not known",
    "lr-tweaks-delay-divergence": "no losses",
    "plateau": "no values",
    "loss-scale-collapse-precedes-divergence": "no values",
    "divergence-late": "no values",
    "grad-spike-loss-shift": "no values",
    "spike-not-recovering": "no values",
    "eval-nan-train-finite": "the evaluation losses that were NaN are not among the records",
    "tts-alignment-collapse": "no alignment was logged",
    "tts-no-alignment-loss-low": "no alignment was logged",
    "grpo-grad-explosion-reward-drop": "no values",
    "grpo-collapse": "no values",
    "rl-entropy-zero-reward-zero": "no values",
    "label-leak-or-data-loss-zero": "one record",
    "train-eval-ratio-moderate": "one record with both losses",
    "lr-jump": "two rates without steps",
    "eval-worse-than-baseline": "one value",
    "checkpoint-save-growth": "one time",
}

#: cases that get another verdict, and why that is meant
DIFFERENT = {
    "C168": "its last times are 1.25 x its second; what healthy runs stay under is 1.3",
    "C172": "an order of lengths that is meant looks like one that is not: the period is warned of",
    "C221": "single records, back at once: told by their gradient norms only",
    "C238": "a healthy public run waits as long: told, not warned of",
    "C250": "47 steps again, as after any crash whose last checkpoint is 47 steps old; no save interval is declared",
}
