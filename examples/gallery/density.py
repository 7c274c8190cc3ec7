"""Plain PyTorch loops whose numbers look odd in good health: a density, a Wasserstein game, half precision with a loss scale.

Each yields its log, record by record. A faulty run changes one argument of its healthy twin.
"""

import math
from collections.abc import Iterator

import torch
from loops import CONTEXT, Record, batches
from torch import nn
from torch.nn import functional


def narrow(seed: int, steps: int = 1200, every: int = 5) -> Iterator[Record]:
    """Fit a mixture of 16 Gaussians to points near a circle: the negative log-density falls below 0."""
    torch.manual_seed(seed)
    means = nn.Parameter(torch.randn(16, 2))
    spread = nn.Parameter(torch.zeros(16))
    optimizer = torch.optim.Adam([means, spread], lr=0.01)
    for step in range(1, steps + 1):
        angle = math.tau * torch.rand(256)
        points = torch.stack([angle.cos(), angle.sin()], 1) / 2 + 0.02 * torch.randn(256, 2)
        squares = (points[:, None] - means).square().sum(-1)
        logs = -squares / (2 * torch.exp(2 * spread)) - 2 * spread - math.log(math.tau) - math.log(16)
        loss = -logs.logsumexp(-1).mean()
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_([means, spread], 1.0)
        optimizer.step()
        if step % every == 0:
            yield {"step": step, "loss": loss.item(), "grad_norm": norm.item(), "lr": 0.01}


def critics(seed: int, clip: float = 0.1, steps: int = 1200, every: int = 10) -> Iterator[Record]:
    """A Wasserstein game (Arjovsky et al. 2017) on a ring of eight blurred points; the critic's weights are clipped to `clip`."""
    torch.manual_seed(seed)
    generator = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
    critic = nn.Sequential(nn.Linear(2, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))
    up = torch.optim.RMSprop(generator.parameters(), lr=5e-4)
    down = torch.optim.RMSprop(critic.parameters(), lr=5e-4)
    for step in range(1, steps + 1):
        for _ in range(3):
            angle = torch.randint(0, 8, (256,)) * (math.tau / 8)
            real = 2 * torch.stack([angle.cos(), angle.sin()], 1) + 0.2 * torch.randn(256, 2)
            made = generator(torch.randn(256, 8)).detach()
            d_loss = critic(made).mean() - critic(real).mean()
            down.zero_grad()
            d_loss.backward()
            down.step()
            with torch.no_grad():
                for weight in critic.parameters():
                    weight.clamp_(-clip, clip)
        g_loss = -critic(generator(torch.randn(256, 8))).mean()
        up.zero_grad()
        g_loss.backward()
        up.step()
        if step % every == 0:
            yield {"step": step, "d_loss": d_loss.item(), "g_loss": g_loss.item(), "lr": 5e-4}


def halves(seed: int, epsilon: float = 1e-6, steps: int = 240) -> Iterator[Record]:
    """A next-byte model in float16 with a loss scaler, and a penalty on the norms of its embeddings, one of which is that of padding.

    The root of a sum of squares that is 0 has no finite gradient unless an epsilon stands below it.
    """
    torch.manual_seed(seed)
    embed = nn.Embedding(256, 16, padding_idx=0)
    rest = nn.Sequential(nn.Flatten(), nn.Linear(CONTEXT * 16, 64), nn.ReLU(), nn.Linear(64, 256))
    optimizer = torch.optim.Adam([*embed.parameters(), *rest.parameters()], lr=2e-3)
    scaler = torch.amp.GradScaler("cpu", growth_interval=100)
    skipped = 0
    for step, (context, target) in zip(range(1, steps + 1), batches(seed, 64), strict=False):
        with torch.autocast("cpu", dtype=torch.float16):
            loss = functional.cross_entropy(rest(embed(context)).float(), target)
        norms = (embed.weight.square().sum(-1) + epsilon).sqrt()
        optimizer.zero_grad()
        scaler.scale(loss + 1e-3 * norms.mean()).backward()
        scaler.step(optimizer)
        scaler.update()
        skipped += not all(bool(weight.grad.isfinite().all()) for weight in (*embed.parameters(), *rest.parameters()))
        record = {"step": step, "loss": loss.item(), "lr": 2e-3}
        yield record | {"loss_scale": scaler.get_scale(), "skipped_steps": skipped}
