"""Lightning: `Trainer(callbacks=[TrainproofCallback(policy="stop_on_fail")])`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from trainproof.facts import Facts
from trainproof.guardian import Guardian
from trainproof.integrations.ending import quietly, tell_stop, write_reports


class TrainproofCallback(Callback):
    """Judges the run every `every_n_steps` (default: the Trainer's log_every_n_steps) and after each validation.

    It takes the loss that `training_step` returns and everything that was logged. policy: "warn" (default) only tells, "stop_on_fail" ends
    the training. guardian: further arguments of `trainproof.Guardian`. The report is in the Trainer's `log_dir`. `message` says why the
    run was stopped.
    """

    def __init__(self, policy: str = "warn", every_n_steps: int | None = None, **guardian: Any) -> None:
        self._arguments = {"policy": policy, **guardian}
        self.guardian = Guardian(**self._arguments)
        self.message: str | None = None
        self._every = every_n_steps
        self._state: Mapping[str, Any] | None = None
        self._validated: set[str] = set()
        self._last = -1

    @quietly()
    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        facts = Facts(self._arguments.get("facts"))
        facts.declare("total_steps", _planned(trainer), "Trainer")
        facts.declare("accumulation", trainer.accumulate_grad_batches, "Trainer")
        facts.declare("max_grad_norm", trainer.gradient_clip_val or 0, "Trainer")
        facts.declare("precision", str(trainer.precision), "Trainer")
        facts.declare("world_size", trainer.world_size, "Trainer")
        self.guardian = Guardian(**{**self._arguments, "facts": facts, "rank": trainer.global_rank})
        if self._state is not None:
            self.guardian.load_state_dict(self._state)

    @quietly()
    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        step = trainer.global_step
        if step == self._last or step % (self._every or trainer.log_every_n_steps or 1):
            return
        self._last = step
        record = {name: value for name, value in trainer.callback_metrics.items() if name not in self._validated}
        loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
        if isinstance(loss, torch.Tensor):
            record["loss"] = loss.detach()
        if trainer.optimizers:
            record.setdefault("lr", trainer.optimizers[0].param_groups[0]["lr"])
        self.guardian.record(step, record)
        self._stop_if_lost(trainer)

    @quietly()
    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.sanity_checking:
            return
        metrics = {name: value for name, value in trainer.callback_metrics.items() if _is_validation(name)}
        self._validated.update(metrics)
        self.guardian.record(trainer.global_step, metrics)
        self._stop_if_lost(trainer)

    @quietly()
    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.is_global_zero:
            self.guardian.ask()
            write_reports(self.guardian, trainer.log_dir or trainer.default_root_dir)

    def state_dict(self) -> dict[str, Any]:
        return self.guardian.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._state = state_dict

    def _stop_if_lost(self, trainer: Trainer) -> None:
        stop = trainer.strategy.reduce_boolean_decision(self.guardian.should_stop, all=False)
        if stop and self.message is None:
            trainer.should_stop = True
            self.message = tell_stop(self.guardian, trainer.global_step, _planned(trainer))


def _planned(trainer: Trainer) -> int | None:
    total = trainer.estimated_stepping_batches
    return int(total) if 0 < total < float("inf") else None


def _is_validation(name: str) -> bool:
    return name.startswith(("val", "eval", "test"))
