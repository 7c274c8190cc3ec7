"""Accelerate: a tracker that judges what is logged.

tracker = TrainproofTracker(policy="stop_on_fail")
accelerator = Accelerator(log_with=[tracker])
accelerator.init_trackers("run", config={"total_steps": 10000})
...
accelerator.log({"loss": loss}, step=step)
if tracker.should_stop:       # on the main process; for all of them:
    accelerator.set_trigger()
if accelerator.check_trigger():
    break
...
accelerator.end_training()
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from accelerate.tracking import GeneralTracker

from trainproof.facts import Facts
from trainproof.guardian import Guardian
from trainproof.integrations.ending import quietly, tell_stop, write_reports


class TrainproofTracker(GeneralTracker):
    """Judges what the main process logs. policy: "warn" (default) only tells, with "stop_on_fail" `should_stop` becomes True. folder: where
    the report is written at the end (default: nowhere). guardian: further arguments of `trainproof.Guardian`."""

    name = "trainproof"
    requires_logging_directory = False
    main_process_only = True

    def __init__(self, policy: str = "warn", folder: str | None = None, **guardian: Any) -> None:
        super().__init__()
        self._arguments = {"policy": policy, **guardian}
        self.guardian = Guardian(**self._arguments)
        self.message: str | None = None
        self._folder = folder
        self._step = 0

    @property
    def tracker(self) -> Guardian:
        return self.guardian

    @property
    def should_stop(self) -> bool:
        return self.guardian.should_stop

    @quietly()
    def store_init_configuration(self, values: Mapping[str, Any]) -> None:
        """What the run declares: total_steps, vocab_size, max_grad_norm ... under their usual names."""
        facts = Facts(self._arguments.get("facts"))
        for name, value in values.items():
            facts.declare(name, value, "init_trackers")
        self.guardian = Guardian(**{**self._arguments, "facts": facts})

    @quietly()
    def log(self, values: Mapping[str, Any], step: int | None = None, **_: Any) -> None:
        self._step = self._step + 1 if step is None else step
        self.guardian.record(self._step, values)
        if self.should_stop and self.message is None:
            self.message = tell_stop(self.guardian, self._step, self.guardian.planned_steps)

    @quietly()
    def finish(self) -> None:
        self.guardian.ask()
        if self._folder is not None:
            write_reports(self.guardian, self._folder)
