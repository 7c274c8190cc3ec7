"""TP507 and TP509: the evaluation loss beside the training loss."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.rules.eval_frames import frame_of
from tests.rules.helpers import only, run_rule, severities
from trainproof.frame import Frame
from trainproof.verdict import Severity

INFO, WARN, FAIL = Severity.INFO, Severity.WARN, Severity.FAIL


def beside(train: Any, evals: Any, **more: Any) -> Frame:
    """A training loss at steps 10, 20, ... and evaluations at every 10th of them."""
    return frame_of(
        {"eval/loss": ([100 * (k + 1) for k in range(len(evals))], evals)},
        loss=([10 * (k + 1) for k in range(len(train))], train),
        **more,
    )


# TP507


def test_both_losses_near_zero_in_the_first_epoch_warn() -> None:
    train = np.concatenate((np.linspace(3, 0.01, 20), np.full(20, 0.01)))
    evals = [1.8, 0.015, 0.012, 0.011]
    epoch = (np.arange(10, 410, 10), np.linspace(0, 1.2, 40))
    seen = only("TP507", beside(train, evals, epoch=epoch, objective="lm"))
    assert (seen.severity, seen.flagged_step) == (WARN, 300)  # the last 3 training losses are low there
    late = (np.arange(10, 410, 10), np.linspace(0, 8, 40))
    assert run_rule("TP507", beside(train, evals, epoch=late, objective="lm")) == []
    assert run_rule("TP507", beside(np.full(40, 0.01), evals, epoch=epoch, objective="lm")) == []


def test_evaluations_equal_to_the_training_loss_warn_at_the_third() -> None:
    train = np.linspace(3, 1, 60)
    evals = train[9::10].copy()
    seen = only("TP507", beside(train, evals, objective="classification"))
    assert (seen.severity, seen.flagged_step) == (WARN, 300)
    evals[1::2] *= 1.001
    assert run_rule("TP507", beside(train, evals, objective="classification")) == []


def test_both_losses_at_the_loss_of_a_guess_are_no_leak() -> None:
    assert run_rule("TP507", beside(np.full(60, 0.6932), np.full(6, 0.6932), objective="classification")) == []


# TP509


def test_a_loss_summed_over_accumulation_warns_and_fails_when_it_is_declared() -> None:
    train = np.concatenate(
        (
            np.full(10, 284.9),
            np.full(10, 161.0),
            np.full(10, 9.9),
            np.full(10, 5.39),
            np.full(10, 5.18),
            np.full(10, 5.02),
        )
    )
    evals = [15.4, 2.38, 0.347, 0.3185, 0.3077, 0.3038]
    plan = {"total_steps": 692}
    warn = only("TP509", beside(train, evals, facts=plan))
    assert (warn.severity, warn.flagged_step) == (WARN, 500)
    fail = only("TP509", beside(train, evals, facts={**plan, "accumulation": 16}))
    assert (fail.severity, fail.flagged_step) == (FAIL, 600)  # the ratio is steady over 3 evaluations
    assert "declared accumulation" in fail.message
    assert severities("TP509", beside(train, evals, facts={**plan, "accumulation": 64})) == [WARN]
    assert severities("TP509", beside(train, evals, facts={**plan, "accumulation": 4, "world_size": 4})) == [FAIL]


@pytest.mark.parametrize("ratio", [0.7, 1.0, 2.85, 4.1])
def test_healthy_ratios_are_passed_over(ratio: float) -> None:
    evals = np.linspace(0.8, 0.2, 10)
    assert run_rule("TP509", beside(ratio * np.repeat(evals, 10), evals, facts={"accumulation": 4})) == []


def test_a_mismatch_that_ended_is_passed_over() -> None:
    evals = np.linspace(0.8, 0.2, 10)
    train = np.repeat(evals, 10)
    train[:70] *= 8
    assert run_rule("TP509", beside(train, evals)) == []


def test_a_training_loss_divided_by_its_accumulation_is_information() -> None:
    evals = np.linspace(4.88, 2.59, 6)
    train = np.repeat(evals, 10) / 84
    seen = only("TP509", beside(train, evals, facts={"accumulation": 84}))
    assert (seen.severity, seen.flagged_step) == (INFO, 300)
    assert run_rule("TP509", beside(train, evals)) == []


def test_negative_losses_have_no_ratio() -> None:
    evals = np.linspace(-0.1, -0.4, 8)
    assert run_rule("TP509", beside(9 * np.repeat(evals, 10), evals)) == []


def test_a_training_loss_that_is_no_longer_logged_says_nothing() -> None:
    assert run_rule("TP509", beside(np.full(10, 9.0), [8.0, 2.0, 1.0, 0.9, 0.8, 0.7])) == []
