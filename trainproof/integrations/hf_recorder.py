"""Hugging Face: record a `Trainer`'s own `train()`, so that `trainproof replay` can run the script again.

trainer.add_callback(RecorderCallback(trainer, "runs/a", checkpoint_every=200))
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from trainproof.record.recorder import Recorder


def without_ids(inputs: Any) -> Any:
    """The inputs as a model takes them."""
    return {name: value for name, value in inputs.items() if name != "ids"} if "ids" in inputs else inputs


class RecorderCallback(TrainerCallback):
    """Records the trainer's run into a folder; `recorder` is its trainproof.Recorder, from the beginning of the training on.

    Sample ids are what a batch has as "ids", which the model is not given. options: further arguments of the Recorder. In a replay the trainer
    goes past the batches before the checkpoint by its own loop, and saves nothing; the order of its data must depend on the seed and the epoch
    only. Of one process, or of several that torch.distributed's variables name.
    """

    def __init__(self, trainer: Any, folder: str, **options: Any) -> None:
        self.trainer, self.folder, self.options = trainer, folder, options
        self.recorder: Recorder | None = None
        self._own: tuple[Any, Any] | None = None
        self._iterator: Any = None

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model: Any = None, **_: Any
    ) -> None:
        trainer, optimizer = self.trainer, self.trainer.optimizer
        facts = {"facts": {"total_steps": state.max_steps}}
        self.recorder = Recorder(
            self.folder,
            model=model,
            optimizer=getattr(optimizer, "optimizer", optimizer),  # accelerate's wrapper has no hooks
            scheduler=trainer.lr_scheduler,
            **{"header": facts, **self.options},
        )
        self._own = trainer.get_batch_samples, trainer.training_step
        trainer.get_batch_samples, trainer.training_step = self._fetch, self._step

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if self.recorder is None:
            return
        if self.recorder.going:
            control.should_log = control.should_evaluate = control.should_save = False
        else:
            self.recorder.ended()
        if self.recorder.goal is not None:
            control.should_save = False

    def on_epoch_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if self.recorder is not None and self.recorder.goal is not None:
            control.should_save = False
            if self.recorder.going:
                control.should_log = control.should_evaluate = False

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, metrics: Any = None, **_: Any
    ) -> None:
        if self.recorder is not None and not self.recorder.going:
            self.recorder.evaluated(
                **{name: value for name, value in (metrics or {}).items() if name.endswith("_loss")}
            )

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if self.recorder is not None and self._own is not None:
            self.recorder.close()
            self.trainer.get_batch_samples, self.trainer.training_step = self._own

    def _fetch(self, iterator: Any, *arguments: Any, **named: Any) -> Any:
        recorder, (fetch, _) = self._recording()
        # the loader of accelerate fetches one batch more than it gives
        recorder.before_fetch(begins=() if iterator is not self._iterator else None, ahead=True)
        self._iterator = iterator
        return fetch(iterator, *arguments, **named)

    def _step(self, model: Any, inputs: Any, *arguments: Any, **named: Any) -> Any:
        recorder, (_, train) = self._recording()
        if recorder.going:
            recorder.passed()
            return torch.zeros((), device=self.trainer.args.device)
        step = recorder.opened()
        loss = train(model, without_ids(recorder.fetched(inputs)), *arguments, **named)
        # each micro-batch's loss is its share of the step's
        step.loss(loss.detach() * self.trainer.current_gradient_accumulation_steps)
        return loss

    def _recording(self) -> tuple[Recorder, tuple[Any, Any]]:
        if self.recorder is None or self._own is None:
            raise RuntimeError("the training did not begin")
        return self.recorder, self._own
