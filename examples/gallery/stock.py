"""A small GPT-2 from scratch with the stock `Trainer` of transformers, for faults of its configuration, its data and its loss.

A faulty run changes one argument of its healthy twin. The `Trainer` writes the log.
"""

from pathlib import Path
from typing import Any

import torch
from corpus import IGNORED, prose, split
from course import WINDOW, small_model
from torch.utils.data import Dataset
from training import make_repeatable
from transformers import Trainer, TrainingArguments

HELD_OUT = 64  # sequences


class Sequences(Dataset[dict[str, torch.Tensor]]):
    """Byte sequences of shape (WINDOW,) and their labels."""

    def __init__(self, texts: list[bytes], masked: bool = False) -> None:
        """`masked`: every label is the one that the loss skips."""
        self.texts, self.masked = texts, masked

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = torch.tensor(list(self.texts[index]))
        return {"input_ids": tokens, "labels": torch.full_like(tokens, IGNORED) if self.masked else tokens}


class Averaged(Trainer):
    """A loss of one's own that forgets that the `Trainer` counts the items of all micro-batches for it."""

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **counts: Any) -> Any:  # noqa: ARG002 (the fault)
        """The mean over the micro-batch, whatever the `Trainer` says of the number of items in the batch."""
        outputs = model(**inputs)
        return (outputs.loss, outputs) if return_outputs else outputs.loss


def stock(
    seed: int,
    output: Path,
    *,
    batch: int = 8,
    accumulation: int = 1,
    own_loss: bool = False,
    schedule: str = "linear",
    schedule_options: dict[str, Any] | None = None,
    windows: int = 2400,
    masked: bool = False,
    leaked: bool = False,
    easy_first: bool = False,
    rate: float = 2e-3,
    steps: int = 160,
) -> None:
    """Train and let the `Trainer` write its log into `output`."""
    make_repeatable(seed, threads=1)
    train, held_out = split(prose())
    texts = [w[:WINDOW] for w in train][:windows]
    if easy_first:  # what repeats itself is easy
        texts.sort(key=lambda text: len(set(text)))
    args = TrainingArguments(
        output_dir=str(output),
        max_steps=steps,
        warmup_steps=steps // 10,
        lr_scheduler_type=schedule,
        lr_scheduler_kwargs=schedule_options,
        learning_rate=rate,
        per_device_train_batch_size=batch,
        gradient_accumulation_steps=accumulation,
        per_device_eval_batch_size=HELD_OUT,
        train_sampling_strategy="sequential" if easy_first else "random",
        logging_steps=2,
        eval_strategy="steps",
        eval_steps=20,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        seed=seed,
    )
    trainer = (Averaged if own_loss else Trainer)(
        model=small_model(),
        args=args,
        train_dataset=Sequences(texts, masked),
        eval_dataset=Sequences(texts[:HELD_OUT] if leaked else [w[:WINDOW] for w in held_out[:HELD_OUT]], masked),
    )
    trainer.train()
    trainer.save_state()
