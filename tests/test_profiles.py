"""Profiles: named overrides, each of which changes something and is named in the report."""

from __future__ import annotations

import numpy as np
import pytest

import trainproof
from tests.rules.helpers import make_frame
from trainproof.cli import epoch
from trainproof.errors import UsageError
from trainproof.judge import Settings, judge_run
from trainproof.profiles import PROFILES, thresholds_for
from trainproof.verdict import Verdict


@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_every_override_differs_from_the_default(profile: str) -> None:
    assert thresholds_for(profile).overrides() == PROFILES[profile]


def test_the_command_line_offers_every_profile() -> None:
    [option] = [option for option in epoch.params if option.name == "profile"]
    assert list(option.type.choices) == list(PROFILES)  # type: ignore[attr-defined]  # a click.Choice


def test_unknown_profiles_and_own_overrides() -> None:
    with pytest.raises(UsageError, match="unknown profile 'nlp'; known: pretrain"):
        thresholds_for("nlp")
    assert thresholds_for("tts", {"loss.never_drop": 0.3}).loss.never_drop == 0.3


def test_a_profile_moves_a_limit_and_the_report_says_so() -> None:
    held_out = np.linspace(1.2, 1.0, 10)
    frame = make_frame({"loss": np.linspace(7, 6, 200), "eval/loss": (range(20, 201, 20), held_out)})
    strict, lenient = (judge_run(frame, Settings(("TP509",), (), thresholds_for(p))) for p in (None, "vision"))
    assert [f.rule for f in strict.findings] == ["TP509"]
    assert not lenient.findings
    assert lenient.overrides == {"evaluation.scale_ratio": 8.0}


def test_a_data_loader_that_costs_much_warns_in_a_pretraining_run() -> None:
    frame = make_frame(loss=np.linspace(7, 3, 100), step_time=np.ones(100), data_time=np.full(100, 0.5))
    assert judge_run(frame).verdict is Verdict.PASS
    assert judge_run(frame, Settings(thresholds=thresholds_for("pretrain"))).verdict is Verdict.WARN


def test_judge_takes_a_profile() -> None:
    report = trainproof.judge({"step": range(1, 41), "loss": np.linspace(3, 2, 40)}, profile="rl")
    assert report.runs[0].overrides == PROFILES["rl"]
