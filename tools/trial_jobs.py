"""Trainings with one fault each, for `tools.calibrate_bisect`: the classifier of examples/bisect/mlp.py without its own fault.

Found as "trial_jobs.py:make"; settings: fault (a name of FAULTS), seed. What a fault is made of is drawn from the seed.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainproof.record.framework import torch
from trainproof.replay.job import Target, make_job

MLP = Path(__file__).resolve().parent.parent / "examples" / "bisect" / "mlp.py"
SHARD_SAMPLES, LATE_SHARDS = 64, (5, 6, 7)
#: the fault's step lies in these: all shards are trained on by then, and the run goes on for a while
FIRST, LAST = 56, 100
#: no healthy point is so far out
OUTLYING = 20.0
#: set while a run is recorded: transient faults do not come again when it is replayed
RECORDING = "TRAINPROOF_TRIAL_RECORDING"


def make(settings: dict[str, Any]) -> Any:
    """The job, with its fault in it."""
    seed = int(settings["seed"])
    job = make_job(Target(f"{MLP}:make", {"seed": seed, "poison": False}))
    FAULTS[settings["fault"]](job, random.Random(f"{settings['fault']} {seed}"))
    return job


def truth(settings: dict[str, Any]) -> dict[str, Any]:
    """What was done to the job: step, shard, batches, samples, tensor, as far as the fault has them."""
    job = make(settings)
    told: dict[str, Any] = job.truth
    return told


def healthy(job: Any, draw: random.Random) -> None:
    job.truth = {}


def poisoned_sample(job: Any, draw: random.Random) -> None:
    """One sample of the outer ring, of a shard that comes late, is scaled by 10,000 and said to be of the inner one."""
    cursor = draw.randrange(FIRST, LAST)
    while not (late := [s for s in job.ids(cursor) if s // SHARD_SAMPLES in LATE_SHARDS and job.labels[s] == 1]):
        cursor += 1
    sample = draw.choice(late)
    job.points[sample] *= 1e4
    job.labels[sample] = 0
    job.truth = {"step": cursor + 1, "shard": _shard(sample), "batches": [cursor], "samples": [sample]}


def poisoned_shard(job: Any, draw: random.Random) -> None:
    """24 samples of one late shard are scaled by 1,000 and have the wrong label."""
    shard = draw.choice(LATE_SHARDS)
    bad = [shard * SHARD_SAMPLES + i for i in draw.sample(range(SHARD_SAMPLES), 24)]
    job.points[bad] *= 1e3
    job.labels[bad] = 1 - job.labels[bad]
    job.truth = {"shard": f"shard-{shard}", "batches": _batches_of(job, bad), "samples": bad}


def flipped_labels(job: Any, draw: random.Random) -> None:
    """Eight batches in a row are of one late shard, all of whose labels are flipped."""
    shard, start, told = draw.choice(LATE_SHARDS), draw.randrange(FIRST, LAST - 8), job.ids
    samples = list(range(shard * SHARD_SAMPLES, (shard + 1) * SHARD_SAMPLES))
    job.labels[samples] = 1 - job.labels[samples]
    # elsewhere the shard's place is taken by one that the run began with, so that its labels are met in these batches only
    job.ids = lambda cursor: (
        samples[8 * (cursor - start) : 8 * (cursor - start) + 8]
        if start <= cursor < start + 8
        else [s if s // SHARD_SAMPLES != shard else s % SHARD_SAMPLES for s in told(cursor)]
    )
    job.truth = {"shard": f"shard-{shard}", "batches": list(range(start, start + 8)), "samples": samples}


def lr_pulse(job: Any, draw: random.Random) -> None:
    """The schedule raises the rate to 200 times for three steps."""
    at = draw.randrange(FIRST, LAST)
    schedule = torch().optim.lr_scheduler.LambdaLR(job.optimizer, lambda i: 200.0 if at <= i < at + 3 else 1.0)
    job.stateful["scheduler"] = schedule
    _after(job, schedule.step)
    job.truth = {"step": at + 1, "kind": "LEARNING RATE"}


def corrupted_gradient(job: Any, draw: random.Random) -> None:
    """One gradient tensor is multiplied by -100 in one step, once: not when it is replayed."""
    at, name = draw.randrange(FIRST, LAST), draw.choice(["0.weight", "3.weight", "3.bias", "5.weight"])
    parameter = dict(job.model.named_parameters())[name]
    counter = _Counter()
    job.stateful["counter"] = counter

    def corrupt(grad: Any) -> Any:
        return grad * -100 if counter.count == at and RECORDING in os.environ else grad

    parameter.register_hook(corrupt)
    _after(job, counter.next)
    job.truth = {"transient": True, "step": at + 1, "tensor": name}


def dropped_rng(job: Any, draw: random.Random) -> None:
    """The generators start anew before one step, as after a resume that lost them: not when it is replayed."""
    at, counter, step = draw.randrange(FIRST, LAST), _Counter(), job.step
    job.stateful["counter"] = counter

    def dropping(batch: Any) -> Any:
        if counter.count == at and RECORDING in os.environ:
            torch().manual_seed(0)
        counter.next()
        return step(batch)

    job.step = dropping
    job.truth = {"transient": True, "step": at + 1}


def data_and_state(job: Any, draw: random.Random) -> None:
    """A poisoned sample in a model that lets outlying inputs in more and more: it is tempered by a factor of its state that grows from
    1e-10 to 1 until the sample comes. From an early checkpoint the same sample does no harm."""
    poisoned_sample(job, draw)
    model, growth = job.model, 1e10 ** (1 / job.truth["step"])
    model.register_buffer("openness", torch().tensor(1e-10))

    def tempered(module: Any, inputs: Any) -> Any:
        (points,) = inputs
        return (torch().where(points.abs().amax(1, keepdim=True) > OUTLYING, points * model.openness, points),)

    model.register_forward_pre_hook(tempered)
    _after(job, lambda: model.openness.mul_(growth).clamp_(max=1.0))
    job.truth["kind"] = "DATA x STATE"


def _after(job: Any, action: Callable[[], Any]) -> None:
    step = job.step

    def stepped(batch: Any) -> Any:
        said = step(batch)
        action()
        return said

    job.step = stepped


class _Counter:
    """Steps so far, as a part of the state."""

    def __init__(self) -> None:
        self.count = 0

    def next(self) -> None:
        self.count += 1

    def state_dict(self) -> dict[str, int]:
        return {"count": self.count}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.count = state["count"]


def _shard(sample: int) -> str:
    return f"shard-{sample // SHARD_SAMPLES}"


def _batches_of(job: Any, samples: list[int]) -> list[int]:
    return [cursor for cursor in range(LAST + 20) if set(job.ids(cursor)) & set(samples)]


FAULTS: dict[str, Callable[[Any, random.Random], None]] = {
    "poisoned_sample": poisoned_sample,
    "poisoned_shard": poisoned_shard,
    "flipped_labels": flipped_labels,
    "lr_pulse": lr_pulse,
    "corrupted_gradient": corrupted_gradient,
    "dropped_rng": dropped_rng,
    "data_and_state": data_and_state,
    "healthy": healthy,
}
