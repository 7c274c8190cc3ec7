"""A plain PyTorch loop as it is often written: a small GPT-2, AdamW, a scheduler of transformers, checkpoints, a log that is appended to.

It yields the log, record by record. A faulty run changes one argument of its healthy twin.
"""

import copy
import random
from collections.abc import Iterator
from typing import Any

import corpus
import torch
from transformers import GPT2Config, GPT2LMHeadModel, get_linear_schedule_with_warmup

Record = dict[str, float]
WINDOW = 64  # bytes of a sequence
TOKENS = 512  # of a batch
STEPS, WARMUP, RATE = 240, 24, 2e-3
SAVED, EVALUATED = 60, 20  # every so many steps
HOT = 1000.0  # times the rate


def small_model() -> GPT2LMHeadModel:
    """2 layers, d = 64, bytes as tokens, no dropout."""
    off = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "bos_token_id": None, "eos_token_id": None}
    config = GPT2Config(vocab_size=256, n_positions=WINDOW, n_embd=64, n_layer=2, n_head=2, **off)
    return GPT2LMHeadModel(config)


class Batches:
    """Which batch comes next; `position` is all that a checkpoint has to hold of it."""

    def __init__(self, seed: int, shuffle: bool) -> None:
        text = corpus.prose()[: 60 * TOKENS]
        self.text = [text[i : i + WINDOW] for i in range(0, len(text) - WINDOW + 1, WINDOW)]
        self.seed, self.shuffle = seed, shuffle
        self.position = 0
        self.of_an_epoch = len(self.text) * WINDOW // TOKENS

    def next(self) -> torch.Tensor:
        """Tokens of shape (n, WINDOW), TOKENS in all."""
        epoch, at = divmod(self.position, self.of_an_epoch)
        self.position += 1
        order = list(range(len(self.text)))
        if self.shuffle:
            random.Random(f"{self.seed}/{epoch}").shuffle(order)
        count = TOKENS // WINDOW
        return torch.tensor([list(self.text[i]) for i in order[at * count : (at + 1) * count]])

    @property
    def epoch(self) -> float:
        return self.position / self.of_an_epoch


class Run:
    """What a process holds: model, optimizer, scheduler, data."""

    def __init__(self, seed: int, shuffle: bool, optimizer_of: str) -> None:
        torch.manual_seed(seed)
        self.model = small_model()
        trained = self.model if optimizer_of == "model" else copy.deepcopy(self.model)
        self.optimizer = torch.optim.AdamW(trained.parameters(), lr=RATE)
        self.scheduler = get_linear_schedule_with_warmup(self.optimizer, WARMUP, STEPS)
        self.data = Batches(seed, shuffle)
        self.step = 0

    def saved(self) -> dict[str, Any]:
        """A checkpoint with everything that a clean resume needs."""
        parts = {name: getattr(self, name).state_dict() for name in ("model", "optimizer", "scheduler")}
        return copy.deepcopy({**parts, "data": self.data.position, "step": self.step})

    def restore(self, saved: dict[str, Any], lost: str) -> None:
        """Load a checkpoint, but for the part that is lost."""
        saved = copy.deepcopy(saved)
        self.step = saved["step"]
        for name in ("model", "optimizer", "scheduler"):
            if name != lost:
                getattr(self, name).load_state_dict(saved[name])
        for group, rate in zip(self.optimizer.param_groups, self.scheduler.get_last_lr(), strict=True):
            group["lr"] = (
                rate  # a new scheduler begins at its own start, a new optimizer goes on with the old scheduler's rate
            )
        if lost != "data":
            self.data.position = saved["data"]


def course(
    seed: int,
    *,
    crashes: tuple[int, ...] = (),
    lost: str = "",
    scheduler_every: int = 1,
    scheduler_times: int = 1,
    poisoned: tuple[int, int] = (0, 0),
    hot_step: int = 0,
    shuffle: bool = True,
    optimizer_of: str = "model",
) -> Iterator[Record]:
    """Train to the end, over crashes before the given steps; after each the run goes on from its last checkpoint, without what is `lost`.

    The scheduler is stepped `scheduler_times` after each `scheduler_every`-th step. Batches from step `poisoned[0]` to before
    `poisoned[1]` are random bytes; step `hot_step` is made at HOT times the rate. `optimizer_of` "copy" trains another model.
    """
    held_out = torch.tensor([list(w[:WINDOW]) for w in corpus.split(corpus.prose())[1][:32]])
    noise = torch.Generator().manual_seed(seed)
    pending = list(crashes)
    run = Run(seed, shuffle, optimizer_of)
    saved = run.saved()
    while run.step < STEPS:
        if pending and run.step + 1 == pending[0]:
            pending.pop(0)
            if not pending and len(crashes) > 1:  # nobody restarts it any more
                return
            run = Run(seed + len(pending) + 1, shuffle, optimizer_of)
            run.data = Batches(seed, shuffle)
            run.restore(saved, lost)
        run.step += 1
        tokens = run.data.next()
        if poisoned[0] <= run.step < poisoned[1]:
            tokens = torch.randint(0, 256, tokens.shape, generator=noise)
        loss = run.model(input_ids=tokens, labels=tokens).loss
        run.model.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(run.model.parameters(), 1.0)
        rate = run.optimizer.param_groups[0]["lr"]
        for group in run.optimizer.param_groups:
            group["lr"] = rate * (HOT if run.step == hot_step else 1.0)
        run.optimizer.step()
        record = {"step": run.step, "loss": loss.item(), "grad_norm": norm.item()}
        record |= {"lr": run.optimizer.param_groups[0]["lr"], "epoch": run.data.epoch}
        if run.step % scheduler_every == 0:
            for _ in range(scheduler_times):
                run.scheduler.step()
        if run.step % EVALUATED == 0:
            with torch.no_grad():
                record["eval_loss"] = run.model(input_ids=held_out, labels=held_out).loss.item()
        if run.step % SAVED == 0:
            saved = run.saved()
        yield record
