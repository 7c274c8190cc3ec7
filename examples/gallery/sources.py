"""The base of the gallery trained on in a plain loop, on three kinds of text that differ in length, each batch of one kind.

It yields the log, record by record. A faulty run changes one argument of its healthy twin.
"""

import base64
import hashlib
import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import corpus
import torch
from transformers import GPT2LMHeadModel, get_constant_schedule_with_warmup

Record = dict[str, float]
TOKENS = 512  # of a batch, about
STRETCH = 12  # batches of one kind before those of another
CODE = corpus.source_code()


def digest(draw: random.Random) -> bytes:
    """The SHA-256 of a number, 32 bytes."""
    return hashlib.sha256(str(draw.random()).encode()).digest()


#: 16 hexadecimal digits, a key in base 64 (44 bytes), or a window of source code (128 bytes)
BUCKETS: Mapping[str, Callable[[random.Random], bytes]] = {
    "digits": lambda draw: digest(draw).hex().encode()[:16],
    "key": lambda draw: base64.b64encode(digest(draw)),
    "code": lambda draw: CODE[(at := draw.randrange(len(CODE) - corpus.WINDOW)) : at + corpus.WINDOW],
}


def bucketed(seed: int, base: Path, shuffled: bool = True, steps: int = 280) -> Iterator[Record]:
    """Each batch comes from one bucket of lengths: drawn anew for each batch, or for STRETCH batches at a time."""
    torch.manual_seed(seed)
    draw = random.Random(seed)
    model = GPT2LMHeadModel.from_pretrained(base)
    model.eval()  # no dropout
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    scheduler = get_constant_schedule_with_warmup(optimizer, 10)
    bucket = ""
    for step in range(1, steps + 1):
        if shuffled or step % STRETCH == 1:
            bucket = draw.choice(list(BUCKETS))
        first = BUCKETS[bucket](draw)
        texts = [first, *(BUCKETS[bucket](draw) for _ in range(TOKENS // len(first) - 1))]
        tokens = torch.tensor([list(text) for text in texts])
        loss = model(input_ids=tokens, labels=tokens).loss
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        rate = scheduler.get_last_lr()[0]
        optimizer.step()
        scheduler.step()
        yield {"step": step, "loss": loss.item(), "grad_norm": norm.item(), "lr": rate, "length": len(first)}
