"""The tracker in a real Accelerator, on the CPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
accelerate = pytest.importorskip("accelerate")

pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("default")]

STEPS = 150


def train(tracker: Any, rate: float) -> int:
    """A training loop as the module shows it; the number of steps that it made."""
    torch.manual_seed(0)
    accelerator = accelerate.Accelerator(cpu=True, log_with=[tracker])
    accelerator.init_trackers("run", config={"max_steps": STEPS, "learning_rate": rate})
    model = torch.nn.Linear(8, 1)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=rate))
    for step in range(1, STEPS + 1):
        x = torch.randn(8, 8)
        loss = ((model(x) - x.sum(1, keepdim=True)) ** 2).mean() + 0.1 * torch.rand(())
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        accelerator.log({"loss": loss.detach(), "lr": rate}, step=step)
        if tracker.should_stop:
            accelerator.set_trigger()
        if accelerator.check_trigger():
            break
    accelerator.end_training()
    return step


def test_a_run_with_100_times_the_rate_is_stopped_and_its_healthy_twin_is_not(tmp_path: Path) -> None:
    from trainproof.integrations.accelerate import TrainproofTracker

    fine = TrainproofTracker(policy="stop_on_fail", on_finding=(), folder=str(tmp_path))
    lost = TrainproofTracker(policy="stop_on_fail", on_finding=())
    assert train(fine, rate=0.02) == STEPS
    assert fine.message is None
    step = train(lost, rate=2.0)
    assert step <= 25
    assert f"of {STEPS}, which saves {1 - step / STEPS:.0%} of the run" in str(lost.message)
    assert json.loads((tmp_path / "trainproof.json").read_text())["runs"][0]["facts"]["total_steps"] == STEPS
