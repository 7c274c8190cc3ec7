"""Family TP8: preference losses, policies, completions, alignments and adversaries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.rules.helpers import make_frame, only, run_rule, says_so_live
from tests.rules.test_preference import noisy, rl
from trainproof.frame import Frame
from trainproof.rules.registry import CannotTell
from trainproof.verdict import Severity

FAIL, WARN, INFO = Severity.FAIL, Severity.WARN, Severity.INFO
LN2 = float(np.log(2))


def preference(loss: Any, *, facts: Any = None, steps: Any = None, **more: Any) -> Frame:
    """A preference log; `margins`, `chosen` and `accuracies` are those of the rewards."""
    named = {f"rewards/{k}" if k in ("margins", "chosen", "accuracies") else k: values for k, values in more.items()}
    return make_frame({"loss": loss, **named}, objective="preference", facts=facts, steps=steps)


SIGMOID = {"preference_loss": "sigmoid"}


class TestPreferenceInit:
    def test_a_first_step_that_is_not_ln2_fails_when_the_loss_is_declared(self) -> None:
        seen = says_so_live("TP801", preference([1.9, 0.6], margins=[-2.5, 0.1], facts=SIGMOID))
        assert (seen.severity, seen.flagged_step) == (FAIL, 1)
        assert {e.metric for e in seen.evidence} == {"loss", "rewards/margins"}

    def test_undeclared_it_warns(self) -> None:
        assert only("TP801", preference([1.9, 0.6], margins=[-2.5, 0.1])).severity is WARN

    @pytest.mark.parametrize("first", [LN2, 0.70, 0.66])
    def test_ln2_is_silent(self, first: float) -> None:
        assert run_rule("TP801", preference([first], margins=[0.02], facts=SIGMOID)) == []

    def test_a_first_record_averaged_over_ten_steps_may_have_learned(self) -> None:
        frame = preference([0.48, 0.4], margins=[0.7, 1.2], steps=[10, 20], facts=SIGMOID)
        assert run_rule("TP801", frame) == []

    def test_but_not_that_much(self) -> None:
        assert only("TP801", preference([0.2374], margins=[7.39], steps=[10])).severity is WARN

    @pytest.mark.parametrize(
        "frame",
        [
            preference([25.0], margins=[0.0], facts={"preference_loss": "ipo"}),
            preference([3.1], margins=[0.4], nll_loss=[2.4]),
            preference([0.1], margins=[5.0], steps=[500]),
        ],
    )
    def test_other_losses_and_late_records_are_skipped(self, frame: Frame) -> None:
        with pytest.raises(CannotTell):
            run_rule("TP801", frame)


class TestWorseThanGuess:
    HIGH = noisy(np.r_[LN2, np.full(39, 1.4)], 0.1)

    def test_a_loss_above_that_of_equal_models_fails_where_the_wrong_answers_are_preferred(self) -> None:
        seen = says_so_live("TP806", preference(self.HIGH, accuracies=np.full(40, 0.25)))
        assert (seen.severity, seen.first_step) == (FAIL, 5)
        assert seen.flagged_step == 24  # 20 records
        assert seen.threshold["loss"] == pytest.approx(1.25 * LN2)

    def test_and_warns_where_nobody_says_so(self) -> None:
        assert says_so_live("TP806", preference(self.HIGH)).severity is WARN
        assert says_so_live("TP806", preference(self.HIGH, accuracies=np.full(40, 0.6))).severity is WARN

    @pytest.mark.parametrize(
        "loss", [noisy(np.full(40, LN2), 0.1), np.r_[np.full(30, 1.4), np.full(10, 0.6)], np.full(40, 0.8)]
    )
    def test_noise_at_the_start_and_a_stretch_that_is_over_are_silent(self, loss: Any) -> None:
        assert run_rule("TP806", preference(loss, facts=SIGMOID)) == []

    def test_other_losses_are_not_asked(self) -> None:
        for frame in (
            preference(np.full(40, 1.4)),
            preference(self.HIGH, facts={"preference_loss": "hinge"}),
            preference(self.HIGH, log_odds_ratio=np.zeros(40)),
        ):
            with pytest.raises(CannotTell):
                run_rule("TP806", frame)


class TestPreferenceCourse:
    N = 60

    def test_both_answers_pushed_down_by_much_warns(self) -> None:
        frame = preference(
            np.full(self.N, 0.1),
            chosen=noisy(np.linspace(0, -12, self.N)),
            margins=np.linspace(0, 9, self.N),
            accuracies=np.ones(self.N),
        )
        assert says_so_live("TP802", frame).severity is WARN

    def test_a_little_is_told_only(self) -> None:
        chosen = noisy(np.linspace(0, -2, self.N))
        assert only("TP802", preference(np.full(self.N, 0.4), chosen=chosen, margins=np.ones(self.N))).severity is INFO

    def test_a_negative_level_that_does_not_fall_is_silent(self) -> None:
        chosen = noisy(np.full(self.N, -3.0), 0.3)
        assert run_rule("TP802", preference(np.full(self.N, 0.4), chosen=chosen, margins=np.ones(self.N))) == []

    def test_pairs_told_apart_in_the_first_half_epoch_warn(self) -> None:
        loss = np.append(np.linspace(0.69, 0.01, 12), np.full(10, 1e-4))
        frame = preference(loss, accuracies=np.ones(22), epoch=np.linspace(0.02, 0.44, 22))
        assert says_so_live("TP803", frame).flagged_step == 15  # three of the last five are below

    def test_later_they_do_not(self) -> None:
        loss = np.append(np.linspace(0.69, 0.01, 12), np.full(10, 1e-4))
        assert run_rule("TP803", preference(loss, accuracies=np.ones(22), epoch=np.linspace(0.1, 2.2, 22))) == []


class TestPolicy:
    def test_a_clearly_negative_kl_warns_and_an_absurd_one_fails(self) -> None:
        assert says_so_live("TP805", rl(kl=[0.1] * 30 + [-2.4] * 5)).severity is WARN
        assert says_so_live("TP805", rl(kl=[0.1] * 30 + [-15.0] * 5)).severity is FAIL

    def test_noise_about_zero_is_silent(self) -> None:
        assert run_rule("TP805", rl(kl=np.random.default_rng(0).normal(0, 0.4, 400))) == []

    def test_a_high_kl_without_more_reward_fails(self) -> None:
        kl = np.append(np.linspace(0, 8, 60), np.full(40, 30.0))
        assert says_so_live("TP805", rl(kl=kl, reward=np.full(100, 0.5))).severity is FAIL

    def test_a_high_kl_that_earns_reward_is_silent(self) -> None:
        kl = np.append(np.linspace(0, 8, 60), np.full(40, 30.0))
        assert run_rule("TP805", rl(kl=kl, reward=noisy(np.linspace(0, 3, 100)))) == []

    def test_a_jump_of_the_kl_warns(self) -> None:
        kl = np.append(noisy(np.full(80, 0.05), 0.005), np.full(10, 2.0))
        assert says_so_live("TP805", rl(kl=kl, reward=np.full(90, 0.5))).severity is WARN

    def test_a_kl_that_grows_with_the_reward_is_silent(self) -> None:
        growing = np.geomspace(1e-5, 5, 100)
        assert run_rule("TP805", rl(kl=growing, reward=noisy(np.linspace(0, 1, 100), 0.005))) == []

    def test_clipped_halves_and_far_ratios_warn(self) -> None:
        assert says_so_live("TP808", rl(clip_ratio=[0.1] * 30 + [0.8] * 25)).severity is WARN
        assert says_so_live("TP808", rl(ratio=[1.0] * 30 + [12.3] * 25)).severity is WARN

    def test_usual_clipping_is_silent(self) -> None:
        assert run_rule("TP808", rl(clip_ratio=np.random.default_rng(0).uniform(0.05, 0.35, 300))) == []

    def test_an_entropy_that_vanishes_warns_unless_the_reward_rises(self) -> None:
        entropy = np.append(np.full(20, 0.8), np.full(60, 0.01))
        assert says_so_live("TP809", rl(entropy=entropy, reward=np.full(80, 0.5))).severity is WARN
        assert only("TP809", rl(entropy=entropy, reward=noisy(np.linspace(0, 1, 80)))).severity is INFO

    def test_an_entropy_that_explodes_warns(self) -> None:
        assert says_so_live("TP809", rl(entropy=np.append(np.full(20, 0.6), np.full(40, 3.0)))).severity is WARN

    def test_one_that_was_low_from_the_start_is_silent(self) -> None:
        assert run_rule("TP809", rl(entropy=np.random.default_rng(0).uniform(0.015, 0.03, 200))) == []


class TestCompletions:
    def test_cut_off_completions_warn_and_without_any_reward_fail(self) -> None:
        share = [0.6, 0.7, 0.8] + [0.95] * 20
        assert says_so_live("TP813", rl(truncated_ratio=share, reward=[0.3] * 23)).severity is WARN
        assert says_so_live("TP813", rl(truncated_ratio=share, reward=[0.0] * 23)).severity is FAIL

    def test_a_model_that_learned_to_stop_is_silent(self) -> None:
        assert run_rule("TP813", rl(truncated_ratio=[1.0] * 20 + [0.1] * 20, reward=[0.0] * 40)) == []

    def test_length_that_earns_nothing_warns(self) -> None:
        length = 100 * np.exp(np.linspace(0, 1.2, 120)) + np.random.default_rng(0).normal(0, 5, 120)
        assert (
            says_so_live("TP814", rl(completion_length=length, reward=np.full(120, 0.5)), scheduled=True).severity
            is WARN
        )
        assert run_rule("TP814", rl(completion_length=length, reward=noisy(np.linspace(0.2, 0.9, 120), 0.1))) == []


class TestAlignment:
    LOSS = 1 + np.exp(-np.arange(300) / 60)

    def test_an_alignment_that_never_comes_warns(self) -> None:
        error = noisy(np.full(300, 0.95), 0.01)
        assert says_so_live("TP812", make_frame(loss=self.LOSS, align_error=error), scheduled=True).severity is WARN
        assert only("TP812", make_frame(loss=self.LOSS, alignment_score=1 - np.array(error))).severity is WARN

    def test_one_that_comes_is_silent(self) -> None:
        error = noisy(np.append(np.full(150, 0.95), np.linspace(0.95, 0.3, 150)), 0.01)
        assert run_rule("TP812", make_frame(loss=self.LOSS, align_error=error)) == []


class TestAdversarial:
    @staticmethod
    def game(d: Any, g: Any) -> Frame:
        return make_frame({"loss/discriminator": d, "loss/generator": g}, objective="adversarial")

    def test_a_side_that_won_warns_and_both_standing_still_fail(self) -> None:
        rng = np.random.default_rng(0)
        lively, dead = rng.uniform(3, 1000, 120), np.append(rng.uniform(0.3, 1, 40), np.full(80, 1e-5))
        assert says_so_live("TP811", self.game(dead, lively)).severity is WARN
        stuck = np.append(lively[:50], np.full(70, 100.0))
        seen = says_so_live("TP811", self.game(dead, stuck))
        assert (seen.severity, seen.flagged_step) == (FAIL, 95)  # 45 of the last 50 of the side that left last

    def test_a_balanced_game_is_silent(self) -> None:
        rng = np.random.default_rng(0)
        assert run_rule("TP811", self.game(rng.normal(2 * LN2, 0.01, 300), rng.normal(LN2, 0.01, 300))) == []
