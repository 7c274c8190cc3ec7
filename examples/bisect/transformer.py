"""A small transformer that collapses only where many samples of one shard come together.

It learns sequences in which each word follows from the one before by one rule. In `shard-6` the rule is another one. The loader forgot to
shuffle, so that the shards come one after the other: when shard-6 comes, in steps 97 to 112, the model unlearns the first rule. Shuffled,
the same samples do no harm: with the checkpoints alone, and the order of the data unknown, nothing can be proved.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

WORDS, LENGTH, WIDTH = 17, 10, 32
SHARDS, SAMPLES, BATCH = 7, 128, 8
OTHER_RULE = "shard-6"


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.layer = nn.TransformerEncoderLayer(WIDTH, 2, 64, dropout=0.05, batch_first=True)
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(words.shape[1])
        return self.head(self.layer(self.words(words), src_mask=mask, is_causal=True))


class Transformer:
    """See the module's docstring. settings: seed; order_seed (a shuffled order); poison (False makes the healthy twin)."""

    def __init__(self, settings: dict[str, Any]) -> None:
        torch.manual_seed(int(settings.get("seed", 0)))
        generator = torch.Generator().manual_seed(1)
        first = torch.randint(0, WORDS, (SHARDS * SAMPLES,), generator=generator)
        other = torch.arange(SHARDS * SAMPLES) // SAMPLES == int(OTHER_RULE[6:])
        other = other & bool(settings.get("poison", True))
        rows = [first]
        for _ in range(LENGTH - 1):
            rows.append(torch.where(other, (5 * rows[-1] + 11) % WORDS, (3 * rows[-1] + 2) % WORDS))
        self.data = torch.stack(rows, 1)
        self.order_seed = settings.get("order_seed")
        self.model = Model()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-3)
        self.stateful = {"model": self.model, "optimizer": self.optimizer}

    def pool(self) -> list[int]:
        """All samples."""
        return list(range(SHARDS * SAMPLES))

    def ids(self, cursor: int) -> list[int]:
        epoch, at = divmod(cursor, SHARDS * SAMPLES // BATCH)
        if self.order_seed is None:
            return list(range(at * BATCH, (at + 1) * BATCH))
        order = torch.randperm(
            SHARDS * SAMPLES, generator=torch.Generator().manual_seed(1000 * self.order_seed + epoch)
        )
        return order[at * BATCH : (at + 1) * BATCH].tolist()

    def shard_of(self, sample: int) -> str:
        return f"shard-{sample // SAMPLES}"

    def batch_of(self, samples: list[int]) -> Any:
        return {"words": self.data[samples]}

    def benign(self, cursor: int) -> Any:
        """A batch of the shards that the run began with."""
        return self.batch_of([(53 * (cursor * BATCH + i)) % (5 * SAMPLES) for i in range(BATCH)])

    def batches(self, cursor: int) -> Iterator[Any]:
        while True:
            yield self.batch_of(self.ids(cursor))
            cursor += 1

    def step(self, batch: Any) -> float:
        self.optimizer.zero_grad()
        loss = self._loss(batch["words"])
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def _loss(self, words: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(self.model(words[:, :-1]).transpose(1, 2), words[:, 1:])

    def evaluate(self) -> float:
        self.model.eval()
        with torch.no_grad():
            loss = self._loss(self.data[:SAMPLES]).item()
        self.model.train()
        return loss


def make(settings: dict[str, Any]) -> Transformer:
    return Transformer(settings)
