"""Family TP8: rewards. The rest of the family is in test_preference_training."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.rules.helpers import make_frame, only, run_rule, says_so_live
from trainproof.frame import Frame
from trainproof.judge import judge_run
from trainproof.rules.registry import CannotTell
from trainproof.verdict import Severity, Verdict

FAIL, WARN, INFO = Severity.FAIL, Severity.WARN, Severity.INFO


def rl(**series: Any) -> Frame:
    return make_frame(objective="rl", **series)


def noisy(level: np.ndarray[tuple[int], np.dtype[np.float64]], sigma: float = 0.02) -> list[float]:
    return list(level + np.random.default_rng(0).normal(0, sigma, len(level)))


class TestNoAdvantageSignal:
    def test_ten_equal_groups_in_twenty_records_warn_at_the_tenth(self) -> None:
        frame = rl(frac_reward_zero_std=[0.2] * 30 + [1.0] * 15, reward=[0.5] * 45)
        seen = only("TP804", frame)
        assert (seen.severity, seen.flagged_step) == (WARN, 40)

    def test_nine_do_not(self) -> None:
        assert run_rule("TP804", rl(frac_reward_zero_std=[0.2] * 30 + [1.0] * 9, reward=[0.5] * 39)) == []

    def test_a_spread_of_exactly_zero_counts_where_no_share_is_logged(self) -> None:
        assert only("TP804", rl(reward_std=[0.1] * 20 + [0.0] * 10)).severity is WARN

    def test_a_reward_that_clearly_rises_all_the_same_is_told_only(self) -> None:
        frame = rl(frac_reward_zero_std=[1.0] * 60, reward=noisy(np.linspace(0, 1, 60)))
        assert only("TP804", frame).severity is INFO

    def test_a_still_reward_without_any_gradient_fails(self) -> None:
        frame = rl(reward_std=[0.0] * 60, reward=[0.0] * 60, grad_norm=[0.0] * 60)
        assert only("TP804", frame).severity is FAIL

    def test_without_either_metric_it_is_skipped(self) -> None:
        with pytest.raises(CannotTell, match="reward_std"):
            run_rule("TP804", rl(kl=[0.5] * 60))

    def test_a_reward_alone_that_is_nearly_always_the_lowest_warns(self) -> None:
        rng = np.random.default_rng(1)
        seen = says_so_live("TP804", rl(reward=np.where(rng.random(150) < 0.15, 0.0625, 0.0)))
        assert (seen.severity, seen.flagged_step) == (WARN, 50)

    def test_a_sparse_reward_that_was_found_is_silent(self) -> None:
        assert run_rule("TP804", rl(reward=np.append(np.full(80, -200.0), np.linspace(-200, -110, 80)))) == []

    def test_a_solved_task_is_silent(self) -> None:
        assert run_rule("TP804", rl(reward=np.append(np.linspace(0, 1, 40), np.ones(200)))) == []


class TestRewardCollapse:
    RISE = np.linspace(0, 1, 60)

    def test_half_of_the_gain_lost_for_twenty_records_fails(self) -> None:
        frame = rl(reward=noisy(np.concatenate([self.RISE, np.full(60, 0.2)])))
        seen = only("TP807", frame)
        assert seen.severity is FAIL
        # the median of 10 is low from its 6th low record on, and has to stay so for 20
        assert 80 <= seen.flagged_step <= 90

    def test_less_of_it_warns(self) -> None:
        assert only("TP807", rl(reward=noisy(np.concatenate([self.RISE, np.full(60, 0.55)])))).severity is WARN

    def test_a_fall_has_to_last(self) -> None:
        assert run_rule("TP807", rl(reward=noisy(np.concatenate([self.RISE, np.full(15, 0.2)])))) == []

    def test_a_dip_that_came_back_is_silent(self) -> None:
        level = np.concatenate([self.RISE, np.full(30, 0.2), np.full(60, 1.0)])
        assert run_rule("TP807", rl(reward=noisy(level))) == []

    def test_noise_without_any_gain_is_silent(self) -> None:
        assert run_rule("TP807", rl(reward=noisy(np.zeros(300), 1.0))) == []


class TestRewardNeverRises:
    def test_episodes_without_a_trend_warn(self) -> None:
        rewards = 700 + 300 * np.random.default_rng(0).standard_normal(4000)
        assert says_so_live("TP810", rl(reward=rewards), scheduled=True).severity is WARN

    @pytest.mark.parametrize(
        ("level", "spread"),
        [
            pytest.param(np.linspace(700, 1500, 2000), 300, id="rises"),
            pytest.param(np.full(2000, 90.0), 2, id="was good from the start"),
            pytest.param(np.linspace(700, 200, 2000), 300, id="falls, which is another rule's"),
            pytest.param(
                np.concatenate([np.linspace(0, 2000, 1000), np.linspace(2000, 0, 1000)]), 300, id="rose and fell"
            ),
        ],
    )
    def test_others_are_silent(self, level: Any, spread: float) -> None:
        assert run_rule("TP810", rl(reward=level + spread * np.random.default_rng(0).standard_normal(2000))) == []

    def test_games_won_or_lost_stand_still_by_construction(self) -> None:
        assert run_rule("TP810", rl(reward=np.sign(np.random.default_rng(0).standard_normal(2000)))) == []


def test_a_log_of_rewards_alone_is_judged() -> None:
    assert judge_run(rl(reward=noisy(np.linspace(0, 1, 60)))).verdict is Verdict.PASS
