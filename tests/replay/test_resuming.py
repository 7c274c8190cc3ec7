"""Interruptions of real jobs: the complete ones exact, the incomplete ones named."""

from __future__ import annotations

import warnings
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

import trainproof
from tests.commands import Run, runner
from tests.replay import jobs
from trainproof.errors import InputError, UsageError
from trainproof.experiments import Outcome
from trainproof.replay import demo
from trainproof.replay.checking import check
from trainproof.replay.job import Target
from trainproof.replay.resuming import MATRIX, resume_outcomes
from trainproof.replay.runner import Runner
from trainproof.resume_command import job_settings, repeated

frameworks = pytest.mark.frameworks
run = pytest.fixture(runner)


def target(name: str, **settings: str) -> Target:
    return Target(f"{jobs.FILE}:{name}", dict(settings))


def outcomes(tmp_path: Path, job: Target) -> dict[str, Outcome]:
    found, _ = resume_outcomes(job, None, steps=7, at=4, folder=tmp_path)
    return {outcome.scenario.name: outcome for outcome in found}


@frameworks
def test_every_ablation_is_told_and_named(tmp_path: Path) -> None:
    found, _ = resume_outcomes(Target(f"{demo.__file__}:make", {"seed": 3}), MATRIX, steps=8, at=4, folder=tmp_path)
    told = {o.scenario.name: (o.exact, set(o.missing), o.confirmed) for o in found}
    assert told == {
        "full-boundary": (True, set(), False),
        "model-and-optimizer-only": (False, {"scheduler", "rng", "stream"}, True),
        "without-rng": (False, {"rng"}, True),
        "without-stream": (False, {"stream"}, True),
        "without-scheduler": (False, {"scheduler"}, True),
        "full-mid-accumulation": (True, set(), False),
        "mid-without-gradients": (False, {"gradients"}, True),
    }
    errors = {o.scenario.name: o.parameter_error for o in found}
    assert errors["full-boundary"] == errors["full-mid-accumulation"] == 0.0
    assert errors["without-scheduler"] > 0.0
    rates = {o.scenario.name for o in found if not o.rates}
    assert rates == {"model-and-optimizer-only", "without-scheduler"}


@frameworks
def test_a_job_that_forgets_a_part_is_told_which(tmp_path: Path) -> None:
    found = outcomes(tmp_path / "a", target("forgetful"))
    assert (found["boundary"].missing, found["boundary"].confirmed) == (("scheduler", "rng"), True)
    assert set(found["mid-accumulation"].missing) == {"scheduler", "rng", "gradients"}
    found = outcomes(tmp_path / "b", target("forgetful", kept="scheduler"))
    assert (found["boundary"].missing, found["boundary"].confirmed) == (("rng",), True)


@frameworks
def test_state_that_is_not_declared_is_told(tmp_path: Path) -> None:
    outcome = outcomes(tmp_path, target("hidden"))["boundary"]
    assert (outcome.exact, outcome.missing, outcome.confirmed) == (False, ("a private generator of the data",), False)
    assert outcome.channels[0] == "input"


@frameworks
def test_assert_resumes_exactly() -> None:
    trainproof.assert_resumes_exactly(f"{demo.__file__}:make", steps=5, at=3)
    with pytest.raises(AssertionError, match=r"missing: scheduler, rng \(putting it back makes the resume exact\)"):
        trainproof.assert_resumes_exactly(f"{jobs.FILE}:forgetful", steps=5, at=3)


@frameworks
def test_record_check_names_the_first_difference() -> None:
    assert check(Target(f"{demo.__file__}:make", {}), 4) == (8, None)
    _, mismatch = check(target("shaky"), 5)
    assert mismatch is not None
    assert (mismatch.step, mismatch.channel, mismatch.tensor) == (3, "state", "model.2.weight")
    _, mismatch = check(target("unseeded"), 2)
    assert mismatch is not None
    assert (mismatch.step, mismatch.tensor) == (0, "model.0.weight")
    assert "seed" in mismatch.cause


@frameworks
def test_what_holds_is_said(run: Run) -> None:
    job = f"{demo.__file__}:make"
    checked = run("record-check", job, "--steps", "2", "--no-html")
    assert (checked.code, "REPEATABLE: 4 micro-batches came out bit for bit the same twice" in checked.out) == (0, True)
    resumed = run("resume", job, "--steps", "4", "--at", "2", "--no-html")
    told = "EXACT: interrupted at step 2 (boundary, mid-accumulation) and resumed from its declared state"
    assert (resumed.code, told in " ".join(resumed.out.split())) == (0, True)


@frameworks
def test_a_loss_may_come_with_its_graph() -> None:
    import torch

    loss = torch.tensor(0.1, dtype=torch.float64, requires_grad=True)
    job = SimpleNamespace(batches=lambda _: iter([1]), step=lambda _: loss)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        done = Runner(job).micro_step()
    assert done is not None
    assert done[1].loss == 0.1


@frameworks
def test_jobs_that_fail_are_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"jobs.py:broken failed: RuntimeError: no data at all$"):
        outcomes(tmp_path, target("broken"))
    with pytest.raises(InputError, match=r"the job's data ended after 2 steps, before step 4"):
        outcomes(tmp_path, target("short"))


def test_a_target_that_is_none(tmp_path: Path) -> None:
    for named, message in (
        ("train.py", "expected FILE.py:FUNCTION"),
        (f"{tmp_path}/x.py:make", "no such file"),
        (f"{jobs.FILE}:nothing", "no function 'nothing'"),
    ):
        if "nothing" in named and find_spec("torch") is None:
            continue
        with pytest.raises(UsageError, match=message):
            check(Target(named, {}), 1)


def test_settings_and_the_command_that_repeats_them() -> None:
    settings = job_settings(("seed=3", "name=a b", "flag=true"))
    assert settings == {"seed": 3, "name": "a b", "flag": True}
    assert repeated("resume", "train.py:make", settings, steps=5, at=None) == (
        "trainproof resume train.py:make --steps=5 --set seed=3 --set 'name=\"a b\"' --set flag=true"
    )
    with pytest.raises(UsageError, match="expected NAME=VALUE"):
        job_settings(("seed",))
