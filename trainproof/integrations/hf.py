"""Hugging Face: a callback for `transformers.Trainer` and for TRL's trainers.

trainer = Trainer(..., callbacks=[TrainproofCallback(policy="stop_on_fail")])
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from trainproof.facts import Facts
from trainproof.guardian import Guardian
from trainproof.integrations.ending import quietly, tell_stop, write_reports
from trainproof.readers.beside import config_fields
from trainproof.readers.hf import SUMMARY_KEY


class TrainproofCallback(TrainerCallback):
    """Judges the run at each log; `trainproof.json` and `trainproof.html` are in `output_dir` at its end.

    policy: "warn" (default) only tells, "stop_on_fail" ends the training. guardian: further arguments of `trainproof.Guardian`. By default
    the Trainer hides losses that are not finite (logging_nan_inf_filter); this sees them, in the model's own output. `message` says why
    the run was stopped. What the Trainer logs is never changed, and nothing that goes wrong here reaches it.
    """

    def __init__(self, policy: str = "warn", **guardian: Any) -> None:
        self._arguments = {"policy": policy, **guardian}
        self.guardian = Guardian(**self._arguments)  # tells wrong arguments at once
        self.message: str | None = None
        self._loss: _RawLoss | None = None

    @quietly()
    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model: Any = None, **_: Any
    ) -> None:
        facts = Facts(self._arguments.get("facts")).merged(_facts(args, state, model))
        rank = 0 if state.is_world_process_zero else 1
        self.guardian = Guardian(**{**self._arguments, "facts": facts, "rank": rank})
        self.message = None
        if args.logging_nan_inf_filter:
            self.guardian.log.notes.mask("loss")
            self._loss = _RawLoss(model) if isinstance(model, torch.nn.Module) else None
        for record in state.log_history:  # of the run that is resumed
            if "step" in record and SUMMARY_KEY not in record:
                self.guardian.record(record["step"], {name: value for name, value in record.items() if name != "step"})

    @quietly()
    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> None:
        if not logs or SUMMARY_KEY in logs:
            return
        record = dict(logs)
        if "loss" in record and self._loss is not None and not self._loss.was_finite():
            record["loss"] = float("nan")
        self.guardian.record(state.global_step, record)
        if self.message is None and _any_rank(self.guardian.should_stop, args):
            control.should_training_stop = True
            self.message = tell_stop(self.guardian, state.global_step, state.max_steps)

    @quietly()
    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if self._loss is not None:
            self._loss.remove()
            self._loss = None
        if state.is_world_process_zero:
            self.guardian.ask()
            write_reports(self.guardian, args.output_dir or ".")


class _RawLoss:
    """Whether every loss that the model has given in training since the last question was finite."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._bad: torch.Tensor | None = None  # stays on its device: asking it at each step would wait for the device
        self._hook = model.register_forward_hook(self._see)

    def _see(self, module: torch.nn.Module, _: Any, output: Any) -> None:
        loss = output.get("loss") if isinstance(output, Mapping) else None
        if module.training and isinstance(loss, torch.Tensor):
            bad = ~torch.isfinite(loss.detach()).all()
            self._bad = bad if self._bad is None else self._bad | bad

    def was_finite(self) -> bool:
        """Whether it was; the question begins anew."""
        bad, self._bad = self._bad, None
        return bad is None or not bool(bad)

    def remove(self) -> None:
        self._hook.remove()


def _facts(args: TrainingArguments, state: TrainerState, model: Any) -> Facts:
    """What the arguments and the model declare."""
    facts = Facts(
        {"total_steps": state.max_steps, "epochs": state.num_train_epochs}
    )  # max_steps overrides the arguments' epochs
    for name, value in args.to_dict().items():
        facts.declare(name, value, "TrainingArguments")
    if args.bf16 or args.fp16:
        facts.declare("precision", "bf16" if args.bf16 else "fp16", "TrainingArguments")
    facts.declare("world_size", args.world_size, "TrainingArguments")
    config = getattr(model, "config", None)
    if config is not None and hasattr(config, "to_dict"):
        for name, value in config_fields({"architectures": [type(model).__name__], **_given(config.to_dict())}):
            facts.declare(name, value, "the model's config")
    if hasattr(model, "peft_config"):
        facts.declare("pretrained", True, "PEFT")
    return facts


def _given(config: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in config.items() if value is not None}


def _any_rank(stop: bool, args: TrainingArguments) -> bool:
    """Whether any process wants to stop: all of them log at the same step, and all have to stop there."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return stop
    wanted = torch.tensor(int(stop), device=args.device)
    torch.distributed.all_reduce(wanted, op=torch.distributed.ReduceOp.MAX)
    return bool(wanted.item())
