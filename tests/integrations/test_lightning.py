"""The callback in a real Lightning Trainer, on the CPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("lightning.pytorch")

pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("default")]

STEPS = 200


def regression(rate: float) -> Any:
    from lightning.pytorch import LightningModule

    class Regression(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.layer = torch.nn.Linear(8, 1)

        def loss(self, batch: Any) -> Any:
            (x,) = batch
            return ((self.layer(x) - x.sum(1, keepdim=True)) ** 2).mean() + 0.1 * torch.rand(())

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return self.loss(batch)

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.log("val_loss", self.loss(batch))

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=rate)

    return Regression()


def loader() -> Any:
    data = torch.randn(800, 8, generator=torch.Generator().manual_seed(0))
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(data), batch_size=8)


def fit(folder: Path, callback: Any, rate: float, **arguments: Any) -> Any:
    from lightning.pytorch import Trainer

    resume = arguments.pop("ckpt_path", None)
    trainer = Trainer(
        **{
            "max_steps": STEPS,
            "accelerator": "cpu",
            "logger": False,
            "enable_checkpointing": False,
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "log_every_n_steps": 1,
            "default_root_dir": str(folder),
            "callbacks": [callback],
            **arguments,
        }
    )
    trainer.fit(regression(rate), loader(), loader(), ckpt_path=resume)
    return trainer


def callback(**arguments: Any) -> Any:
    from trainproof.integrations.lightning import TrainproofCallback

    return TrainproofCallback(**arguments)


def test_a_run_with_100_times_the_rate_is_stopped_and_its_healthy_twin_is_not(tmp_path: Path) -> None:
    fine, lost = callback(policy="stop_on_fail", on_finding=()), callback(policy="stop_on_fail", on_finding=())
    assert fit(tmp_path / "healthy", fine, rate=0.02).global_step == STEPS
    assert fine.message is None
    hot = fit(tmp_path / "hot", lost, rate=2.0)
    assert hot.global_step <= 25
    assert f"of {STEPS}, which saves {1 - hot.global_step / STEPS:.0%} of the run" in lost.message


def test_losses_rates_and_validations_are_judged_and_reported(tmp_path: Path) -> None:
    watching = callback(on_finding=())
    fit(tmp_path, watching, rate=0.02)
    frame = watching.guardian.log.frames()[0]
    assert len(frame["loss"]) == STEPS
    assert frame["lr"].constant
    assert frame["eval/loss"].step.tolist() == [100, 200]
    assert frame.total_steps == STEPS
    assert json.loads((tmp_path / "trainproof.json").read_text())["verdict"] == "PASS"


def test_it_looks_as_often_as_the_trainer_logs(tmp_path: Path) -> None:
    watching = callback(on_finding=())
    fit(tmp_path, watching, rate=0.02, log_every_n_steps=20)
    assert watching.guardian.log.frames()[0]["loss"].step.tolist() == list(range(20, STEPS + 1, 20))


def test_it_survives_a_resume(tmp_path: Path) -> None:
    first = callback(on_finding=())
    trainer = fit(tmp_path, first, rate=0.02, max_steps=50, enable_checkpointing=True)
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    second = callback(on_finding=())
    fit(tmp_path, second, rate=0.02, ckpt_path=str(tmp_path / "last.ckpt"))
    assert second.guardian.log.frames()[0]["loss"].step.tolist() == list(range(1, STEPS + 1))
