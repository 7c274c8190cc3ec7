"""`transformers.Trainer` as a job: `trainproof record train.py:make`, where make() returns TrainerJob(build)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from trainproof.integrations.driven import SKIP, DrivenJob, Loop
from trainproof.integrations.hf_recorder import without_ids


class TrainerJob(DrivenJob):
    """The Trainer's own loop; see DrivenJob. build: () -> Trainer. It logs and evaluates nothing, and saves only as save_every says. What a
    batch has as "ids" tells its samples, and is not given to the model."""

    @property
    def stateful(self) -> Mapping[str, Any]:
        optimizer = self.trainer.optimizer
        return {
            "model": self.trainer.model,
            "optimizer": getattr(optimizer, "optimizer", optimizer),  # accelerate's wrapper has no hooks
            "scheduler": self.trainer.lr_scheduler,
        }

    def fit(self, loop: Loop, resume: str | None) -> None:
        trainer, train = self.trainer, self.trainer.training_step

        def training_step(model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
            inputs = loop.arrive(inputs)
            if inputs is SKIP:
                return torch.zeros((), device=trainer.args.device)
            loss = train(model, without_ids(inputs), num_items_in_batch)
            # each micro-batch's loss is its share of the step's
            loop.loss = float(loss) * trainer.current_gradient_accumulation_steps
            return loss

        trainer.training_step = training_step
        trainer.add_callback(_Quiet(self.save_every))
        trainer.train(resume_from_checkpoint=resume)

    def steps(self) -> int:
        return int(self.trainer.state.global_step)

    def saved(self) -> Path:
        return Path(self.trainer.args.output_dir) / f"checkpoint-{self.steps()}"

    def evaluate(self) -> float:
        """The loss on the Trainer's eval_dataset."""
        return float(self.trainer.evaluate()["eval_loss"])


class _Quiet(TrainerCallback):
    """No log, no evaluation, and a checkpoint only where it is asked for: a replay must not write over those of the run."""

    def __init__(self, save_every: int) -> None:
        self.save_every = save_every

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        control.should_log = control.should_evaluate = False
        control.should_save = self.save_every > 0 and state.global_step % self.save_every == 0

    def on_epoch_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        control.should_log = control.should_evaluate = control.should_save = False
