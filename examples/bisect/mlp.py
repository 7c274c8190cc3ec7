"""A classifier that one shard of its data ruins.

A small network learns to tell two rings of points apart. The data come in 8 shards; in one of them, `shard-5`, 24 of 64 samples are scaled
by 1,000 and have the wrong label. The run meets that shard in steps 41 to 80 for the first time, and its held-out loss goes up and stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

SHARDS, SAMPLES, BATCH = 8, 64, 8
#: steps before the poisoned shard joins the pool
CLEAN_STEPS = 48
BAD_SAMPLES = 24
POISONED = "shard-5"


class MLP:
    """See the module's docstring. settings: seed; order_seed (of another order of the same data); poison (False makes
    the healthy twin)."""

    def __init__(self, settings: dict[str, Any]) -> None:
        seed = int(settings.get("seed", 0))
        torch.manual_seed(seed)
        generator = torch.Generator().manual_seed(1)
        count = SHARDS * SAMPLES
        self.labels = torch.randint(0, 2, (count,), generator=generator)
        angle = torch.rand(count, generator=generator) * 6.2832
        radius = 1.0 + self.labels + 0.1 * torch.randn(count, generator=generator)
        self.points = torch.stack([radius * angle.cos(), radius * angle.sin()], 1)
        self.held_out = self.points.clone(), self.labels.clone()
        self.order_seed = int(settings.get("order_seed", seed))
        if settings.get("poison", True):
            first = int(POISONED[6:]) * SAMPLES
            self.points[first : first + BAD_SAMPLES] *= 1000.0
            self.labels[first : first + BAD_SAMPLES] = 1 - self.labels[first : first + BAD_SAMPLES]
        self.model = nn.Sequential(
            nn.Linear(2, 32), nn.ReLU(), nn.Dropout(0.05), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2)
        )
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        self.stateful = {"model": self.model, "optimizer": self.optimizer}

    def ids(self, cursor: int) -> list[int]:
        """The first CLEAN_STEPS steps draw from the shards before the poisoned one, then from all of them, in a seeded order."""
        late = cursor >= CLEAN_STEPS
        pool = torch.arange(SHARDS * SAMPLES if late else 5 * SAMPLES)
        position = cursor - CLEAN_STEPS if late else cursor
        epoch, at = divmod(position, len(pool) // BATCH)
        order = torch.randperm(
            len(pool), generator=torch.Generator().manual_seed(1000 * self.order_seed + 10 * epoch + late)
        )
        return pool[order[at * BATCH : (at + 1) * BATCH]].tolist()

    def pool(self) -> list[int]:
        """All samples that steps 41 to 80 may draw from."""
        return list(range(SHARDS * SAMPLES))

    def shard_of(self, sample: int) -> str:
        return f"shard-{sample // SAMPLES}"

    def batch_of(self, samples: list[int]) -> Any:
        return {"points": self.points[samples], "labels": self.labels[samples]}

    def benign(self, cursor: int) -> Any:
        """A batch of the shards that the run began with."""
        return self.batch_of([(53 * (cursor * BATCH + i)) % (5 * SAMPLES) for i in range(BATCH)])

    def batches(self, cursor: int) -> Iterator[Any]:
        while True:
            yield self.batch_of(self.ids(cursor))
            cursor += 1

    def step(self, batch: Any) -> float:
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.model(batch["points"]), batch["labels"])
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def evaluate(self) -> float:
        self.model.eval()
        with torch.no_grad():
            loss = nn.functional.cross_entropy(self.model(self.held_out[0]), self.held_out[1]).item()
        self.model.train()
        return loss


def make(settings: dict[str, Any]) -> MLP:
    return MLP(settings)
