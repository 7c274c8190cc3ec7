"""Trainings by frameworks' own loops, as jobs; found as "framework_jobs.py:NAME"."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

FILE = __file__
WORDS, LENGTH, SAMPLES = 17, 8, 48


def _words() -> Any:
    return torch.randint(0, WORDS, (SAMPLES, LENGTH), generator=torch.Generator().manual_seed(1))


def hf(settings: dict[str, Any]) -> Any:
    """A small Llama; settings: out (a folder), accumulation, workers, save_every, random (the data set draws from numpy)."""
    import transformers

    from trainproof.integrations.hf_job import TrainerJob

    def rows(words: list[Any]) -> Any:
        stacked = torch.stack(words)
        if settings.get("random"):
            stacked[:, np.random.randint(LENGTH)] = 1
        return {"input_ids": stacked, "labels": stacked.clone()}

    def build() -> Any:
        transformers.set_seed(3)
        config = transformers.LlamaConfig(
            vocab_size=WORDS,
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            attention_dropout=0.1,
            max_position_embeddings=LENGTH,
            bos_token_id=None,
            eos_token_id=None,
        )
        arguments = transformers.TrainingArguments(
            output_dir=settings["out"],
            max_steps=20,
            per_device_train_batch_size=4,
            gradient_accumulation_steps=int(settings.get("accumulation", 1)),
            dataloader_num_workers=int(settings.get("workers", 0)),
            learning_rate=1e-2,
            warmup_steps=5,
            use_cpu=True,
            report_to=[],
            disable_tqdm=True,
            remove_unused_columns=False,
        )
        data: Any = list(_words())
        model = transformers.LlamaForCausalLM(config)
        return transformers.Trainer(model=model, args=arguments, train_dataset=data, data_collator=rows)

    return TrainerJob(build, save_every=int(settings.get("save_every", 0)))


def lightning(settings: dict[str, Any]) -> Any:
    """A regression with dropout; settings: out (a folder), accumulation, shuffle, save_every."""
    from lightning.pytorch import LightningModule, Trainer

    from trainproof.integrations.lightning_job import FitJob

    class Regression(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Sequential(torch.nn.Linear(LENGTH, 16), torch.nn.Dropout(0.2), torch.nn.Linear(16, 1))

        def training_step(self, batch: Any, *_: Any) -> Any:
            (x,) = batch
            return ((self.net(x) - x.sum(1, keepdim=True)) ** 2).mean()

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
            return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)]

    def build() -> Any:
        torch.manual_seed(3)
        data = torch.utils.data.TensorDataset(_words() / WORDS)
        loader = torch.utils.data.DataLoader(data, 4, shuffle=bool(settings.get("shuffle")))
        trainer = Trainer(
            max_steps=20,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            accumulate_grad_batches=int(settings.get("accumulation", 1)),
            default_root_dir=settings["out"],
        )
        return trainer, Regression(), loader

    return FitJob(build, save_every=int(settings.get("save_every", 0)))
