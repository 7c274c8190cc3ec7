"""Family TP4 on gradient norms that explode, vanish, drift, stand still or were never there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.rules.helpers import make_frame, only, run_rule, severities
from trainproof.rules.registry import CannotTell
from trainproof.verdict import Severity

CODES = ("TP401", "TP402", "TP403", "TP404", "TP405", "TP406")


def noisy(n: int, level: float = 1.0, sigma: float = 0.1, seed: int = 0) -> Any:
    return level * np.random.default_rng(seed).lognormal(0, sigma, n)


def raised(x: Any, start: int, stop: int | None, times: float) -> Any:
    out = np.array(x)
    out[start:stop] *= times
    return out


# TP401


def test_a_norm_six_times_its_level_warns_at_the_third_record_of_it() -> None:
    seen = only("TP401", make_frame(grad_norm=raised(noisy(200), 120, None, 6)))
    assert (seen.severity, seen.first_step, seen.flagged_step) == (Severity.WARN, 119, 123)


def test_a_norm_at_four_times_its_level_is_healthy() -> None:
    assert run_rule("TP401", make_frame(grad_norm=raised(noisy(200), 120, None, 4))) == []


def test_a_norm_thirty_times_its_level_fails_unless_it_came_back() -> None:
    seen = only("TP401", make_frame(grad_norm=raised(noisy(200), 120, None, 30)))
    assert (seen.severity, seen.flagged_step) == (Severity.FAIL, 123)
    assert severities("TP401", make_frame(grad_norm=raised(noisy(200), 120, 140, 30))) == [Severity.WARN]


def test_a_loss_that_rises_with_it_makes_it_fail() -> None:
    norm, loss = raised(noisy(200), 120, None, 6), noisy(200, 2.0, 0.02, 1)
    assert severities("TP401", make_frame(loss=loss, grad_norm=norm)) == [Severity.WARN]
    seen = only("TP401", make_frame(loss=raised(loss, 126, None, 1.5), grad_norm=norm))
    assert (seen.severity, seen.flagged_step) == (Severity.FAIL, 123)
    assert severities("TP401", make_frame(loss=raised(loss, 140, None, 1.5), grad_norm=norm)) == [Severity.WARN]
    assert severities("TP401", make_frame(loss=raised(loss, 128, None, np.nan), grad_norm=norm)) == [Severity.FAIL]


def test_rewards_are_given_twice_as_much() -> None:
    for times, expected in ((9.0, []), (12.0, [Severity.WARN]), (25.0, [Severity.WARN]), (50.0, [Severity.FAIL])):
        norm = raised(noisy(200), 120, None, times)
        assert severities("TP401", make_frame(grad_norm=norm, objective="rl")) == expected


def test_single_norms_are_told() -> None:
    norm = raised(raised(noisy(200), 120, 121, 15), 160, 161, 30)
    seen = only("TP401", make_frame(grad_norm=norm))
    assert (seen.severity, seen.first_step, seen.last_step) == (Severity.INFO, 121, 161)


def test_the_first_50_records_are_given_grace() -> None:
    assert run_rule("TP401", make_frame(grad_norm=raised(noisy(200), 0, 47, 249))) == []
    assert run_rule("TP401", make_frame(grad_norm=raised(noisy(200), 30, 46, 20))) == []


def test_a_rise_far_below_the_start_means_little() -> None:
    norm = np.append(noisy(60, 1.0), raised(noisy(200, 1e-3), 150, None, 8))
    assert run_rule("TP401", make_frame(grad_norm=norm)) == []


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("n", [1000, 4000])
def test_heavy_tails_do_not_explode(seed: int, n: int) -> None:
    """A norm with a log-normal noise of 1 reaches 5 x its level with its median of 5, about once in a thousand records."""
    assert Severity.WARN not in severities("TP401", make_frame(grad_norm=noisy(n, 3.0, 1.0, seed)))
    assert Severity.FAIL not in severities("TP401", make_frame(grad_norm=noisy(n, 3.0, 1.0, seed)))


@pytest.mark.parametrize("start", [5000, 5001, 5037, 9000])
def test_the_quick_look_at_a_long_run_misses_nothing(start: int) -> None:
    seen = only("TP401", make_frame(grad_norm=raised(noisy(10_000, 200.0, 0.3), start, start + 20, 8)))
    assert seen.severity is Severity.WARN
    assert start + 3 <= seen.flagged_step <= start + 5


# TP402


def test_five_zeros_after_real_norms_fail_while_the_loss_rests() -> None:
    norm = raised(noisy(100), 60, None, 0.0)
    loss = noisy(100, 2.0, 0.02)
    seen = only("TP402", make_frame(loss=loss, grad_norm=norm, lr=np.full(100, 1e-3)))
    assert (seen.severity, seen.first_step, seen.flagged_step) == (Severity.FAIL, 61, 65)
    assert run_rule("TP402", make_frame(loss=loss, grad_norm=raised(noisy(100), 60, 64, 0.0))) == []


def test_zeros_at_a_rate_of_zero_and_zeros_of_a_falling_loss_are_none() -> None:
    norm = raised(noisy(100), 60, None, 0.0)
    loss = noisy(100, 2.0, 0.02)
    assert run_rule("TP402", make_frame(loss=loss, grad_norm=norm, lr=raised(np.ones(100), 60, None, 0.0))) == []
    assert run_rule("TP402", make_frame(loss=loss * np.linspace(2, 1, 100), grad_norm=norm)) == []


def test_zeros_from_the_start_warn_once_the_loss_is_seen_to_rest() -> None:
    frame = make_frame(loss=noisy(300, 2.0, 0.02), grad_norm=np.zeros(300))
    seen = only("TP402", frame)
    assert (seen.severity, seen.first_step, seen.flagged_step) == (Severity.WARN, 1, 104)  # on the common schedule
    planned = make_frame(loss=noisy(300, 2.0, 0.02), grad_norm=np.zeros(300), facts={"total_steps": 1000})
    assert 200 <= only("TP402", planned).flagged_step <= 220


def test_zeros_from_the_start_fail_at_the_third_evaluation_that_is_the_same() -> None:
    frozen = {"eval/loss": ([10, 20, 30], [2.1234567] * 3)}
    seen = only("TP402", make_frame(frozen, loss=noisy(40, 2.0, 0.3), grad_norm=np.zeros(40)))
    assert (seen.severity, seen.flagged_step) == (Severity.FAIL, 30)
    moving = {"eval/loss": ([10, 20, 30], [2.1234567, 2.1234567, 2.1234566])}
    with pytest.raises(CannotTell):
        run_rule("TP402", make_frame(moving, loss=noisy(40, 2.0, 0.3), grad_norm=np.zeros(40)))


@pytest.mark.parametrize("sigma", [0.02, 0.1, 0.3])
@pytest.mark.parametrize("n", [60, 300, 3000])
def test_a_placeholder_of_zeros_beside_a_falling_loss_cannot_be_judged(sigma: float, n: int) -> None:
    loss = (1.15 + 0.65 * np.exp(-np.arange(n) / (n / 5))) * noisy(n, 1.0, sigma)
    with pytest.raises(CannotTell):
        run_rule("TP402", make_frame(loss=loss, grad_norm=np.zeros(n), facts={"total_steps": n}))


def test_rewards_need_a_kl_of_zero_or_half_of_the_records() -> None:
    zeros = raised(noisy(100), 20, 30, 0.0)
    assert run_rule("TP402", make_frame(grad_norm=zeros, kl=noisy(100), objective="rl")) == []
    seen = only("TP402", make_frame(grad_norm=zeros, kl=raised(noisy(100), 20, 30, 0.0), objective="rl"))
    assert (seen.severity, seen.flagged_step) == (Severity.FAIL, 25)
    assert run_rule("TP402", make_frame(grad_norm=zeros, objective="rl")) == []
    mostly = raised(noisy(100), 20, None, 0.0)
    seen = only("TP402", make_frame(grad_norm=mostly, objective="rl"))
    assert (seen.severity, seen.flagged_step) == (Severity.FAIL, 40)


# TP403


@pytest.mark.parametrize("level", [5e-8, 5e-4])
def test_norms_that_die_out_above_the_best_loss_warn_at_the_twentieth(level: float) -> None:
    norm = np.append(noisy(120), noisy(80, level))
    loss = np.append(np.linspace(3, 1, 120), noisy(80, 1.8, 0.01))
    seen = only("TP403", make_frame(loss=loss, grad_norm=norm))
    assert (seen.severity, seen.flagged_step) == (Severity.WARN, 142)


def test_norms_that_die_out_at_the_best_loss_are_a_converged_run() -> None:
    norm = np.append(noisy(120), noisy(80, 5e-8))
    assert run_rule("TP403", make_frame(loss=np.linspace(3, 1, 200), grad_norm=norm)) == []
    above = np.append(np.linspace(3, 1, 120), noisy(80, 1.8, 0.01))
    assert run_rule("TP403", make_frame(loss=above, grad_norm=raised(noisy(200), 120, 139, 1e-8))) == []
    assert run_rule("TP403", make_frame(loss=above, grad_norm=np.append(noisy(120), noisy(80, 5e-3)))) == []


# TP404


def drifting(n: int, times: float) -> Any:
    return noisy(n, 1.0, 0.2) * np.append(np.ones(n // 2), np.exp(np.linspace(0, np.log(times), n - n // 2)))


def test_a_norm_that_drifts_while_the_loss_rests_warns() -> None:
    seen = only("TP404", make_frame(loss=noisy(800, 2.0, 0.02, 2), grad_norm=drifting(800, 6.0)))
    assert seen.severity is Severity.WARN
    assert 600 <= seen.flagged_step <= 800


def test_a_norm_that_drifts_while_the_loss_falls_is_healthy() -> None:
    loss = noisy(800, 2.0, 0.02, 1) * np.linspace(1.5, 1, 800)
    assert run_rule("TP404", make_frame(loss=loss, grad_norm=drifting(800, 6.0))) == []
    assert run_rule("TP404", make_frame(loss=noisy(800, 2.0, 0.02, 1), grad_norm=drifting(800, 2.5))) == []


def test_a_drift_that_stopped_is_told() -> None:
    norm = np.append(drifting(400, 6.0), noisy(2000, 6.0, 0.2))
    assert severities("TP404", make_frame(loss=noisy(2400, 2.0, 0.02, 1), grad_norm=norm)) == [Severity.INFO]


# TP405


def test_a_run_that_is_always_clipped_is_told_from_the_fiftieth_record() -> None:
    seen = only("TP405", make_frame(grad_norm=noisy(100, 18.0), facts={"max_grad_norm": 1.0}))
    assert (seen.severity, seen.flagged_step) == (Severity.INFO, 50)
    assert "its median is 18" in seen.message
    assert run_rule("TP405", make_frame(grad_norm=noisy(100, 18.0), facts={"max_grad_norm": 18.0})) == []
    with pytest.raises(CannotTell, match="off"):
        run_rule("TP405", make_frame(grad_norm=noisy(100), facts={"max_grad_norm": 0.0}))


# TP406


def repeated(n: int, start: int, times: int, value: float = 464441.887) -> Any:
    out = noisy(n, 464000.0)
    out[start : start + times] = value
    return out


def test_a_norm_that_repeats_to_six_digits_warns_at_the_third() -> None:
    seen = only("TP406", make_frame(loss=noisy(60), grad_norm=repeated(60, 20, 4)))
    assert (seen.severity, seen.first_step, seen.last_step, seen.flagged_step) == (Severity.WARN, 21, 24, 23)
    assert [e.metric for e in seen.evidence].count("loss") == 3


@pytest.mark.parametrize(
    ("loss", "norm"),
    [
        pytest.param(noisy(60), repeated(60, 20, 2), id="twice"),
        pytest.param(raised(noisy(60), 18, 30, 0.0), repeated(60, 20, 4), id="the loss repeats as well"),
        pytest.param(noisy(60), repeated(60, 20, 4, 1.2345), id="five digits"),
        pytest.param(noisy(60), repeated(60, 20, 4, float(np.float32(0.1))), id="a clipping norm of 0.1 in 32 bits"),
    ],
)
def test_norms_that_may_repeat(loss: Any, norm: Any) -> None:
    assert run_rule("TP406", make_frame(loss=loss, grad_norm=norm)) == []


def test_a_value_that_is_filled_forward_is_told() -> None:
    norm = np.repeat(noisy(15, 3.0), 4)
    assert severities("TP406", make_frame(loss=noisy(60), grad_norm=norm)) == [Severity.INFO]


# all of them


@pytest.mark.parametrize("value", [0.0, 1.0, -1.0, 464441.887])
@pytest.mark.parametrize("code", CODES)
def test_a_constant_placeholder_is_no_evidence(code: str, value: float) -> None:
    frame = make_frame(
        loss=np.linspace(3, 1, 300) + noisy(300, 0.1, 0.3),
        grad_norm=np.full(300, value),
        lr=np.full(300, 1e-3),
        facts={"max_grad_norm": 0.5},
    )
    if code == "TP402" and value != 0:
        assert run_rule(code, frame) == []
    else:
        with pytest.raises(CannotTell, match=r"placeholder|other metrics do not say"):
            run_rule(code, frame)
