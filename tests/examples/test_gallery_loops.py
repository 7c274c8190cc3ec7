"""The committed logs of plain loops show the faults that their metadata claims. Read with the standard library alone."""

from statistics import median

import pytest

from tests.examples.gallery import SEEDS, each_seed, metadata, records

#: faulty run -> (its healthy twin, the argument that differs)
FAULTS = {
    "experts_collapsed": ("experts", "balance"),
    "adversaries_lost": ("adversaries", "generator_rate"),
    "graphs_kept": ("losses_kept", "as_numbers"),
    "preferences_other_reference": ("preferences", "own_reference"),
    "rewards_all_or_nothing": ("rewards", "partial_credit"),
}
RUNS = (*FAULTS, *(twin for twin, _ in FAULTS.values()))


def column(run: str, seed: int, name: str) -> list[float]:
    """The values of all records: each has it."""
    return [record[name] for record in records(run, seed)]


@pytest.mark.parametrize("run", RUNS)
def test_three_seeds_are_three_runs(run: str) -> None:
    assert len({tuple(column(run, seed, "loss" if "advers" not in run else "d_loss")) for seed in SEEDS}) == 3 or (
        run == "rewards_all_or_nothing"  # nothing is ever earned, whatever the seed
    )


@pytest.mark.parametrize("run", RUNS)
@each_seed
def test_metadata_names_what_made_the_log(run: str, seed: int) -> None:
    data = metadata(run, seed)
    assert (data["run"], data["seed"]) == (run, seed)
    assert data["command"] == f"python examples/gallery/make.py {run} --seed {seed}"
    assert list(data["changed"]) == ([FAULTS[run][1]] if run in FAULTS else [])


@pytest.mark.parametrize("run", FAULTS)
@each_seed
def test_only_the_fault_differs_from_the_healthy_twin(run: str, seed: int) -> None:
    here, healthy = metadata(run, seed), metadata(FAULTS[run][0], seed)
    for shared in ("made_by", "versions", "architecture"):
        assert here[shared] == healthy[shared]


@each_seed
def test_experts_without_balance_leave_most_of_the_work_to_one(seed: int) -> None:
    for run, crowded in (("experts_collapsed", True), ("experts", False)):
        last = [column(run, seed, f"expert_load/{i}")[-1] for i in range(8)]
        assert (max(last) > 0.5 * sum(last)) is crowded


@each_seed
def test_a_generator_that_does_not_learn_loses(seed: int) -> None:
    assert median(column("adversaries_lost", seed, "d_loss")[-50:]) < 1e-3
    assert median(column("adversaries", seed, "d_loss")[-50:]) > 0.5


@each_seed
def test_kept_graphs_cost_memory(seed: int) -> None:
    kept, numbers = (column(run, seed, "memory") for run in ("graphs_kept", "losses_kept"))
    assert kept[-1] - kept[10] > 10 * max(numbers[-1] - numbers[10], 1)


@each_seed
def test_only_the_right_reference_starts_at_ln_2(seed: int) -> None:
    assert column("preferences", seed, "loss")[0] == pytest.approx(0.6931, abs=1e-3)
    assert abs(column("preferences_other_reference", seed, "rewards/margins")[0]) > 0.1


@each_seed
def test_only_partial_credit_is_earned(seed: int) -> None:
    assert column("rewards", seed, "reward")[-1] > 0.9
    assert set(column("rewards_all_or_nothing", seed, "reward")) == {0.0}
