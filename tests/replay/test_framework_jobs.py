"""Frameworks' own loops as jobs: replayed bit for bit, and resumed as the frameworks themselves resume."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainproof.record.tape import Tape
from trainproof.replay.job import Target
from trainproof.replay.replaying import replay, segment_around
from trainproof.replay.resuming import resume_outcomes
from trainproof.replay.worker import ask

pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("default")]
FILE = Path(__file__).with_name("framework_jobs.py")


def target(tmp_path: Path, name: str, **settings: Any) -> Target:
    return Target(f"{FILE}:{name}", {"out": str(tmp_path / "out"), **settings})


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("hf", {"accumulation": 2}),
        ("hf", {"workers": 2}),
        ("lightning", {"accumulation": 2, "shuffle": True}),
    ],
)
def test_a_replay_is_the_same_bits(tmp_path: Path, name: str, settings: dict[str, Any]) -> None:
    job = target(tmp_path, name, **settings)
    out = tmp_path / "run"
    ask(
        "record",
        {"named": job.named, "settings": job.settings, "out": str(out), "until": 6, "checkpoint_every": 3},
    )
    tape = Tape(out)
    assert len(tape.steps) == 6
    assert tape.steps[6]["cursor"] == 6 * settings.get("accumulation", 1)
    assert tape.steps[6]["grad_norm"] > 0
    again = replay(tape, segment_around(tape, 4, 6))
    assert (again.mismatch, again.differences, again.repeatable) == (None, (), True)


@pytest.mark.parametrize("name", ["hf", "lightning"])
def test_its_whole_state_resumes_exactly(tmp_path: Path, name: str) -> None:
    found, traces = resume_outcomes(target(tmp_path, name, accumulation=2), None, steps=5, at=3, folder=tmp_path)
    assert not traces.own
    assert [(o.scenario.name, o.exact) for o in found] == [("boundary", True), ("mid-accumulation", True)]


def test_the_trainer_resumes_exactly_unless_its_data_draw_randomness(tmp_path: Path) -> None:
    plain = target(tmp_path / "a", "hf", accumulation=2, save_every=3)
    (found,), traces = resume_outcomes(plain, None, steps=5, at=3, folder=tmp_path / "a")
    assert traces.own
    assert (found.scenario.name, found.exact) == ("boundary", True)
    drawing = target(tmp_path / "b", "hf", accumulation=2, save_every=3, random=1)
    (found,), _ = resume_outcomes(drawing, None, steps=5, at=3, folder=tmp_path / "b")
    assert not found.exact
    assert not found.batches


def test_lightning_loses_the_random_state_and_the_position(tmp_path: Path) -> None:
    job = target(tmp_path, "lightning", save_every=3)
    (found,), traces = resume_outcomes(job, None, steps=5, at=3, folder=tmp_path)
    assert traces.own
    assert not found.exact
    assert found.missing == ("rng", "the position in the data, or a private generator of it")
    assert not found.batches
