"""Preference and reward training in plain PyTorch: DPO on the gallery's base, and a group-relative policy on a toy task.

Each yields its log, record by record, under the names that common trainers use. A faulty run changes one argument of its healthy twin.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import corpus
import torch
from torch.nn import functional
from transformers import GPT2LMHeadModel

Record = dict[str, float]
HALF = corpus.WINDOW // 2
BETA = 0.1


def pairs(seed: int, size: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Windows of source code (size, WINDOW) as they are, and with the second half of another one."""
    windows = torch.tensor([list(window) for window in corpus.split(corpus.source_code())[0]])
    generator = torch.Generator().manual_seed(seed)
    while True:
        at = torch.randint(0, len(windows), (2, size), generator=generator)
        chosen = windows[at[0]]
        yield chosen, torch.cat([chosen[:, :HALF], windows[at[1], HALF:]], 1)


def log_probability(model: Any, tokens: torch.Tensor) -> torch.Tensor:
    """Of the second half of each sequence given the first, shape (n,)."""
    logits = model(input_ids=tokens).logits[:, HALF - 1 : -1].log_softmax(-1)
    return logits.gather(-1, tokens[:, HALF:, None]).sum((1, 2))


def direct(seed: int, base: Path, own_reference: bool = True, steps: int = 50) -> Iterator[Record]:
    """DPO with the sigmoid loss (Rafailov et al. 2023). The reference is the policy before training, or a model that knows nothing."""
    torch.manual_seed(seed)
    policy = GPT2LMHeadModel.from_pretrained(base)
    reference = GPT2LMHeadModel.from_pretrained(base) if own_reference else GPT2LMHeadModel(policy.config)
    policy.eval()  # no dropout: policy and reference agree at the start
    reference.eval()
    optimizer = torch.optim.AdamW(policy.parameters(), lr=2e-5)
    for step, (chosen, rejected) in zip(range(1, steps + 1), pairs(seed, 4), strict=False):
        with torch.no_grad():
            known = log_probability(reference, torch.cat([chosen, rejected])).chunk(2)
        now = log_probability(policy, torch.cat([chosen, rejected])).chunk(2)
        reward = [BETA * (a - b) for a, b in zip(now, known, strict=True)]
        margin = reward[0] - reward[1]
        loss = functional.softplus(-margin).mean()
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        yield {
            "step": step,
            "loss": loss.item(),
            "grad_norm": norm.item(),
            "learning_rate": 2e-5,
            "rewards/chosen": reward[0].mean().item(),
            "rewards/rejected": reward[1].mean().item(),
            "rewards/margins": margin.mean().item(),
            "rewards/accuracies": (margin > 0).float().mean().item(),
        }


def grouped(seed: int, partial_credit: bool = True, rate: float = 0.05, steps: int = 300) -> Iterator[Record]:
    """A policy that writes 6 of 12 symbols for each of 16 prompts, trained on group-relative advantages (Shao et al. 2024).

    The reward is the share of right symbols, or 1 only for the whole answer, which it never finds by chance.
    """
    torch.manual_seed(seed)
    logits = torch.zeros(16, 6, 12, requires_grad=True)
    answers = torch.randint(0, 12, (16, 6))
    optimizer = torch.optim.Adam([logits], lr=rate)
    for step in range(1, steps + 1):
        prompts = torch.randint(0, 16, (8,))
        policy = torch.distributions.Categorical(logits=logits[prompts])
        written = policy.sample((8,))  # (answers of a group, prompts, symbols)
        right = (written == answers[prompts]).float().mean(-1)
        reward = right if partial_credit else (right == 1).float()
        spread = reward.std(0)
        advantage = (reward - reward.mean(0)) / (spread + 1e-4)
        loss = -(advantage * policy.log_prob(written).sum(-1)).mean()
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_([logits], 1.0)
        optimizer.step()
        with torch.no_grad():
            share = logits[prompts].log_softmax(-1)
            kl = (share.exp() * (share + torch.log(torch.tensor(12.0)))).sum((-1, -2)).mean()
        yield {
            "step": step,
            "loss": loss.item(),
            "grad_norm": norm.item(),
            "learning_rate": rate,
            "reward": reward.mean().item(),
            "reward_std": spread.mean().item(),
            "frac_reward_zero_std": (spread == 0).float().mean().item(),
            "kl": kl.item(),
            "entropy": policy.entropy().mean().item(),
        }
