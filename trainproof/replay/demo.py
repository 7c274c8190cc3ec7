"""The job of the built-in demonstration: a small transformer that needs every part of its state to go on as it was.

It draws from torch's, numpy's and Python's generators, in the model and in the data; accumulates gradients over two micro-batches; clips;
warms up; and shuffles anew in every epoch.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np

from trainproof.record.framework import torch
from trainproof.replay.job import StepResult

WORDS, WIDTH, LENGTH, SAMPLES, BATCH, ACCUMULATION = 32, 32, 12, 96, 4, 2


class Demo:
    """A language model on random sequences; see the module's docstring."""

    def __init__(self, seed: int) -> None:
        t = torch()
        t.manual_seed(seed)
        np.random.seed(seed)
        random.seed(seed)
        self.seed = seed
        self.data = t.randint(0, WORDS, (SAMPLES, LENGTH), generator=t.Generator().manual_seed(seed))
        layer = t.nn.TransformerEncoderLayer(WIDTH, 2, 2 * WIDTH, dropout=0.1, batch_first=True)
        self.model = t.nn.Sequential(t.nn.Embedding(WORDS, WIDTH), layer, t.nn.Linear(WIDTH, WORDS))
        self.optimizer = t.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.scheduler = t.optim.lr_scheduler.LambdaLR(self.optimizer, lambda i: min(1.0, (i + 1) / 5) * 0.98**i)
        self.stateful = {"model": self.model, "optimizer": self.optimizer, "scheduler": self.scheduler}

    def ids(self, cursor: int) -> list[int]:
        """The samples of micro-batch `cursor`: each epoch has an order of its own."""
        epoch, position = divmod(cursor, SAMPLES // BATCH)
        generator = torch().Generator().manual_seed(1000 * self.seed + epoch)
        order: list[int] = torch().randperm(SAMPLES, generator=generator).tolist()
        return order[position * BATCH : (position + 1) * BATCH]

    def batches(self, cursor: int) -> Iterator[Any]:
        while True:
            words = self.data[self.ids(cursor)].clone()
            words[:, random.randrange(LENGTH)] = int(np.random.randint(WORDS))  # noqa: S311  as above
            words[:, int(torch().randint(LENGTH, ()))] = 1
            cursor += 1
            yield {"words": words, "last": cursor % ACCUMULATION == 0}

    def step(self, batch: Any) -> StepResult:
        scores = self.model(batch["words"][:, :-1]).transpose(1, 2)
        loss = torch().nn.functional.cross_entropy(scores, batch["words"][:, 1:])
        (loss / ACCUMULATION).backward()
        if batch["last"]:
            torch().nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.scheduler.step()
            self.optimizer.zero_grad()
        return StepResult(loss.item(), batch["last"])

    def evaluate(self) -> float:
        self.model.eval()
        with torch().no_grad():
            words = self.data[:32]
            value = torch().nn.functional.cross_entropy(self.model(words[:, :-1]).transpose(1, 2), words[:, 1:]).item()
        self.model.train()
        return float(value)


def make(settings: dict[str, Any]) -> Demo:
    """The job with the seed in `settings`, 0 by default."""
    return Demo(int(settings.get("seed", 0)))
