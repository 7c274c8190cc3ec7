"""Is a job repeatable at all? N steps, twice, in fresh processes; the first tensor that differs, and what usually causes it."""

from __future__ import annotations

from typing import Any

from trainproof.experiments import Mismatch
from trainproof.replay.job import Target, make_job
from trainproof.replay.runner import Runner
from trainproof.replay.worker import ask


def run_once(named: str, settings: dict[str, Any], steps: int) -> list[dict[str, Any]]:
    """What a run is at its start and after every micro-batch: samples, contents, loss, and a digest a tensor."""
    runner = Runner(make_job(Target(named, settings)))
    found: list[dict[str, Any]] = [{"step": 0, "state": runner.leaves()}]
    for row in runner.rows(steps):
        rng = {name: value for name, value in row.channels.items() if name.startswith("rng.")}
        found.append(
            {
                "step": row.step,
                "ids": row.ids,
                "input": row.input,
                "loss": row.loss,
                "rng": rng,
                "state": runner.leaves(),
            }
        )
    return found


def check(target: Target, steps: int) -> tuple[int, Mismatch | None]:
    """The micro-batches compared, and the first place where two runs of the job differ. Raises TrainproofError."""
    first, second = (
        ask("twice", {"named": target.named, "settings": target.settings, "steps": steps}) for _ in range(2)
    )
    mismatch = next((found for a, b in zip(first, second, strict=False) if (found := _differs(a, b))), None)
    if mismatch is None and len(first) != len(second):
        mismatch = Mismatch(min(len(first), len(second)), "stream", "", "the data ended at different places")
    return len(first) - 1, mismatch


def _differs(a: dict[str, Any], b: dict[str, Any]) -> Mismatch | None:
    """Causes before consequences: data, then generators, then tensors."""
    step = a["step"]
    if step == 0 and a["state"] != b["state"]:
        return Mismatch(
            0,
            "state",
            _first(a["state"], b["state"]),
            "initialised without a seed: the factory must seed torch, numpy and random",
        )
    if a.get("ids") != b.get("ids"):
        return Mismatch(step, "sample ids", "", "the order of the data is not seeded")
    if a.get("input") != b.get("input"):
        return Mismatch(
            step,
            "batch contents",
            "",
            "the data set draws from a generator that is not seeded, or depends on time or workers",
        )
    if a["state"] != b["state"]:
        drawn = a.get("rng") != b.get("rng")
        cause = "a generator was used differently" if drawn else (
            "the same inputs gave another result: a kernel that is not deterministic (scatter, atomic adds, threads), a generator of its own, or a clock"
        )  # fmt: skip
        return Mismatch(step, "state", _first(a["state"], b["state"]), cause)
    if a.get("loss") != b.get("loss") and a["loss"] == a["loss"]:
        return Mismatch(step, "loss", "", "the loss is computed in a way that is not deterministic")
    return None


def _first(a: dict[str, str], b: dict[str, str]) -> str:
    return next(name for name in {**a, **b} if a.get(name) != b.get(name))
