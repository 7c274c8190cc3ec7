"""Family TP2 on made curves: each clause fires where it should, says the step at which it could first be seen, and healthy noise is silent."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rules.helpers import make_frame, run_rule, says_so_live
from tools import synthetic
from trainproof import stats
from trainproof.frame import Frame
from trainproof.judge import Settings, judge_run
from trainproof.rules.registry import CannotTell, Sighting
from trainproof.verdict import Severity, Verdict

FAIL, WARN, INFO = Severity.FAIL, Severity.WARN, Severity.INFO
LOSS_RULES = Settings(select=("TP2",))


def only(sightings: list[Sighting]) -> Sighting:
    assert len(sightings) == 1
    return sightings[0]


def noisy(
    level: np.ndarray[tuple[int], np.dtype[np.float64]] | list[float], sigma: float = 0.02, seed: int = 0
) -> list[float]:
    return list(np.asarray(level) * np.random.default_rng(seed).lognormal(0, sigma, len(level)))


def upto(frame: Frame, step: int) -> Frame:
    return frame.between(0, step)


@pytest.mark.parametrize("sigma", [0.05, 0.2, 0.5])
@pytest.mark.parametrize("n", [100, 600, 2000])
def test_healthy_noise_is_silent(n: int, sigma: float) -> None:
    for seed in range(8):
        run = judge_run(synthetic.as_frame(synthetic.healthy(n, sigma, seed)), LOSS_RULES)
        assert [f.rule for f in run.findings if f.severity is not INFO] == []


class TestDiverged:
    def test_a_jump_that_stays_fails_at_the_tenth_record(self) -> None:
        frame = make_frame(loss=noisy([1.5] * 50 + [3.0] * 50))
        seen = only(run_rule("TP203", frame))
        assert seen.severity is FAIL
        assert 60 <= seen.flagged_step <= 63

    def test_it_says_so_at_the_same_step_when_the_log_ends_there(self) -> None:
        frame = make_frame(loss=noisy([1.5] * 50 + [3.0] * 50))
        flagged = only(run_rule("TP203", frame)).flagged_step
        assert only(run_rule("TP203", upto(frame, flagged))).flagged_step == flagged
        assert run_rule("TP203", upto(frame, flagged - 1)) == []

    def test_a_loss_of_zero_later_on_does_not_change_when_it_was_flagged(self) -> None:
        risen = noisy([1.5] * 50 + [3.0] * 50)
        flagged = only(run_rule("TP203", make_frame(loss=risen))).flagged_step
        assert only(run_rule("TP203", make_frame(loss=[*risen, 0.0, *risen[-20:]]))).flagged_step == flagged

    def test_three_times_the_best_needs_only_five_records(self) -> None:
        frame = make_frame(loss=noisy([1.5] * 50 + [6.0] * 20))
        assert 55 <= only(run_rule("TP203", frame)).flagged_step <= 57

    def test_a_run_that_rises_from_its_first_record(self) -> None:
        loss = [0.997, 4.35, 8.81, 13.5, 15.7, 15.0, 18.8, 20.8, 25.6, 29.6]
        assert only(run_rule("TP203", make_frame(loss=loss))).severity is FAIL

    def test_a_term_added_to_the_loss_while_the_evaluation_falls_is_told(self) -> None:
        loss = noisy([1.5] * 50 + [90.0] * 50)
        falling = make_frame({"eval/loss": (range(0, 100, 10), np.linspace(2.0, 1.4, 10))}, loss=loss)
        assert only(run_rule("TP203", falling)).severity is INFO
        rising = make_frame({"eval/loss": (range(0, 100, 10), np.linspace(1.4, 2.0, 10))}, loss=loss)
        assert only(run_rule("TP203", rising)).severity is FAIL

    def test_a_loss_near_what_is_evaluated_is_not_excused_by_it(self) -> None:
        loss = noisy([1.5] * 50 + [7.5] * 50)
        falling = make_frame({"eval/loss": (range(0, 100, 10), np.linspace(2.0, 1.4, 10))}, loss=loss)
        assert only(run_rule("TP203", falling)).severity is FAIL

    def test_a_slow_drift_warns(self) -> None:
        frame = synthetic.as_frame(synthetic.drift(600, 0.1, 0))
        assert only(run_rule("TP203", frame)).severity in (WARN, FAIL)

    def test_a_tiny_loss_that_doubles_has_given_back_nothing(self) -> None:
        frame = make_frame(loss=noisy([3.0] * 20 + [0.3] * 20 + [0.005] * 40 + [0.012] * 40, 0.01))
        assert run_rule("TP203", frame) == []

    def test_a_run_that_came_back_is_told_and_not_failed(self) -> None:
        frame = make_frame(loss=noisy([1.5] * 50 + [4.0] * 15 + [1.4] * 100))
        assert only(run_rule("TP203", frame)).severity is INFO

    def test_overshoot_in_the_first_steps_is_normal(self) -> None:
        frame = make_frame(loss=[6.94, 15.35, 15.1, 14.0, 12.0, 10.0, 9.5, 9.0, 8.5, 8.0, 2.5, 2.4, 2.3, 2.2])
        assert run_rule("TP203", frame) == []

    def test_a_density_that_leaves_its_negative_level(self) -> None:
        rng = np.random.default_rng(0)
        loss = np.concatenate([np.linspace(-1, -3.5, 80), np.full(80, -0.5)]) + rng.normal(0, 0.05, 160)
        assert only(run_rule("TP203", make_frame(loss=loss))).severity is FAIL
        healthy = np.linspace(-2.4, -3.7, 160) + rng.normal(0, 0.2, 160)
        assert run_rule("TP203", make_frame(loss=healthy)) == []

    def test_reward_and_adversarial_objectives_are_not_asked(self) -> None:
        for objective in ("rl", "adversarial"):
            with pytest.raises(CannotTell, match=objective):
                run_rule("TP203", make_frame(loss=[1.0] * 50 + [9.0] * 50, objective=objective))


class TestSpikes:
    def test_an_episode_warns_with_its_peak(self) -> None:
        level = [1.5] * 60 + [3.0, 4.0, 3.5, 3.0, 2.5, 2.0] + [1.5] * 60
        seen = only(run_rule("TP201", make_frame(loss=noisy(level))))
        assert seen.severity is WARN
        assert 63 <= seen.flagged_step <= 65
        assert any(e.step == 62 for e in seen.evidence)

    def test_a_single_record_never_warns(self) -> None:
        level = [1.5] * 60 + [30.0] + [1.5] * 60
        assert run_rule("TP201", make_frame(loss=noisy(level))) == []

    def test_batches_of_two_kinds_are_two_levels_and_no_spike(self) -> None:
        rng = np.random.default_rng(1)
        loss = np.where(rng.random(800) < 0.3, 3.0, 1.1 * rng.lognormal(0, 0.03, 800))
        assert run_rule("TP201", make_frame(loss=loss)) == []

    def test_noise_on_both_levels_is_no_spike_either(self) -> None:
        for seed in range(20):
            rng = np.random.default_rng(seed)
            high = rng.random(2000) < (0.05, 0.1, 0.25, 0.4)[seed % 4]
            loss = np.where(high, 3.0, 1.1) * rng.lognormal(0, 0.15, 2000)
            assert run_rule("TP201", make_frame(loss=loss)) == []

    def test_a_single_record_beside_a_jump_of_the_gradient_norm_does(self) -> None:
        loss = noisy([1.5] * 60 + [30.0] + [1.5] * 60)
        grads = noisy([1.0] * 60 + [40.0] + [1.0] * 60)
        seen = only(run_rule("TP201", make_frame(loss=loss, grad_norm=grads)))
        assert seen.flagged_step == 61
        assert any(e.metric == "grad_norm" and e.step == 61 for e in seen.evidence)

    def test_not_recovered_warns_after_forty_records_and_fails_after_two_hundred(self) -> None:
        short = make_frame(loss=noisy([1.5] * 80 + [2.0] * 60))
        long = make_frame(loss=noisy([1.5] * 80 + [2.0] * 260))
        assert only(run_rule("TP202", short)).severity is WARN
        assert only(run_rule("TP202", long)).severity is FAIL

    def test_an_episode_that_came_back_late_is_at_most_a_warning(self) -> None:
        frame = make_frame(loss=noisy([1.5] * 80 + [2.0] * 260 + [1.4] * 40))
        assert only(run_rule("TP202", frame)).severity is WARN


class TestShift:
    def test_a_small_lasting_rise_is_found_near_its_step(self) -> None:
        seen = only(run_rule("TP210", make_frame(loss=noisy([1.5] * 150 + [1.6] * 150, 0.01))))
        assert seen.severity is WARN
        assert 145 <= seen.first_step <= 156

    def test_skewed_noise_of_many_records_is_no_shift(self) -> None:
        for seed in range(100):
            frame = synthetic.as_frame(synthetic.healthy(5000, 0.5, seed))
            assert run_rule("TP210", frame) == []

    def test_a_loss_that_swings_is_looked_at_once_a_record(self) -> None:
        swings = 2 + np.sin(
            np.arange(200_000) / 12
        )  # a test begun anew after each swing would read on to the end each time
        run_rule("TP210", make_frame(loss=swings))

    def test_a_fall_is_no_shift(self) -> None:
        assert run_rule("TP210", make_frame(loss=noisy([1.5] * 150 + [1.3] * 150, 0.01))) == []


class TestPlateau:
    def plateau(self, **kwargs: object) -> Frame:
        frame = synthetic.as_frame(synthetic.plateau(600, 0.01, 1))
        return frame.replace(**kwargs) if kwargs else frame

    def test_a_loss_that_stopped_moving_warns(self) -> None:
        seen = only(run_rule("TP204", self.plateau()))
        assert seen.severity is WARN
        assert 200 < seen.flagged_step < 480

    def test_a_loss_that_went_on_falling_later_does_not(self) -> None:
        columns = synthetic.plateau(600, 0.01, 1)
        columns["loss"][450:] *= np.linspace(1, 0.7, 150)
        assert run_rule("TP204", synthetic.as_frame(columns)) == []

    def test_without_knowing_what_is_left_it_is_skipped(self) -> None:
        with pytest.raises(CannotTell, match="total_steps"):
            run_rule("TP204", make_frame(loss=noisy([1.5] * 200, 0.001)))

    def test_noise_that_hides_the_answer_is_skipped(self) -> None:
        frame = make_frame(loss=noisy([1.5] * 110, 0.1, 3), facts={"total_steps": 1000})
        with pytest.raises(CannotTell, match="noisy"):
            run_rule("TP204", frame)


class TestNeverLearned:
    def test_a_flat_loss_warns_and_fails_with_a_rate_of_zero(self) -> None:
        loss = noisy([1.5] * 200)
        assert only(run_rule("TP205", make_frame(loss=loss, lr=[1e-4] * 200))).severity is WARN
        assert only(run_rule("TP205", make_frame(loss=loss, lr=[0.0] * 200))).severity is FAIL

    def test_a_loss_that_fell_at_once_was_learned_before_the_first_tenth_ended(self) -> None:
        assert run_rule("TP205", make_frame(loss=[30.0] * 5 + list(noisy([1.5] * 200)))) == []
        assert only(run_rule("TP205", make_frame(loss=[3.0] * 5 + list(noisy([1.5] * 200))))).severity is WARN

    def test_the_first_fifth_of_the_plan_is_too_early_unless_nothing_is_updated(self) -> None:
        loss, facts = noisy([1.5] * 400), {"total_steps": 1000}
        frame = make_frame(loss=loss, facts=facts)
        seen = only(run_rule("TP205", frame))
        assert (seen.severity, seen.flagged_step) == (WARN, next(n for n in stats.schedule(400) if n >= 200))
        assert "after the warm-up" not in seen.message
        assert says_so_live("TP205", frame, scheduled=True).flagged_step == seen.flagged_step
        with pytest.raises(CannotTell, match="too early to tell: the log has 19% of its planned steps"):
            run_rule("TP205", upto(frame, 190))
        assert only(run_rule("TP205", make_frame(loss=loss[:100], lr=[0.0] * 100, facts=facts))).severity is FAIL

    def test_it_is_flagged_where_a_shorter_log_already_said_so(self) -> None:
        frame = make_frame(loss=noisy([1.5] * 200), lr=[0.0] * 200)
        flagged = only(run_rule("TP205", frame)).flagged_step
        assert flagged in stats.schedule(200)
        assert only(run_rule("TP205", upto(frame, flagged))).flagged_step == flagged

    def test_a_classification_that_stands_at_the_loss_of_a_guess_has_learned_nothing(self) -> None:
        """It fell by more than a tenth, clearly and at first only: down from a bad start to ln 2."""
        start = [0.85, 0.75, 0.71, 0.70]
        loss = [*start, *(math.log(2) + 0.0007 * math.exp(-i / 10) for i in range(36))]
        frame = make_frame(loss=loss, objective="classification")
        seen = only(run_rule("TP205", frame))
        assert (seen.severity, seen.flagged_step) == (WARN, 40)
        assert "ln 2 = 0.6931" in seen.message
        assert run_rule("TP205", make_frame(loss=loss)) == []  # of what kind the loss is, is not known
        thousand = make_frame(loss=loss, objective="classification", facts={"num_classes": 1000})
        assert run_rule("TP205", thousand) == []
        passing = [*start, *np.linspace(0.70, 0.68, 36)]
        assert run_rule("TP205", make_frame(loss=passing, objective="classification")) == []

    def test_a_loss_that_is_never_finite_has_learned_nothing_to_be_judged(self) -> None:
        with pytest.raises(CannotTell):
            run_rule("TP205", make_frame(loss=[math.nan] * 50, lr=np.linspace(1e-3, 1e-5, 50)))

    def test_a_small_but_clear_fall_is_learning(self) -> None:
        assert run_rule("TP205", make_frame(loss=noisy(np.linspace(1.5, 1.42, 200), 0.01))) == []

    def test_a_run_that_learned_and_lost_it_again_is_not_this_rules_business(self) -> None:
        level = np.concatenate([np.linspace(3, 1, 100), np.full(100, 3.0)])
        assert run_rule("TP205", make_frame(loss=noisy(level))) == []


class TestLevels:
    def test_too_good_too_early(self) -> None:
        loss = noisy(np.geomspace(2, 0.01, 50))
        epoch = np.linspace(0, 0.9, 50)
        assert only(run_rule("TP206", make_frame(loss=loss, epoch=epoch, objective="lm"))).severity is WARN
        assert run_rule("TP206", make_frame(loss=loss, epoch=epoch * 100, objective="lm")) == []

    def test_initial_loss_scaled_by_the_declared_accumulation_fails(self) -> None:
        loss = noisy([8 * math.log(1000)] * 5, 0.001)
        facts = {"vocab_size": 1000, "accumulation": 8}
        assert only(run_rule("TP207", make_frame(loss=loss, facts=facts, objective="lm"))).severity is FAIL
        undeclared = run_rule("TP207", make_frame(loss=loss, facts={"vocab_size": 1000}, objective="lm"))
        assert only(undeclared).severity is WARN

    def test_a_pretrained_model_above_a_uniform_guess_warns(self) -> None:
        loss = noisy([1.3 * math.log(1000)] * 5, 0.001)
        pretrained = make_frame(loss=loss, facts={"vocab_size": 1000, "pretrained": True}, objective="lm")
        assert only(run_rule("TP207", pretrained)).severity is WARN
        assert run_rule("TP207", make_frame(loss=loss, facts={"vocab_size": 1000}, objective="lm")) == []

    def test_without_a_vocabulary_only_a_start_that_is_high_throughout_warns(self) -> None:
        high = [16.0, 18.0, 17.0, 12.0]
        assert only(run_rule("TP207", make_frame(loss=high, objective="lm"))).severity is WARN
        assert run_rule("TP207", make_frame(loss=[6.9, *high], objective="lm")) == []  # a start-up overshoot
        evaluated = make_frame({"eval/loss": ([0], [6.9])}, loss=high, objective="lm")  # a loss with other terms
        assert run_rule("TP207", evaluated) == []

    @pytest.mark.parametrize(("code", "rise"), [("TP203", 1.0), ("TP202", 0.1)])
    def test_a_rise_at_which_a_part_of_the_loss_is_switched_on_only_warns(self, code: str, rise: float) -> None:
        whole = 0.3 + 2 * np.exp(-np.arange(400) / 15)
        added = np.where(np.arange(400) < 150, 0.0, rise)
        parts = {"loss/rec": noisy(whole), "loss/disc": added}
        fails = only(run_rule(code, make_frame({"loss/rec": parts["loss/rec"]}, loss=noisy(whole + added))))
        assert fails.severity is FAIL
        seen = says_so_live(code, make_frame(parts, loss=noisy(whole + added)))
        assert seen.severity is WARN
        assert "loss/disc was switched on at step 151" in seen.message
        late = {**parts, "loss/disc": (range(151, 401), added[150:])}  # logged from then on
        assert only(run_rule(code, make_frame(late, loss=noisy(whole + added)))).severity is WARN

    def test_zero_twice_fails_and_once_does_not(self) -> None:
        assert only(run_rule("TP208", make_frame(loss=[2.0] * 10 + [0.0] * 3))).severity is FAIL
        assert run_rule("TP208", make_frame(loss=[2.0] * 10 + [0.0] + [2.0] * 3)) == []

    def test_zero_beside_a_dead_gradient_fails_at_once(self) -> None:
        seen = only(run_rule("TP208", make_frame(loss=[2.0, 1.9, 0.0, 1.8], grad_norm=[1.0, 1.1, math.nan, 1.2])))
        assert (seen.severity, seen.flagged_step) == (FAIL, 3)

    def test_a_memorised_set_printed_with_four_decimals_only_warns(self) -> None:
        loss = [*np.geomspace(2, 0.0002, 40), 0.0, 0.0, 0.0001]
        assert only(run_rule("TP208", make_frame(loss=loss))).severity is WARN

    @pytest.mark.parametrize("parts", [("loss",), ("loss/box", "loss/cls")])
    def test_a_run_that_never_had_a_loss_but_zero_fails(self, parts: tuple[str, ...]) -> None:
        run = judge_run(make_frame(dict.fromkeys(parts, np.zeros(12))), Settings(select=("TP208",)))
        assert {(f.severity, f.flagged_step) for f in run.findings} == {(FAIL, 10)}
        short = judge_run(make_frame(dict.fromkeys(parts, np.zeros(9))), Settings(select=("TP208",)))
        assert {f.severity for f in short.findings} == {INFO}

    @pytest.mark.parametrize(("perplexity", "said"), [(1.0, FAIL), (1.2, INFO)])
    def test_a_perplexity_of_one_is_a_loss_of_zero(self, perplexity: float, said: Severity) -> None:
        run = make_frame({"loss": np.zeros(12), "eval/perplexity": np.full(12, perplexity)})
        assert only(run_rule("TP208", run)).severity is said

    def test_zero_from_the_start_is_a_placeholder_where_something_shows_that_the_model_learns(self) -> None:
        shows = {
            "loss/box": np.linspace(2, 1, 12),
            "grad_norm": np.ones(12),
            "eval/accuracy": np.linspace(0.2, 0.9, 12),
        }
        for name, value in shows.items():
            assert only(run_rule("TP208", make_frame({"loss": np.zeros(12), name: value}))).severity is INFO, name

    def test_an_estimator_whose_loss_and_evaluations_stay_at_zero_warns(self) -> None:
        rng = np.random.default_rng(0)
        loss = rng.normal(0, 0.002, 120)
        evals = (range(20, 121, 20), [3e-4, -2e-4, 1e-4, 4e-4, 2e-4, 1e-4])
        idle = make_frame({"eval/loss": evals}, loss=loss, objective="density")
        assert says_so_live("TP205", idle, scheduled=True).severity is WARN
        learned = make_frame({"eval/loss": (evals[0], np.linspace(0, -0.1, 6))}, loss=loss, objective="density")
        assert run_rule("TP205", learned) == []

    @pytest.mark.parametrize("code", ["TP205", "TP207"])
    def test_a_log_without_the_beginning_of_its_run_is_not_asked_how_it_began(self, code: str) -> None:
        level = noisy([20.0] * 60)
        first, late = (make_frame(loss=(range(at, at + 600, 10), level), objective="lm") for at in (10, 5000))
        assert only(run_rule(code, first)).severity is WARN
        with pytest.raises(CannotTell, match="begins at step 5000"):
            run_rule(code, late)

    def test_worse_than_uniform_after_the_warm_up_fails(self) -> None:
        frame = make_frame(loss=noisy([12.0] * 100), facts={"vocab_size": 1000}, objective="lm")
        seen = only(run_rule("TP209", frame))
        assert (seen.severity, seen.flagged_step) == (FAIL, 70)

    def test_a_language_model_that_guessed_better_before_warns_without_a_vocabulary(self) -> None:
        episode = noisy([12.0] * 15 + [15.5] * 30 + [8.0] * 55)
        seen = says_so_live("TP209", make_frame(loss=episode, objective="lm"))
        assert seen.severity is WARN
        assert seen.threshold["loss"] == pytest.approx(1.05 * math.log(2**20))
        assert (seen.first_step, seen.flagged_step) == (18, 70)  # 5 records deep; told once the rule has its 70 records

    def test_a_start_above_any_vocabulary_that_comes_down_is_no_finding_of_this_rule(self) -> None:
        assert run_rule("TP209", make_frame(loss=noisy([40.0] * 45 + [9.0] * 55), objective="lm")) == []


@settings(max_examples=150)
@given(
    loss=st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=0, max_size=90),
    grads=st.lists(st.sampled_from([0.0, 1.0, 1e300, math.nan, math.inf]), max_size=90),
    objective=st.sampled_from(["lm", "classification", "density", "unknown"]),
)
def test_no_loss_rule_crashes_on_any_curve(loss: list[float], grads: list[float], objective: str) -> None:
    frame = make_frame(loss=loss, grad_norm=grads, objective=objective, facts={"vocab_size": 100, "total_steps": 100})
    run = judge_run(frame, LOSS_RULES)
    assert run.verdict in Verdict


def test_a_loss_that_comes_back_again_and_again_swings_and_has_not_diverged() -> None:
    rng = np.random.default_rng(0)
    kind = np.repeat(rng.permutation(np.tile([1.7, 2.8, 4.2], 8)), 12)
    swing = kind * (1 + 0.6 * np.exp(-(np.arange(len(kind)) % 12) / 4)) * rng.lognormal(0, 0.02, len(kind))
    seen = only(run_rule("TP203", make_frame(loss=swing)))
    assert seen.severity is Severity.WARN
    assert "came back" in seen.message
    lost = np.append(swing, np.full(100, 6.0) * rng.lognormal(0, 0.02, 100))
    assert only(run_rule("TP203", make_frame(loss=lost))).severity is Severity.FAIL


def test_a_preference_loss_is_given_a_hundred_records_to_fall() -> None:
    still = math.log(2) * np.random.default_rng(0).lognormal(0, 0.02, 150)
    with pytest.raises(CannotTell, match="needs 100"):
        run_rule("TP205", make_frame(loss=still[:50], objective="preference"))
    assert only(run_rule("TP205", make_frame(loss=still, objective="preference"))).severity is Severity.WARN


def test_a_loss_that_never_moves_has_not_diverged() -> None:
    assert run_rule("TP203", make_frame(loss=np.zeros(120))) == []
