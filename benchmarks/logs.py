"""The logs that the benchmark reads: made here, with a fixed seed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

SEED = 20260101
BLOCK = 10_000


def records(n: int, seed: int = 0) -> Iterator[dict[str, float]]:
    """A healthy run of n records: a falling loss with noise, warm-up and linear decay of the learning rate."""
    random = np.random.default_rng(SEED + seed)
    for begin in range(0, n, BLOCK):
        size = min(BLOCK, n - begin)
        at = np.arange(begin + 1, begin + size + 1)
        loss = (1.15 + 0.65 * np.exp(-5 * at / n)) * random.lognormal(0, 0.1, size)
        norm = random.lognormal(0, 0.3, size)
        rate = 5e-5 * np.minimum(at / (0.05 * n), (n - at) / (0.95 * n))
        for step, *values in zip(at.tolist(), loss.tolist(), norm.tolist(), rate.tolist(), strict=True):
            yield {
                "step": step,
                **dict(zip(("loss", "grad_norm", "learning_rate"), values, strict=True)),
                "epoch": 10 * step / n,
                "tokens": 4096 * step,
            }


def write_jsonl(path: Path, n: int, seed: int = 0) -> Path:
    with path.open("w") as log:
        for record in records(n, seed):
            log.write(json.dumps(record) + "\n")
    return path


def write_trainer_state(path: Path, n: int, seed: int = 0) -> Path:
    """As the HF Trainer writes it: indented by 2, keys sorted, an evaluation every hundredth record, a closing summary."""
    history: list[dict[str, float]] = []
    for record in records(n, seed):
        del record["tokens"]
        if record["step"] % 100:
            history.append(record)
        else:
            history.append({"epoch": record["epoch"], "eval_loss": record["loss"], "step": record["step"] - 1})
    history.append({"epoch": 10.0, "step": n, "train_loss": 1.3, "train_runtime": 3600.0, "total_flos": 1e15})
    state = {"best_metric": None, "global_step": n, "log_history": history, "max_steps": n, "num_train_epochs": 10}
    path.write_text(json.dumps(state, indent=2, sort_keys=True) + "\n")
    return path
