"""Lightning: record a `Trainer.fit`, so that `trainproof replay` can run the script again.

Trainer(callbacks=[RecorderCallback("runs/a", checkpoint_every=200)])
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from trainproof.record.recorder import Recorder


class RecorderCallback(Callback):
    """Records a fit with one optimizer into a folder; `recorder` is its trainproof.Recorder, from the beginning of the training on.

    options: further arguments of the Recorder. In a replay the trainer goes past the batches before the checkpoint by its own loop; what other
    callbacks do there they do again, but for checkpoints, of which it saves none.
    """

    def __init__(self, folder: str, **options: Any) -> None:
        self.folder, self.options = folder, options
        self.recorder: Recorder | None = None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        schedulers = [config.scheduler for config in trainer.lr_scheduler_configs]
        recorder = self.recorder = Recorder(
            self.folder,
            model=pl_module,
            optimizer=trainer.optimizers[0],
            scheduler=schedulers[0] if schedulers else None,
            **self.options,
        )
        train = pl_module.training_step

        def training_step(batch: Any, *arguments: Any) -> Any:
            if recorder.going:
                recorder.passed()
                return None
            step = recorder.opened()
            said = train(recorder.fetched(batch), *arguments)
            step.loss(said["loss"] if isinstance(said, Mapping) else said)
            return said

        pl_module.training_step = training_step
        if recorder.goal is not None:
            trainer.save_checkpoint = lambda *_, **__: (
                None
            )  # a replay writes nothing; checkpoint callbacks save by this method

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.recorder is not None:
            self.recorder.before_fetch(begins=())

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        if self.recorder is not None:
            if not self.recorder.going:
                self.recorder.ended()
            self.recorder.before_fetch()

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        value = trainer.callback_metrics.get("val_loss")
        if self.recorder is not None and not self.recorder.going and value is not None and not trainer.sanity_checking:
            self.recorder.evaluated(eval_loss=float(value))

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.recorder is not None:
            self.recorder.close()
