"""TP506: does the training loss fall in steps at the epoch boundaries?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.rules.eval_frames import frame_of
from tests.rules.helpers import only, run_rule, severities
from trainproof.frame import Floats, Frame
from trainproof.rules.registry import CannotTell
from trainproof.verdict import Severity

INFO, WARN = Severity.INFO, Severity.WARN
EPOCH = 100


def stairs(*levels: float, sigma: float = 0.03, seed: int = 0) -> Floats:
    """One level an epoch of 100 records, with noise."""
    loss = np.repeat(levels, EPOCH)
    return np.asarray(loss * np.random.default_rng(seed).lognormal(0, sigma, len(loss)))


def frame(loss: Floats, evals: dict[str, Any] | None = None, **more: Any) -> Frame:
    """Steps 1, 2, ...; the epoch of the log as a fraction."""
    return frame_of(evals or {}, loss=loss, epoch=np.arange(1, len(loss) + 1) / EPOCH, **more)


def test_a_step_down_at_a_boundary_warns_at_the_first_one() -> None:
    seen = only("TP506", frame(stairs(1.3, 0.84, 0.45)))
    assert (seen.severity, seen.first_step, seen.flagged_step) == (WARN, 81, 120)  # m = 20 records on either side
    assert [e.step for e in seen.evidence] == [100, 101, 120]


def test_a_step_at_the_second_boundary_is_found() -> None:
    assert only("TP506", frame(stairs(1.3, 1.28, 0.8))).flagged_step == 220


def test_declared_steps_of_an_epoch_are_enough() -> None:
    loss = stairs(1.3, 0.84)
    assert severities("TP506", frame_of({}, loss=loss, facts={"steps_per_epoch": EPOCH})) == [WARN]
    with pytest.raises(CannotTell, match="steps_per_epoch"):
        run_rule("TP506", frame_of({}, loss=loss))


def test_epochs_counted_in_whole_numbers_have_the_same_boundaries() -> None:
    number = np.repeat([0, 1, 2], EPOCH)
    assert only("TP506", frame_of({}, loss=stairs(1.3, 0.84, 0.45), epoch=number)).flagged_step == 120


def test_an_evaluation_that_improves_makes_it_information() -> None:
    at = np.arange(50, 301, 50)
    better = {"eval/loss": (at, [1.3, 1.25, 1.2, 1.15, 1.1, 1.05])}
    worse = {"eval/loss": (at, [1.3, 1.25, 1.3, 1.35, 1.4, 1.45])}
    assert severities("TP506", frame(stairs(1.3, 0.84, 0.45), better)) == [INFO]
    assert severities("TP506", frame(stairs(1.3, 0.84, 0.45), worse)) == [WARN]


def test_steady_learning_small_steps_and_noise_are_healthy() -> None:
    rng = np.random.default_rng(1)
    steady = 2 * np.exp(-np.arange(300) / 100) * rng.lognormal(0, 0.03, 300)
    assert run_rule("TP506", frame(steady)) == []
    assert run_rule("TP506", frame(stairs(1.3, 1.24, 1.18))) == []
    assert run_rule("TP506", frame(stairs(1.3, 1.1, 1.0, sigma=0.5))) == []


def test_a_learning_rate_cut_at_the_boundary_explains_the_step() -> None:
    cut = np.repeat([0.1, 0.01, 0.01], EPOCH)
    assert run_rule("TP506", frame(stairs(1.3, 0.84, 0.83), lr=cut)) == []
    assert severities("TP506", frame(stairs(1.3, 0.84, 0.83), lr=np.full(300, 0.1))) == [WARN]


def test_running_means_that_restart_at_each_epoch_are_no_staircase() -> None:
    rng = np.random.default_rng(2)
    for decline in (0.0, 0.3, 1.0):
        raw = 2 * np.exp(-decline * np.arange(400) / EPOCH) * rng.lognormal(0, 0.2, 400)
        means = [np.cumsum(part) / np.arange(1, EPOCH + 1) for part in np.split(raw, 4)]
        assert run_rule("TP506", frame(np.concatenate(means))) == []


def test_short_epochs_are_passed_over() -> None:
    loss = np.repeat([1.3, 0.8, 0.4, 0.2], 8)
    assert run_rule("TP506", frame_of({}, loss=loss, epoch=np.repeat([1, 2, 3, 4], 8))) == []
