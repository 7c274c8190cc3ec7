"""Plain PyTorch loops for what the stock `Trainer` does not train: mixtures of experts, adversaries, and a loop that leaks its graphs.

Each yields its log, record by record. A faulty run changes one argument of its healthy twin.
"""

import math
import os
import time
from collections.abc import Iterator
from pathlib import Path

import corpus
import torch
from torch import nn
from torch.nn import functional

Record = dict[str, float]
CONTEXT = 8  # bytes that predict the next one


def batches(seed: int, size: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Contexts of shape (size, CONTEXT) and the bytes that follow, shape (size,), drawn at random from the prose."""
    text = torch.frombuffer(bytearray(corpus.prose()), dtype=torch.uint8).long()
    generator = torch.Generator().manual_seed(seed)
    while True:
        at = torch.randint(0, len(text) - CONTEXT, (size,), generator=generator)
        yield text[at[:, None] + torch.arange(CONTEXT)], text[at + CONTEXT]


class Experts(nn.Module):
    """A next-byte model with one layer of experts; each token goes to the one that its router likes best (a Switch layer)."""

    def __init__(self, experts: int = 8, width: int = 64) -> None:
        super().__init__()
        self.embed = nn.Embedding(256, 16)
        self.router = nn.Linear(CONTEXT * 16, experts)
        self.first = nn.Parameter(torch.randn(experts, CONTEXT * 16, width) / math.sqrt(CONTEXT * 16))
        self.second = nn.Parameter(torch.randn(experts, width, 256) / math.sqrt(width))

    def forward(self, context: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Logits (n, 256), router probabilities (n, experts) and the expert of each token (n,)."""
        x = self.embed(context).flatten(1)
        share = self.router(x).softmax(-1)
        gate, chosen = share.max(-1)
        hidden = torch.einsum("ni,niw->nw", x, self.first[chosen]).relu()
        return gate[:, None] * torch.einsum("nw,nwv->nv", hidden, self.second[chosen]), share, chosen


def mixture(seed: int, balance: float = 0.2, steps: int = 400, every: int = 4) -> Iterator[Record]:
    """Train the experts; `balance` weighs the load-balancing loss (Fedus et al. 2021), 0 leaves the router alone."""
    torch.manual_seed(seed)
    model = Experts()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    loads, losses = torch.zeros(8), []
    for step, (context, target) in zip(range(1, steps + 1), batches(seed, 256), strict=False):
        logits, share, chosen = model(context)
        load = functional.one_hot(chosen, 8).float()
        loss = functional.cross_entropy(logits, target)
        auxiliary = 8 * (load.mean(0) * share.mean(0)).sum()
        optimizer.zero_grad()
        (loss + balance * auxiliary).backward()
        optimizer.step()
        loads += load.sum(0)
        losses.append(loss.item())
        if step % every == 0:
            record = {"step": step, "loss": sum(losses) / every, "loss/balance": auxiliary.item(), "lr": 3e-3}
            yield record | {f"expert_load/{i}": value for i, value in enumerate(loads.tolist())}
            loads, losses = torch.zeros(8), []


def adversaries(
    seed: int, generator_rate: float = 1e-3, minimax: bool = False, steps: int = 1200, every: int = 10
) -> Iterator[Record]:
    """Two small networks and a ring of eight blurred points; with a rate of 0 the generator never answers.

    With `minimax` the generator lowers log(1 - D) (Goodfellow et al. 2014), whose slope vanishes where the critic is sure.
    """
    torch.manual_seed(seed)
    generator = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
    critic = nn.Sequential(nn.Linear(2, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))
    up = torch.optim.Adam(generator.parameters(), lr=generator_rate, betas=(0.5, 0.999))
    down = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.5, 0.999))
    for step in range(1, steps + 1):
        angle = torch.randint(0, 8, (256,)) * (math.tau / 8)
        real = 2 * torch.stack([angle.cos(), angle.sin()], 1) + 0.2 * torch.randn(256, 2)
        made = generator(torch.randn(256, 8))
        d_loss = functional.softplus(-critic(real)).mean() + functional.softplus(critic(made.detach())).mean()
        down.zero_grad()
        d_loss.backward()
        down.step()
        g_loss = -functional.softplus(critic(made)).mean() if minimax else functional.softplus(-critic(made)).mean()
        up.zero_grad()
        g_loss.backward()
        up.step()
        if step % every == 0:
            yield {"step": step, "d_loss": d_loss.item(), "g_loss": g_loss.item(), "lr": 1e-3}


def resident() -> float:
    """Megabytes of memory that this process holds (Linux)."""
    with Path("/proc/self/statm").open(encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def kept_losses(seed: int, as_numbers: bool = True, steps: int = 1200, every: int = 10) -> Iterator[Record]:
    """A next-byte model whose running mean of losses is kept as numbers, or as tensors with the graph of every step behind them."""
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Embedding(256, 16), nn.Flatten(), nn.Linear(CONTEXT * 16, 256), nn.ReLU(), nn.Linear(256, 256)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    total: float | torch.Tensor = 0.0
    began = time.perf_counter()
    for step, (context, target) in zip(range(1, steps + 1), batches(seed, 256), strict=False):
        loss = functional.cross_entropy(model(context), target)
        optimizer.zero_grad()
        loss.backward(retain_graph=not as_numbers)
        optimizer.step()
        total = total + (loss.item() if as_numbers else loss)
        if step % every == 0:
            now = time.perf_counter()
            yield {"step": step, "loss": loss.item(), "step_time": (now - began) / every, "memory": resident()}
            began = now
