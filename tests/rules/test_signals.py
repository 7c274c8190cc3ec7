"""Families TP0, TP1, TP3, TP4 and TP6 to TP9 as a whole: quiet on healthy noise, never crashing, and causal."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rules.helpers import healthy_frame, learning_rate, make_frame, run_rule
from trainproof.frame import Frame, Segment
from trainproof.rules import log_rules
from trainproof.rules.registry import CannotTell, Sighting
from trainproof.verdict import Severity

CODES = [
    code
    for code in log_rules()
    if code.startswith(
        ("TP0", "TP1", "TP211", "TP3", "TP4", "TP508", "TP511", "TP6", "TP7", "TP8", "TP90", "TP92", "TP95")
    )
]


def sightings(frame: Frame) -> list[tuple[str, Sighting]]:
    found = []
    for code in CODES:
        try:
            found += [(code, seen) for seen in run_rule(code, frame)]
        except CannotTell:
            continue
    return found


def alarms(frame: Frame) -> list[tuple[str, str]]:
    return [(code, seen.message) for code, seen in sightings(frame) if seen.severity is not Severity.INFO]


@pytest.mark.parametrize("schedule", ["linear", "cosine", "constant", "wsd"])
@pytest.mark.parametrize("sigma", [0.05, 0.2, 0.33, 0.5])
@pytest.mark.parametrize(("n", "seeds"), [(100, 10), (600, 10), (2000, 5), (5000, 3)])
def test_no_alarm_on_healthy_noise(n: int, seeds: int, sigma: float, schedule: str) -> None:
    facts: dict[str, Any] = {"warmup_ratio": 0.05, "learning_rate": 1e-3, "max_grad_norm": 1.0}
    if schedule != "wsd":
        facts["schedule"] = schedule
    for seed in range(seeds):
        for objective in ("lm", "rl"):
            frame = healthy_frame(n, sigma, seed, schedule, bool(seed % 2), facts=facts, objective=objective)
            assert alarms(frame) == []
            assert alarms(frame.replace(facts=type(frame.facts)())) == []


@pytest.mark.parametrize("seed", range(5))
def test_no_alarm_on_a_healthy_run_in_mixed_precision(seed: int) -> None:
    """The scaler searches from 2^20, doubles after 2,000 good steps and is cut; each cut is a skipped step with an infinite norm."""
    rng = np.random.default_rng(seed)
    frame = healthy_frame(5000, 0.3, seed)
    scale, norm = np.full(5000, 2.0**14), np.array(frame["grad_norm"].value)
    cuts = [*range(6), *(rng.integers(1000, 5000, 2) + 0).tolist()]
    scale[:6] = 2.0 ** np.arange(20, 14, -1)
    for at in cuts[6:]:
        scale[max(0, at - 3) : at] *= 2
    norm[cuts] = np.inf
    skipped = np.zeros(5000)
    skipped[cuts] = 1
    mixed = make_frame(
        loss=frame["loss"].value, lr=learning_rate(5000), grad_norm=norm, loss_scale=scale, skipped_steps=skipped
    )
    assert alarms(mixed) == []


VALUES = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True, width=64),
    st.sampled_from([0.0, 1.0, -1.0, 1e300, -1e300, 5e-324, float("nan"), float("inf")]),
    st.floats(0.1, 10),
)
NAMES = [
    "loss",
    "loss/cls",
    "lr",
    "lr/1",
    "grad_norm",
    "loss_scale",
    "skipped_steps",
    "kl",
    "epoch",
    "eval/loss",
    "eval/wer",
    "tokens",
    "step_time",
    "data_time",
    "throughput",
    "time",
    "memory",
    "step_time/rank0",
    "step_time/rank1",
    "step_time/rank2",
    "queue_size/0",
    "accuracy",
    "expert_load/0",
    "expert_load/1",
    "loss/aux",
    "max_attn_logit",
    "attn_entropy",
    "batch_size",
    "eval/auc",
    "mixture/web",
    "reward",
    "reward_std",
    "entropy",
    "clip_ratio",
    "truncated_ratio",
    "completion_length",
    "align_error",
    "rewards/chosen",
    "rewards/margins",
    "rewards/accuracies",
    "loss/discriminator",
    "loss/generator",
]
FACTS: dict[str, Any] = {
    "total_steps": st.integers(-1, 200),
    "warmup_steps": st.integers(-1, 100),
    "learning_rate": st.floats(0, 1),
    "max_grad_norm": st.floats(0, 10),
    "schedule": st.sampled_from(["linear", "cosine", "constant", "inverse_sqrt", "what"]),
    "precision": st.sampled_from(["bf16", "fp16"]),
    "pretrained": st.booleans(),
    "vocab_size": st.integers(-1, 100_000),
    "save_steps": st.integers(-1, 100),
    "epochs": st.integers(-1, 100),
    "steps_per_epoch": st.integers(-1, 100),
    "accumulation": st.integers(-1, 100),
    "memory_limit": st.floats(0, 10),
}


@st.composite
def frames(draw: st.DrawFn) -> Frame:
    series = {}
    for name in draw(st.lists(st.sampled_from(NAMES), unique=True)):
        pool = draw(st.lists(VALUES, min_size=1, max_size=4))
        values = draw(st.lists(st.one_of(VALUES, st.sampled_from(pool)), min_size=1, max_size=80))
        steps = np.cumsum(draw(st.lists(st.integers(0, 50), min_size=len(values), max_size=len(values))))
        series[name] = (steps, values)
    facts = draw(st.fixed_dictionaries({}, optional=FACTS))
    cuts = sorted(draw(st.sets(st.integers(1, 2000), max_size=3)))
    segments = [Segment(a, b - 1, "") for a, b in zip([0, *cuts], [*cuts, 4001], strict=True)]
    return make_frame(
        series,
        facts=facts,
        segments=segments,
        objective=draw(st.sampled_from(["lm", "rl", "unknown", "adversarial", "preference"])),
    )


@settings(max_examples=300)
@given(frames())
def test_no_rule_crashes_on_any_frame(frame: Frame) -> None:
    for _, seen in sightings(frame):
        assert seen.message
        assert seen.flagged_step >= seen.first_step or not seen.evidence


def broken(kind: str) -> Frame:
    """A healthy run of 600 records with one thing wrong from record 400 on."""
    healthy = healthy_frame(600, 0.1, 7)
    loss, lr, norm = (np.array(healthy[name].value) for name in ("loss", "lr", "grad_norm"))
    more: dict[str, Any] = {}
    if kind == "nan":
        loss[400:] = np.nan
    elif kind == "nan norm":
        norm[400:] = np.nan
    elif kind == "hidden":
        loss[400:], norm[400:] = 0.0, np.nan
    elif kind == "zero rate":
        lr[400:] = 0.0
    elif kind == "explosion":
        norm[400:] *= 40
    elif kind == "no gradient":
        norm[400:] = 0.0
    elif kind == "stale":
        norm[400:410] = 1.2345678
    elif kind == "absurd":
        loss[400:410] = 1e6
    elif kind == "scale":
        more["loss_scale"] = np.append(np.full(400, 2.0**16), np.full(200, 0.5))
    elif kind == "skips":
        more["skipped_steps"] = np.append(np.zeros(400), np.ones(200))
    elif kind == "gone":
        norm = norm[:400]
    return make_frame(loss=loss, lr=lr, grad_norm=norm, facts={"total_steps": 600}, objective="lm", **more)


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("nan", "TP101"),
        ("nan norm", "TP102"),
        ("hidden", "TP103"),
        ("zero rate", "TP301"),
        ("explosion", "TP401"),
        ("no gradient", "TP402"),
        ("stale", "TP406"),
        ("absurd", "TP107"),
        ("scale", "TP106"),
        ("skips", "TP105"),
        ("gone", "TP005"),
    ],
)
def test_a_reader_of_the_log_so_far_says_the_same_at_the_same_step(kind: str, code: str) -> None:
    frame = broken(kind)
    [whole] = run_rule(code, frame)
    assert whole.severity is not Severity.INFO
    assert 401 <= whole.flagged_step <= 540
    [live] = [s for s in run_rule(code, frame.between(0, whole.flagged_step)) if s.severity is whole.severity]
    assert live.flagged_step == whole.flagged_step
    assert alarms(frame.between(0, 400)) == []
