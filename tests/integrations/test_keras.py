"""The callback in a real Keras fit (on the torch backend), on the CPU."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

os.environ.setdefault("KERAS_BACKEND", "torch")
torch = pytest.importorskip("torch")
keras = pytest.importorskip("keras")

pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("default")]

BATCHES, EPOCHS = 50, 4


def fit(callbacks: list[Any], rate: float, **arguments: Any) -> Any:
    keras.utils.set_random_seed(0)
    random = np.random.default_rng(0)
    x = random.normal(size=(8 * BATCHES, 8)).astype("float32")
    y = x.sum(1, keepdims=True) + random.normal(0, 0.3, (8 * BATCHES, 1)).astype("float32")
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(rate), "mse", **arguments)
    return model.fit(
        x, y, batch_size=8, epochs=EPOCHS, validation_data=(x[:80], y[:80]), verbose=0, callbacks=callbacks
    )


def callback(**arguments: Any) -> Any:
    from trainproof.integrations.keras import TrainproofCallback

    return TrainproofCallback(**arguments)


def test_a_run_with_100_times_the_rate_is_stopped_and_its_healthy_twin_is_not() -> None:
    fine, lost = callback(policy="stop_on_fail", on_finding=()), callback(policy="stop_on_fail", on_finding=())
    assert len(fit([fine], rate=0.01).epoch) == EPOCHS
    assert fine.message is None
    fit([lost], rate=1.0)
    assert lost.guardian.log.frames()[0]["loss"].step[-1] <= 25
    assert f"of {BATCHES * EPOCHS}, which saves" in lost.message


def test_each_batch_has_its_own_loss_and_each_epoch_its_validation(tmp_path: Path) -> None:
    watching = callback(on_finding=(), folder=str(tmp_path))
    means: list[float] = []

    seen = keras.callbacks.LambdaCallback(on_train_batch_end=lambda _, logs: means.append(logs["loss"]))
    fit([watching, seen], rate=0.01)
    frame = watching.guardian.log.frames()[0]
    assert len(frame["loss"]) == BATCHES * EPOCHS
    for epoch in range(EPOCHS):
        own = frame["loss"].value[epoch * BATCHES : (epoch + 1) * BATCHES]
        assert np.cumsum(own) / np.arange(1, BATCHES + 1) == pytest.approx(
            means[epoch * BATCHES : (epoch + 1) * BATCHES], rel=1e-4
        )
    assert frame["eval/loss"].step.tolist() == [BATCHES * (i + 1) for i in range(EPOCHS)]
    assert frame["lr"].value[0] == pytest.approx(0.01)
    assert frame.total_steps == BATCHES * EPOCHS
    assert json.loads((tmp_path / "trainproof.json").read_text())["verdict"] in ("PASS", "WARN")


def test_steps_per_execution_is_one_record_a_call() -> None:
    """The torch backend has none, so the calls that Keras makes with 5 of them are made here."""
    watching = callback(on_finding=())
    watching.set_params({"epochs": 1, "steps": 15})
    watching.on_train_begin()
    watching.on_epoch_begin(0)
    for batch, mean in ((4, 3.0), (9, 2.0), (14, 4.0)):
        watching.on_train_batch_end(batch, {"loss": mean})
    loss = watching.guardian.log.frames()[0]["loss"]
    assert loss.step.tolist() == [5, 10, 15]
    assert loss.value.tolist() == [3.0, 1.0, 8.0]
