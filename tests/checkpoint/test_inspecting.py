"""Checkpoints with one known fault each, and healthy ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.checkpoint.archives import Call, Global, save_safetensors, save_torch
from trainproof.checkpoint import scan as scanning
from trainproof.checkpoint.inspecting import inspect_checkpoint
from trainproof.checkpoint.opening import open_checkpoints
from trainproof.checkpoint.scan import Scan, scan
from trainproof.judge import Settings
from trainproof.verdict import RunReport

RNG = np.random.default_rng(0)


def weights(seed: int = 0, more: dict[str, Any] | None = None) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    shapes = {"embed.weight": (16, 8), "layer.weight": (8, 8), "layer.bias": (8,)}
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()} | (more or {})


def optimizer(step: int, model: dict[str, Any], scheduled: bool = True) -> dict[str, Any]:
    state = {
        i: {"step": np.array(float(step), np.float32), "exp_avg": np.ones_like(w)} for i, w in enumerate(model.values())
    }
    group: dict[str, Any] = {"lr": 0.1, "params": list(range(len(model)))} | ({"initial_lr": 0.1} if scheduled else {})
    return {"state": state, "param_groups": [group]}


def training(*, step: int = 100, **more: Any) -> dict[str, Any]:
    model = weights()
    parts = {
        "model": model,
        "optimizer": optimizer(step, model),
        "scheduler": {"last_epoch": step},
        "rng_state": np.zeros(8, np.int64),
        "sampler": {"position": 3},
        "step": step,
    } | more
    return {key: value for key, value in parts.items() if value is not None}


def judged(path: Path, older: Path | None = None, **options: Any) -> RunReport:
    return inspect_checkpoint(str(path), str(older) if older else None, Settings(), **options)[-1]


def said(report: RunReport) -> list[tuple[str, str]]:
    return [(finding.rule, finding.severity.value) for finding in report.findings]


def test_a_whole_checkpoint_passes(tmp_path: Path) -> None:
    report = judged(save_torch(tmp_path / "a.pt", training()))
    assert (report.verdict.value, said(report), report.first_step, report.kind) == ("PASS", [], 100, "checkpoint")
    assert report.facts["parameters"] == 16 * 8 + 8 * 8 + 8


def test_nonfinite_values_are_counted_by_tensor(tmp_path: Path) -> None:
    model = weights()
    model["layer.weight"][0, :3] = np.nan
    model["layer.weight"][1, 1] = -np.inf
    report = judged(save_torch(tmp_path / "a.pt", training(model=model)))
    finding = report.findings[0]
    assert said(report) == [("TP990", "FAIL")]
    assert "3 NaN and 1 infinities in 1 of" in finding.message
    assert [(e.metric, e.step, e.value, e.line) for e in finding.evidence] == [("model.layer.weight", 100, 4, 2)]


def test_a_nan_in_a_moment_fails_and_an_infinite_mask_does_not(tmp_path: Path) -> None:
    state = training()
    state["optimizer"]["state"][1]["exp_avg"][0, 0] = np.nan
    assert said(judged(save_torch(tmp_path / "a.pt", state))) == [("TP990", "FAIL")]
    mask = np.triu(np.full((8, 8), -np.inf, np.float32), 1)
    report = judged(save_torch(tmp_path / "b.pt", training(model=weights(more={"attn.mask": mask}))))
    assert (report.verdict.value, said(report)) == ("PASS", [("TP990", "INFO")])


def test_zero_weights_are_told_but_for_those_that_start_at_zero(tmp_path: Path) -> None:
    zeros = np.zeros((8, 8), np.float32)
    model = weights(more={"head.weight": zeros, "gate.weight": zeros, "other.bias": np.zeros(8, np.float32)})
    report = judged(save_torch(tmp_path / "a.pt", training(model=model)))
    assert said(report) == [("TP992", "WARN")]
    assert [e.metric for e in report.findings[0].evidence] == ["model.head.weight"]


@pytest.mark.parametrize(
    ("missing", "expected"),
    [
        ("optimizer", [("TP993", "FAIL")]),
        ("scheduler", [("TP993", "WARN")]),
        ("rng_state", [("TP993", "INFO")]),
        ("sampler", [("TP993", "INFO")]),
    ],
)
def test_missing_state(tmp_path: Path, missing: str, expected: list[tuple[str, str]]) -> None:
    assert (
        said(judged(save_torch(tmp_path / "a.pt", {key: part for key, part in training().items() if key != missing})))
        == expected
    )


def test_weights_alone_are_nothing_to_resume_from(tmp_path: Path) -> None:
    for state in (weights(), {"model": weights(), "epoch": 3, "global_step": 900}):
        report = judged(save_torch(tmp_path / "a.pt", state))
        assert report.skipped["TP993"] == "it holds weights only: nothing to resume from"
        assert report.verdict.value == "PASS"


def test_steps_of_an_unknown_loop_may_be_micro_batches(tmp_path: Path) -> None:
    model = weights()
    for counted, expected in (
        (100, []),
        (101, []),
        (400, []),
        (401, []),
        (30, [("TP993", "WARN")]),
        (170, [("TP993", "WARN")]),
    ):
        state = training(step=counted, optimizer=optimizer(100, model))
        assert said(judged(save_torch(tmp_path / "a.pt", state))) == expected, counted


def hf_folder(
    path: Path, step: int = 100, counted: int | None = None, *, without: str = "", seed: int = 0, fp16: bool = False
) -> Path:
    model = weights(seed)
    save_safetensors(path / "model.safetensors", model)
    save_torch(path / "optimizer.pt", optimizer(step if counted is None else counted, model))
    save_torch(path / "scheduler.pt", {"last_epoch": step})
    save_torch(path / "rng_state.pth", {"python": (3, (1, 2), None), "cpu": np.zeros(8, np.int64)})
    save_torch(path / "training_args.bin", Call("transformers.training_args TrainingArguments", state={"fp16": fp16}))
    (path / "trainer_state.json").write_text(json.dumps({"global_step": step, "log_history": []}))
    if without:
        (path / without).unlink()
    return path


def test_a_folder_of_the_trainer(tmp_path: Path) -> None:
    assert judged(hf_folder(tmp_path / "checkpoint-100")).verdict.value == "PASS"
    assert said(judged(hf_folder(tmp_path / "a", without="rng_state.pth"))) == [("TP993", "WARN"), ("TP993", "INFO")]
    assert ("TP993", "FAIL") in said(judged(hf_folder(tmp_path / "b", without="optimizer.pt")))
    assert ("TP993", "FAIL") in said(judged(hf_folder(tmp_path / "c", counted=20)))
    assert ("TP993", "WARN") in said(judged(hf_folder(tmp_path / "d", fp16=True)))


def test_the_last_of_several_is_compared_with_the_first(tmp_path: Path) -> None:
    for step, seed in ((50, 1), (100, 2), (1000, 1)):
        hf_folder(tmp_path / f"checkpoint-{step}", step, seed=seed)
    reports = inspect_checkpoint(str(tmp_path), None, Settings())
    assert [report.first_step for report in reports] == [50, 100, 1000]
    assert [report.verdict.value for report in reports] == ["PASS", "PASS", "FAIL"]
    assert (
        "3 of 3 parameters (100.00% of the elements) did not change from step 50 to step 1000"
        in reports[2].findings[0].message
    )


def test_a_run_that_keeps_its_checkpoints_in_a_folder_of_that_name(tmp_path: Path) -> None:
    for step in (20, 40):
        save_safetensors(tmp_path / "run" / "checkpoints" / f"epoch={step}.safetensors", weights(step))
    assert len(inspect_checkpoint(str(tmp_path / "run"), None, Settings())) == 2


def unchanged(tmp_path: Path, trained: int, frozen: tuple[str, ...] = (), step: int = 200) -> RunReport:
    """Of three parameters the embedding did not move; the optimizer holds `trained` of them."""
    old, new = weights(0), weights(1)
    new["embed.weight"] = old["embed.weight"]
    state = training(step=step, model=new, optimizer=optimizer(step, dict(list(new.items())[:trained])))
    older = save_torch(tmp_path / "old.pt", training(model=old))
    return judged(save_torch(tmp_path / "new.pt", state), older, frozen=frozen)


def test_an_unchanged_parameter_that_the_optimizer_holds_fails(tmp_path: Path) -> None:
    report = unchanged(tmp_path, 3)
    assert said(report) == [("TP991", "FAIL")]
    assert "1 of 3 parameters (64.00% of the elements)" in report.findings[0].message
    assert report.findings[0].evidence[0].metric == "model.embed.weight"


def test_an_unchanged_parameter_that_is_frozen_does_not(tmp_path: Path) -> None:
    assert said(unchanged(tmp_path, 2)) == [("TP991", "INFO")]
    assert said(unchanged(tmp_path, 3, ("embed.*",))) == []
    assert "needs 50 steps between" in unchanged(tmp_path, 3, step=120).skipped["TP991"]


def test_an_adapter_that_never_trained(tmp_path: Path) -> None:
    zeros, ones = np.zeros((8, 2), np.float32), np.ones((2, 8), np.float32)
    names = [f"base_model.model.h.{i}.attn.lora_{m}.weight" for i in range(2) for m in "AB"]
    dead = {name: zeros if "lora_B" in name else ones for name in names}
    (tmp_path / "x").mkdir()
    save_safetensors(tmp_path / "x" / "adapter_model.safetensors", dead)
    assert said(judged(tmp_path / "x")) == [("TP991", "WARN")]
    (tmp_path / "x" / "trainer_state.json").write_text('{"global_step": 30}')
    assert said(judged(tmp_path / "x")) == [("TP991", "FAIL")]
    save_safetensors(tmp_path / "x" / "adapter_model.safetensors", {name: np.ones_like(w) for name, w in dead.items()})
    assert said(judged(tmp_path / "x")) == []


def test_drift(tmp_path: Path) -> None:
    old = save_torch(tmp_path / "a.pt", weights(0, {"gone.weight": np.ones((2, 2), np.float32)}))
    changed = weights(1)
    changed["embed.weight"] = changed["embed.weight"].astype(np.float16)
    changed["layer.weight"] = changed["layer.weight"][:4].copy()
    report = judged(save_torch(tmp_path / "b.pt", changed), old)
    assert [(f.rule, f.severity.value) for f in report.findings] == [
        ("TP994", "FAIL"),
        ("TP994", "WARN"),
        ("TP994", "WARN"),
    ]
    assert "layer.weight from [8, 8] to [4, 8]" in report.findings[0].message
    assert "embed.weight from float32 to float16" in report.findings[1].message


def test_a_flipped_bit_is_found(tmp_path: Path) -> None:
    path = save_torch(tmp_path / "a.pt", {"w.weight": np.full((200, 200), 1.5, np.float32)})
    data = bytearray(path.read_bytes())
    data[data.find(np.float32(1.5).tobytes() * 4) + 1000] ^= 1
    path.write_bytes(data)
    assert judged(path).verdict.value == "PASS"
    report = judged(path, verify=True)
    assert said(report) == [("TP995", "FAIL")]
    assert "archive/data/0" in report.findings[0].message


def test_shards_and_those_that_are_missing(tmp_path: Path) -> None:
    table = {"a.weight": "one.safetensors", "b.weight": "two.safetensors", "c.weight": "two.safetensors"}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": table}))
    save_safetensors(tmp_path / "one.safetensors", {"a.weight": np.ones((2, 2), np.float32)})
    report = judged(tmp_path)
    assert said(report) == [("TP995", "FAIL")]
    assert "two.safetensors is missing" in report.findings[0].message
    save_safetensors(tmp_path / "two.safetensors", {"b.weight": np.ones((2, 2), np.float32)})
    assert "lacks 1 tensors that the index says it has, such as c.weight" in judged(tmp_path).findings[0].message
    save_safetensors(tmp_path / "two.safetensors", {n: np.ones((2, 2), np.float32) for n in ("b.weight", "c.weight")})
    assert (judged(tmp_path).verdict.value, judged(tmp_path).records) == ("PASS", 3)


def test_objects_stay_unbuilt_and_are_told(tmp_path: Path) -> None:
    thing = Call("mylib.models Net", state={"weight": np.ones((4, 4), np.float32), "kind": Global("mylib Kind")})
    report = judged(save_torch(tmp_path / "a.pt", {"model": thing, "step": 3, "optimizer": {}}))
    assert report.facts["objects that were not built"] == "mylib.models.Net"
    assert report.records == 1


@pytest.mark.parametrize("order", [slice(None), slice(None, None, 2)])
def test_views_count_their_own_elements_only(tmp_path: Path, order: slice) -> None:
    base = np.ones((6, 4), np.float32)
    base[0, 1] = base[0, 2] = np.nan
    view = base[:, order]
    found, _ = scan(open_checkpoints(str(save_torch(tmp_path / "a.pt", {"view": view, "turned": base.T})))[0])
    assert found[0].nan == int(np.isnan(view).sum())
    assert found[1].nan == 2


@given(
    st.lists(st.floats(width=32, allow_subnormal=True), min_size=1, max_size=40), st.sampled_from(["f2", "f4", "f8"])
)
def test_counts_are_those_of_numpy(values: list[float], dtype: str) -> None:
    with np.errstate(over="ignore"):
        array = np.array(values).astype(dtype)
    found = scanning._scan_chunk(array.view(np.uint8), str(array.dtype))
    assert found == Scan(int(np.isnan(array).sum()), int(np.isinf(array).sum()), not array.any())


@pytest.mark.parametrize(
    ("dtype", "codes", "nan", "infinite"),
    [("bfloat16", [0x7F80, 0xFF80, 0x7FC0, 0xFF81, 0x7F7F], 2, 2), ("float8_e4m3fn", [0x7F, 0xFF, 0x7E, 0x78], 2, 0), ("float8_e5m2", [0x7C, 0xFC, 0x7D, 0x7B], 1, 2)],
)  # fmt: skip
def test_short_floats(dtype: str, codes: list[int], nan: int, infinite: int) -> None:
    raw = np.array(codes, "<u2" if dtype == "bfloat16" else "u1").view(np.uint8)
    assert scanning._scan_chunk(raw, dtype) == Scan(nan, infinite, False)
