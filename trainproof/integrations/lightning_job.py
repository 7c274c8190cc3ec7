"""Lightning as a job: `trainproof record train.py:make`, where make() returns FitJob(build)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from trainproof.integrations.driven import SKIP, DrivenJob, Loop


class FitJob(DrivenJob):
    """The loop of `Trainer.fit` with one optimizer; see DrivenJob. build: () -> (Trainer, LightningModule, training loader)."""

    @property
    def stateful(self) -> Mapping[str, Any]:
        trainer, module, _ = self.trainer
        schedulers = [config.scheduler for config in trainer.lr_scheduler_configs]
        return {
            "model": module,
            "optimizer": trainer.optimizers[0],
            **({"scheduler": schedulers[0]} if schedulers else {}),
        }

    def fit(self, loop: Loop, resume: str | None) -> None:
        trainer, module, loader = self.trainer
        train, done = module.training_step, -1

        def training_step(batch: Any, *arguments: Any) -> Any:
            nonlocal done
            if trainer.global_step != done:
                module.zero_grad()  # those of the last step are done with; Lightning itself does it after the forward pass only
            done = trainer.global_step
            batch = loop.arrive(batch)
            if batch is SKIP:
                return None
            said = train(batch, *arguments)
            loss = said["loss"] if isinstance(said, Mapping) else said
            loop.loss = float(loss)
            return said

        module.training_step = training_step
        trainer.callbacks.append(_Saving(self))
        trainer.fit(module, loader, ckpt_path=resume)

    def steps(self) -> int:
        return int(self.trainer[0].global_step)

    def saved(self) -> Path:
        return Path(self.trainer[0].default_root_dir) / f"trainproof-step-{self.steps()}.ckpt"


class _Saving(Callback):
    """A checkpoint where one is asked for, at the place in the loop where ModelCheckpoint makes its own."""

    def __init__(self, job: FitJob) -> None:
        self.job = job

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        every = self.job.save_every
        if every and trainer.global_step % every == 0 and not self.job.saved().exists():
            trainer.save_checkpoint(self.job.saved())
