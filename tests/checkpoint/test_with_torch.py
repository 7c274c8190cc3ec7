"""What torch itself writes and reads."""

from __future__ import annotations

import warnings
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainproof.checkpoint.opening import open_checkpoints
from trainproof.checkpoint.scan import scan
from trainproof.errors import InputError

pytestmark = pytest.mark.frameworks


def trained(torch: Any, steps: int = 5) -> tuple[Any, Any, Any]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.Linear(16, 4))
    optimizer = torch.optim.AdamW(model.parameters())
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(3, 8)).sum().backward()
        optimizer.step()
        scheduler.step()
    return model, optimizer, scheduler


def test_every_tensor_is_the_one_that_torch_reads(tmp_path: Path) -> None:
    torch: Any = pytest.importorskip("torch")
    base = torch.randn(6, 4)
    saved = {
        "model": {
            **{f"{dtype}": torch.randn(3, 5).to(getattr(torch, dtype)) for dtype in ("float64", "float32", "float16", "bfloat16")},
            "int64": torch.arange(7), "bool": torch.tensor([True, False]), "complex64": torch.randn(3, dtype=torch.complex64),
            "fp8": torch.randn(5).to(torch.float8_e4m3fn), "turned": base.t(), "part": base[2:4], "empty": torch.empty(0, 3),
            "parameter": torch.nn.Parameter(torch.randn(2, 2)), "scalar": torch.tensor(3.5),
        }
    }  # fmt: skip
    torch.save(saved, tmp_path / "a.pt")
    read = torch.load(tmp_path / "a.pt", weights_only=True)["model"]
    (ours,) = open_checkpoints(str(tmp_path / "a.pt"))
    assert {t.name.removeprefix("model.") for t in ours.tensors} == set(read)
    raw = (tmp_path / "a.pt").read_bytes()
    for tensor in ours.tensors:
        theirs = read[tensor.name.removeprefix("model.")]
        assert (tensor.dtype, tensor.shape) == (str(theirs.dtype).removeprefix("torch."), tuple(theirs.shape))
        order = theirs.detach().t() if tensor.strides else theirs.detach()
        assert (
            raw[tensor.offset : tensor.offset + tensor.nbytes]
            == order.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        )
    assert scan(ours, verify=True)[1] == []


def test_counts_are_those_of_torch(tmp_path: Path) -> None:
    torch: Any = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    tensors = {}
    for dtype in ("float64", "float32", "float16", "bfloat16", "float8_e5m2", "float8_e4m3fn"):
        codes = torch.from_numpy(rng.integers(0, 256, 40_000, dtype=np.uint8))
        tensors[dtype] = codes.view(getattr(torch, dtype))
    torch.save(tensors, tmp_path / "a.pt")
    (ours,) = open_checkpoints(str(tmp_path / "a.pt"))
    found, _ = scan(ours)
    for tensor, seen in zip(ours.tensors, found, strict=True):
        wide = tensors[tensor.name].double()
        assert (seen.nan, seen.infinite) == (int(wide.isnan().sum()), int(wide.isinf().sum())), tensor.name
        assert seen.nan > 0


def test_a_distributed_checkpoint(tmp_path: Path) -> None:
    torch: Any = pytest.importorskip("torch")
    distributed = import_module("torch.distributed.checkpoint")
    model, optimizer, scheduler = trained(torch)
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "scheduler": scheduler.state_dict(),
        "step": 5,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        distributed.save(state, checkpoint_id=tmp_path / "step-5")
    (ours,) = open_checkpoints(str(tmp_path / "step-5"))
    assert {t.name for t in ours.of("model")} == {f"model.{name}" for name in model.state_dict()}
    assert ours.step == 5
    from trainproof.checkpoint.optimizers import optimizers, scheduler_step

    (found,) = optimizers(ours)
    assert (found.step, found.parameters, scheduler_step(ours)) == (5, 6, 5)
    assert scan(ours, verify=True)[1] == []


def test_what_torch_refuses_we_never_run(tmp_path: Path) -> None:
    torch: Any = pytest.importorskip("torch")
    from tests.checkpoint.archives import save_torch
    from tests.checkpoint.test_hostile import payloads

    mark = tmp_path / "mark"
    for name, payload in payloads(mark).items():
        path = save_torch(tmp_path / "a.pt", None, payload)
        with pytest.raises(Exception, match=r"."):
            torch.load(path, weights_only=True)
        with suppress(InputError):
            open_checkpoints(str(path))
        assert not mark.exists(), name
