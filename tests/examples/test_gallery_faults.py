"""The committed logs of loops and stock trainers show the faults that their metadata claims. Read with the standard library alone."""

import json
import math
from itertools import groupby
from statistics import mean, median

import pytest

from tests.examples.gallery import SEEDS, each_seed, metadata, records, series

#: faulty run -> (its healthy twin, the argument that differs)
FAULTS = {
    "critics_clipped": ("critics", "clip"),
    "halves_without_epsilon": ("halves", "epsilon"),
    "data_searched": ("timed", "indexed"),
    "hooks_kept": ("timed", "remove_hooks"),
    "evaluated_each_step": ("timed", "evaluated_from"),
    "warmup_in_epochs": ("course", "scheduler_every"),
    "scheduler_four_times": ("course", "scheduler_times"),
    "poisoned_shard": ("course", "poisoned"),
    "one_hot_step": ("course", "hot_step"),
    "another_optimizer": ("in_order", "optimizer_of"),
    "resumed_without_weights": ("resumed", "lost"),
    "resumed_without_optimizer": ("resumed", "lost"),
    "resumed_without_scheduler": ("resumed", "lost"),
    "resumed_without_sampler": ("resumed", "lost"),
    "restart_loop": ("resumed", "crashes"),
    "evaluated_at_length": ("evaluated_each_step", "looks"),
    "adversaries_minimax_lost": ("adversaries_minimax", "generator_rate"),
    "lengths_in_stretches": ("lengths_mixed", "shuffled"),
    "squares_settled": ("squares", "rate"),
    "squares_warm": ("squares", "rate"),
    "squares_hot": ("squares", "rate"),
    "squares_left_blank": ("squares_hot", "keep_nan"),
    "seen_again": ("seen_once", "texts"),
    "few_contexts": ("next_byte", "contexts"),
    "units_killed": ("next_byte", "hot_step"),
    "dpo_hot": ("dpo", "rate"),
    "rewards_hot": ("rewards", "rate"),
    "eval_leaked": ("epochs", "leaked"),
    "warmup_ignored": ("stock", "schedule"),
    "accumulation_summed": ("accumulation", "own_loss"),
    "all_masked": ("stock", "masked"),
    "grpo_other_end": ("grpo", "end"),
}
ODD = {"density", "batch_of_one", "warmup_stable_decay", "curriculum", "grpo_without_kl", "grpo_loss_of_zero"}
RUNS = sorted({*FAULTS, *(twin for twin, _ in FAULTS.values()), *ODD})


@pytest.mark.parametrize("run", RUNS)
def test_three_seeds_are_three_runs_and_say_what_made_them(run: str) -> None:
    logs = [json.dumps(records(run, seed)) for seed in SEEDS]
    assert len(set(logs)) == 3
    for seed, log in zip(SEEDS, logs, strict=True):
        data = metadata(run, seed)
        assert (data["run"], data["seed"]) == (run, seed)
        assert data["command"] == f"python examples/gallery/make.py {run} --seed {seed}"
        assert not [place for place in ("/tmp", "/work", "/root", "/home", "/Users") if place in log]


@pytest.mark.parametrize("run", FAULTS)
@each_seed
def test_only_one_argument_differs_from_the_healthy_twin(run: str, seed: int) -> None:
    twin, argument = FAULTS[run]
    here, healthy = metadata(run, seed), metadata(twin, seed)
    changed = {
        k for k in {**here["changed"], **healthy["changed"]} if here["changed"].get(k) != healthy["changed"].get(k)
    }
    assert changed == {argument}
    for shared in ("made_by", "versions", "architecture"):
        assert here[shared] == healthy[shared]


@each_seed
def test_a_clean_resume_repeats_its_steps_exactly_and_no_other_does(seed: int) -> None:
    for run in ("resumed", "resumed_without_weights", "resumed_without_optimizer"):
        losses: dict[float, list[float]] = {}
        for record in records(run, seed):
            losses.setdefault(record["step"], []).append(record["loss"])
        twice = [values for values in losses.values() if len(values) == 2]
        assert len(twice) == 29
        assert all(a == b for a, b in twice) is (run == "resumed")


@each_seed
def test_what_a_resume_lost_shows_where_it_resumed(seed: int) -> None:
    at = 149  # the index of the first record after the resume
    weights = series("resumed_without_weights", seed, "loss")
    assert mean(weights[at : at + 5]) > 1.8 * mean(weights[at - 5 : at])
    assert series("resumed_without_scheduler", seed, "lr")[at] == 0 < series("resumed", seed, "lr")[at]
    assert series("resumed_without_sampler", seed, "epoch")[at] < 0.1 < 2 < series("resumed", seed, "epoch")[at]


@each_seed
def test_a_loop_of_restarts_gets_nowhere(seed: int) -> None:
    steps = [int(step) for step in series("restart_loop", seed, "step")]
    assert max(steps) == 149
    assert steps.count(121) == 6


@each_seed
def test_weights_that_no_optimizer_holds_never_move(seed: int) -> None:
    losses = series("another_optimizer", seed, "loss")
    assert losses[:60] == losses[60:120] == losses[180:]
    assert series("in_order", seed, "loss")[-1] < 0.6 * losses[-1]


@each_seed
def test_the_scheduler_is_stepped_too_seldom_or_too_often(seed: int) -> None:
    seldom, often = (series(run, seed, "lr") for run in ("warmup_in_epochs", "scheduler_four_times"))
    assert max(seldom) < 0.2 * max(series("course", seed, "lr"))
    assert set(often[61:]) == {0.0}


@each_seed
def test_poison_and_a_hot_step_show_in_the_loss(seed: int) -> None:
    poisoned, hot = series("poisoned_shard", seed, "loss"), series("one_hot_step", seed, "loss")
    assert mean(poisoned[119:129]) > 1.3 * mean(poisoned[109:119])
    assert mean(poisoned[-20:]) < mean(poisoned[99:119])
    assert max(hot[35:45]) > 3 * hot[34]


@each_seed
def test_a_rate_above_the_stable_one_ends_beyond_all_numbers(seed: int) -> None:
    assert 1e9 < series("squares_warm", seed, "loss")[-1] < math.inf
    losses = series("squares_hot", seed, "loss")
    assert not math.isfinite(losses[-1])
    blank = series("squares_left_blank", seed, "loss")
    assert blank == [loss for loss in losses if math.isfinite(loss)]
    assert len(series("squares_left_blank", seed, "lr")) == len(losses)


@each_seed
def test_what_is_learned_early_stays_where_it_is(seed: int) -> None:
    settled = series("squares_settled", seed, "loss")
    assert mean(settled[-100:]) == pytest.approx(mean(settled[-200:-100]), rel=0.005)
    slow = series("squares", seed, "loss")
    assert mean(slow[-100:]) < 0.8 * mean(slow[-200:-100])


@each_seed
def test_a_table_knows_what_it_has_seen(seed: int) -> None:
    again, once = (series(run, seed, "loss") for run in ("seen_again", "seen_once"))
    assert median(again[100:120]) < 0.5 * median(again[80:100])
    assert median(once[100:120]) > 0.9 * median(once[80:100])


@each_seed
def test_few_contexts_are_learned_by_heart_and_a_hot_step_kills(seed: int) -> None:
    few, killed, healthy = (series(run, seed, "eval_loss") for run in ("few_contexts", "units_killed", "next_byte"))
    assert few[-1] > 1.5 * min(few)
    assert min(killed[10:]) > 2 * min(killed[:10])
    assert healthy[-1] == pytest.approx(min(healthy), rel=0.01)


@each_seed
def test_a_loss_of_zero_may_be_one_that_learns(seed: int) -> None:
    assert max(map(abs, series("grpo_loss_of_zero", seed, "loss"))) < 1e-6
    rewards = series("grpo_loss_of_zero", seed, "reward")
    assert mean(rewards[-10:]) > 1.5 * mean(rewards[:10])


@each_seed
def test_a_hot_preference_run_prefers_the_wrong_answers(seed: int) -> None:
    for run, wrong in (("dpo_hot", True), ("dpo", False)):
        losses = series(run, seed, "loss")
        assert losses[0] == pytest.approx(math.log(2), rel=1e-3)
        assert (mean(losses[-20:]) > 1) is wrong
        assert (mean(series(run, seed, "rewards/accuracies")[-20:]) < 0.45) is wrong


@each_seed
def test_stretches_of_one_kind_are_not_mixed(seed: int) -> None:
    for run, apart in (("lengths_in_stretches", True), ("lengths_mixed", False)):
        stretches = [len(list(group)) for _, group in groupby(series(run, seed, "length"))]
        assert (min(stretches[:-1]) >= 12) is apart


@each_seed
def test_a_sure_critic_leaves_neither_side_a_loss(seed: int) -> None:
    for name in ("d_loss", "g_loss"):
        assert median(map(abs, series("adversaries_minimax_lost", seed, name)[-50:])) < 1e-3
        assert median(map(abs, series("adversaries_minimax", seed, name)[-50:])) > 0.3


@each_seed
def test_a_hot_policy_stands_still_before_it_is_right(seed: int) -> None:
    assert max(series("rewards_hot", seed, "entropy")[-50:]) < 0.5
    assert max(series("rewards_hot", seed, "reward")[-50:]) < 0.9 < series("rewards", seed, "reward")[-1]


@each_seed
def test_times_grow_where_they_should(seed: int) -> None:
    def grown(run: str, name: str) -> float:
        times = series(run, seed, name)
        return median(times[-30:]) / median(times[20:50])

    assert grown("hooks_kept", "step_time") > 2
    assert grown("evaluated_at_length", "step_time") > 20
    assert grown("data_searched", "data_time") > 2
    assert grown("timed", "step_time") < 1.3


@each_seed
def test_a_critic_clipped_to_nothing_says_nothing(seed: int) -> None:
    for name in ("d_loss", "g_loss"):
        assert max(map(abs, series("critics_clipped", seed, name)[-50:])) < 2e-3
    assert median(map(abs, series("critics", seed, "d_loss")[-50:])) > 1e-2


@each_seed
def test_a_log_density_may_fall_below_zero(seed: int) -> None:
    losses = series("density", seed, "loss")
    assert losses[0] > 1 > 0 > losses[-1]


@each_seed
def test_a_loss_of_one_s_own_is_summed_over_micro_batches(seed: int) -> None:
    ratio = series("accumulation_summed", seed, "loss")[0] / series("accumulation", seed, "loss")[0]
    assert ratio == pytest.approx(4, rel=0.02)


@each_seed
def test_masked_labels_are_logged_as_a_loss_of_zero(seed: int) -> None:
    assert set(series("all_masked", seed, "loss")) == {0.0}


@each_seed
def test_no_answer_ends_where_the_end_token_is_never_written(seed: int) -> None:
    assert min(series("grpo_other_end", seed, "completions/clipped_ratio")) == 1
    assert max(series("grpo_other_end", seed, "reward")) == 0
    rewards = series("grpo", seed, "reward")
    assert mean(rewards[-10:]) > 1.5 * mean(rewards[:10])


@each_seed
def test_a_root_of_zero_costs_every_step(seed: int) -> None:
    assert series("halves_without_epsilon", seed, "skipped_steps")[-1] == 240
    assert (
        series("halves_without_epsilon", seed, "loss_scale")[-1] < 1e-6 < 100 < series("halves", seed, "loss_scale")[-1]
    )
