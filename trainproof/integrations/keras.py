"""Keras 3: `model.fit(..., callbacks=[TrainproofCallback(policy="stop_on_fail")])`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras

from trainproof.facts import Facts
from trainproof.guardian import Guardian
from trainproof.integrations.ending import quietly, tell_stop, write_reports


class TrainproofCallback(keras.callbacks.Callback):
    """Judges the run at each batch (or at each call, with steps_per_execution) and after each epoch's validation.

    Keras reports the mean of the loss since the epoch began; what is judged is the loss of the batches since the last call, which follows
    from two such means. policy: "warn" (default) only tells, "stop_on_fail" ends the training. folder: where the report is written (default:
    nowhere). guardian: further arguments of `trainproof.Guardian`. `message` says why the run was stopped.
    """

    def __init__(self, policy: str = "warn", folder: str | None = None, **guardian: Any) -> None:
        super().__init__()
        self._arguments = {"policy": policy, **guardian}
        self.guardian = Guardian(**self._arguments)
        self.message: str | None = None
        self._folder = folder
        self._begin_epoch(0)
        self._steps = 0  # of the epochs that are over

    def _begin_epoch(self, epoch: int) -> None:
        self._epoch, self._batches, self._sum = epoch, 0, 0.0

    @quietly()
    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        facts = Facts(self._arguments.get("facts"))
        epochs, steps = self.params.get("epochs"), self.params.get("steps")
        facts.declare("epochs", epochs, "fit")
        if epochs and steps:
            facts.declare("total_steps", epochs * steps, "fit")
            facts.declare("steps_per_epoch", steps, "fit")
        self.guardian = Guardian(**{**self._arguments, "facts": facts})
        self._steps = 0

    @quietly()
    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        self._begin_epoch(epoch)

    @quietly()
    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        if not logs or "loss" not in logs:
            return
        batches, mean = batch + 1, float(logs["loss"])
        total = mean * batches
        loss = (total - self._sum) / max(1, batches - self._batches)
        self._batches, self._sum = batches, total
        record = {"loss": loss, "epoch": self._epoch + batches / (self.params.get("steps") or batches)}
        if (rate := _rate(self.model)) is not None:
            record["lr"] = rate
        self.guardian.record(self._steps + batches, record)
        self._stop_if_lost()

    @quietly()
    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        self._steps += self._batches
        validated = {name: value for name, value in (logs or {}).items() if name.startswith("val_")}
        self.guardian.record(self._steps, validated)
        self._begin_epoch(epoch + 1)
        self._stop_if_lost()

    @quietly()
    def on_train_end(self, logs: Mapping[str, Any] | None = None) -> None:
        self.guardian.ask()
        if self._folder is not None:
            write_reports(self.guardian, self._folder)

    def _stop_if_lost(self) -> None:
        if self.guardian.should_stop and self.message is None:
            self.model.stop_training = True
            step = self._steps + self._batches
            self.message = tell_stop(self.guardian, step, self.guardian.planned_steps)


def _rate(model: Any) -> float | None:
    """The optimizer's learning rate, where it is a number or becomes one."""
    try:
        return float(model.optimizer.learning_rate)
    except (AttributeError, TypeError, ValueError):
        return None
