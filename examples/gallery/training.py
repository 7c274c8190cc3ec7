"""One training run with the stock `Trainer`: a GPT-2 base from scratch, or a LoRA fine-tune of it."""

from pathlib import Path
from typing import Any

import torch
from corpus import VOCABULARY, WINDOW, Windows, prose, source_code, split, spread
from knobs import BASE, BASE_LEARNING_RATE, BASE_SEED, FINE_TUNE, Knobs, Schedule
from peft import LoraConfig, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed


def make_repeatable(seed: int, threads: int) -> None:
    """Same seed, same machine, same log."""
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(True)
    set_seed(seed)


def arguments(output: Path, schedule: Schedule, seed: int, learning_rate: float, max_grad_norm: float) -> Any:
    """`Trainer`'s defaults, apart from what is named here. `output` is relative: its name ends up in the log."""
    return TrainingArguments(
        output_dir=str(output),
        max_steps=schedule.max_steps,
        warmup_steps=schedule.warmup_steps,
        lr_scheduler_type="linear",
        learning_rate=learning_rate,
        max_grad_norm=max_grad_norm,
        per_device_train_batch_size=schedule.batch_size,
        per_device_eval_batch_size=64,
        logging_steps=schedule.logging_steps,
        logging_first_step=False,
        # The default replaces a non-finite loss by an average: the log would hide the fault that it should show.
        logging_nan_inf_filter=False,
        eval_strategy="steps",
        eval_steps=schedule.eval_steps,
        eval_on_start=True,  # where a fine-tune starts from is the level that it must not lose
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        seed=seed,
    )


def fit(model: Any, args: Any, train: Windows, held_out: Windows) -> None:
    """Train, then let the `Trainer` write `trainer_state.json` and the model its weights and configuration."""
    trainer = Trainer(model=model, args=args, train_dataset=train, eval_dataset=held_out)
    trainer.train()
    trainer.save_state()
    model.save_pretrained(args.output_dir)


def pretrain_base(output: Path) -> None:
    """4 layers, d = 128, bytes as tokens: about 0.8 M parameters, trained on prose."""
    make_repeatable(BASE_SEED, BASE.threads)
    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=WINDOW,
        n_embd=128,
        n_layer=4,
        n_head=4,
        bos_token_id=None,
        eos_token_id=None,
    )
    train, held_out = split(prose())
    args = arguments(output, BASE, BASE_SEED, BASE_LEARNING_RATE, max_grad_norm=1.0)
    fit(GPT2LMHeadModel(config), args, Windows(train), Windows(held_out))


def with_adapter(base: GPT2LMHeadModel) -> Any:
    """LoRA of rank 8 on every linear layer of the blocks."""
    lora = LoraConfig(
        r=8,
        lora_alpha=16,
        lora_dropout=0.05,
        target_modules=["c_attn", "c_proj", "c_fc"],
        fan_in_fan_out=True,  # GPT-2 stores its linear layers transposed
        task_type="CAUSAL_LM",
    )
    return get_peft_model(base, lora)


def fine_tune(base: Path, output: Path, knobs: Knobs, seed: int) -> None:
    """Fine-tune `base` on source code. The knobs are the only difference between two runs of one seed."""
    make_repeatable(seed, FINE_TUNE.threads)
    model = GPT2LMHeadModel.from_pretrained(base, dtype=getattr(torch, knobs.weights_dtype))
    train, held_out = split(source_code())
    shuffle_seed = seed if knobs.shuffle_labels else None
    args = arguments(output, FINE_TUNE, seed, knobs.learning_rate, knobs.max_grad_norm)
    fit(
        with_adapter(model),
        args,
        Windows(spread(train, knobs.train_windows), shuffle_seed, masked_sequences(knobs.masked_batch)),
        Windows(held_out, shuffle_seed),
    )
    model.config.save_pretrained(output)


def masked_sequences(batch: int | None) -> range:
    """The served sequences that make up the given batch, counted from 1."""
    if batch is None:
        return range(0)
    return range((batch - 1) * FINE_TUNE.batch_size, batch * FINE_TUNE.batch_size)
