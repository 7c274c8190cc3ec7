"""Plain PyTorch loops whose curves tell: squares above their stable rate, a table that remembers each text, units that die.

Each yields its log, record by record. A faulty run changes one argument of its healthy twin.
"""

import math
from collections.abc import Iterator

import corpus
import torch
from loops import CONTEXT, Record, batches
from torch import nn
from torch.nn import functional

SLOTS = 1 << 16  # rows of the table
CLASSES = 256


def squares(seed: int, rate: float = 0.01, keep_nan: bool = True, steps: int = 400) -> Iterator[Record]:
    """Linear regression by plain gradient descent; above a rate of 2 over the largest curvature it diverges.

    Unless `keep_nan`, the log leaves a value out that is not finite, as loggers that check their values do.
    """
    torch.manual_seed(seed)
    truth = torch.randn(16)
    weights = torch.zeros(16, requires_grad=True)
    for step in range(1, steps + 1):
        inputs = torch.randn(1 << 15, 16) * torch.linspace(0.2, 1.5, 16)
        loss = (inputs @ (weights - truth) + 0.1 * torch.randn(1 << 15)).square().mean()
        (slope,) = torch.autograd.grad(loss, weights)
        with torch.no_grad():
            weights -= rate * slope
        record = {"step": step, "loss": loss.item(), "grad_norm": slope.norm().item()}
        yield {k: v for k, v in record.items() if keep_nan or math.isfinite(v)} | {"lr": rate}


def remembered(seed: int, texts: int = 32000, size: int = 64, steps: int = 500) -> Iterator[Record]:
    """A next-byte model that is one table, with a row for each context by its hash: it knows a text once it has seen it.

    With fewer texts than `steps` batches need, it meets all of them again in each epoch.
    """
    torch.manual_seed(seed)
    text = torch.frombuffer(bytearray(corpus.prose()), dtype=torch.uint8).long()
    at = torch.randperm(len(text) - CONTEXT)
    held_out, at = at[:512], at[512 : 512 + texts]
    keys = torch.randint(1, SLOTS, (CONTEXT,))
    table = nn.Embedding(SLOTS, CLASSES, sparse=True)
    nn.init.zeros_(table.weight)
    optimizer = torch.optim.Adagrad(table.parameters(), lr=2.0)

    def looked_up(places: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        contexts = text[places[:, None] + torch.arange(CONTEXT)]
        target = text[places + CONTEXT]
        logits = table((contexts * keys).sum(-1) % SLOTS)
        return functional.cross_entropy(logits, target), (logits.argmax(-1) == target).float().mean()

    step = 0
    order = torch.cat([at[torch.randperm(len(at))] for _ in range(size * steps // len(at))])
    for step, batch in enumerate(order.split(size), 1):
        loss, _ = looked_up(batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        record = {"step": step, "epoch": step * size / len(at), "loss": loss.item(), "lr": 2.0}
        if step % 25 == 0:
            with torch.no_grad():
                seen, right = looked_up(held_out)
            record |= {"eval_loss": seen.item(), "eval_accuracy": right.item()}
        yield record


def next_byte(seed: int, hot_step: int = 0, contexts: int = 1 << 20, steps: int = 600) -> Iterator[Record]:
    """A next-byte model on that many contexts; step `hot_step` is made at 1,000 times the rate, and kills most of its units."""
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Embedding(CLASSES, 16), nn.Flatten(), nn.Linear(CONTEXT * 16, 128), nn.ReLU(), nn.Linear(128, CLASSES)
    )
    held_out, target_held_out = next(batches(seed + 1000, 1024))
    known = next(batches(seed, contexts))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step in range(1, steps + 1):
        rate = 2e-3 * (1 - (step - 1) / steps)
        for group in optimizer.param_groups:
            group["lr"] = rate * (1000 if step == hot_step else 1)
        at = torch.randint(0, contexts, (256,))
        loss = functional.cross_entropy(model(known[0][at]), known[1][at])
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        record = {"step": step, "loss": loss.item(), "grad_norm": norm.item(), "lr": optimizer.param_groups[0]["lr"]}
        if step % 30 == 0:
            with torch.no_grad():
                logits = model(held_out)
            right = (logits.argmax(-1) == target_held_out).float().mean()
            record |= {
                "eval_loss": functional.cross_entropy(logits, target_held_out).item(),
                "eval_accuracy": right.item(),
            }
        yield record
