"""Preference and reward training of the gallery's base with trl: DPO, and GRPO with a reward for short lines.

A faulty run changes one argument of its healthy twin. trl's trainers write the log.
"""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import corpus
from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from training import make_repeatable
from transformers import GPT2LMHeadModel, PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import bytes_to_unicode
from trl import DPOConfig, DPOTrainer, GRPOConfig, GRPOTrainer

PROMPT, ANSWER = 32, 16  # bytes
NEVER_SEEN = 0  # a byte that no text has


def byte_tokenizer(end: int) -> Any:
    """A token for each byte, its number the byte's; `end` ends a text."""
    character = bytes_to_unicode()
    tokenizer = Tokenizer(models.BPE(vocab={character[byte]: byte for byte in range(256)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=character[end], pad_token=character[NEVER_SEEN + 1]
    )


def pieces(seed: int) -> Iterator[tuple[str, str]]:
    """Prompts and what follows them in the prose, in random order."""
    windows = [window for window in corpus.split(corpus.prose())[0] if window.isascii()]
    random.Random(seed).shuffle(windows)
    for window in windows:
        text = window.decode()
        yield text[:PROMPT], text[PROMPT : PROMPT + ANSWER]


def shared(output: Path, seed: int, rate: float, steps: int) -> dict[str, Any]:
    """What both trainers are told."""
    return {
        "output_dir": str(output),
        "seed": seed,
        "learning_rate": rate,
        "max_steps": steps,
        "per_device_train_batch_size": 8,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
    }


def finish(trainer: Any) -> None:
    """Train, and let the trainer write its log."""
    trainer.train()
    trainer.save_state()


def dpo(seed: int, output: Path, base: Path, rate: float = 5e-5, steps: int = 50) -> None:
    """Prefer what follows in the text to what follows elsewhere."""
    make_repeatable(seed, threads=1)
    found = list(pieces(seed))
    pairs = [
        {"prompt": prompt, "chosen": answer, "rejected": other}
        for (prompt, answer), (_, other) in zip(found, found[1:], strict=False)
    ]
    trainer = DPOTrainer(
        model=GPT2LMHeadModel.from_pretrained(base),
        args=DPOConfig(**shared(output, seed, rate, steps), beta=0.1),
        train_dataset=Dataset.from_list(pairs[: 8 * steps]),
        processing_class=byte_tokenizer(ord("\n")),
    )
    finish(trainer)


def short_lines(completions: list[str], completion_ids: list[list[int]], **rest: Any) -> list[float]:
    """More for an answer that ends early, nothing for one that is cut off."""
    end = rest["end"][0]
    return [1 - len(ids) / ANSWER if ids[-1] == end else 0.0 for ids in completion_ids]


def grpo(
    seed: int,
    output: Path,
    base: Path,
    rate: float = 2e-4,
    end: int = ord("\n"),
    beta: float = 0.04,
    loss: str = "dapo",
    steps: int = 56,
) -> None:
    """Reward lines that end early; `end` is the byte that the tokenizer takes for the end of an answer.

    With `loss` "grpo" and a `beta` of 0 the loss is that of advantages which sum to 0: it is 0 while the policy learns.
    """
    make_repeatable(seed, threads=1)
    prompts = [{"prompt": prompt, "end": end} for prompt, _ in pieces(seed)]
    trainer = GRPOTrainer(
        model=GPT2LMHeadModel.from_pretrained(base),
        reward_funcs=short_lines,
        args=GRPOConfig(
            **shared(output, seed, rate, steps),
            num_generations=4,
            max_completion_length=ANSWER,
            beta=beta,
            loss_type=loss,
        ),
        train_dataset=Dataset.from_list(prompts[: 8 * steps]),
        processing_class=byte_tokenizer(end),
    )
    finish(trainer)
