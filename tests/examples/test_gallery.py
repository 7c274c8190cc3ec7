"""The committed gallery logs show the faults that their metadata claims. Read with the standard library alone."""

import math

import pytest

from tests.examples.gallery import GALLERY, SEEDS, each_seed, metadata, series

FAULTS = {
    "lr_hot": {"learning_rate"},
    "lr_zero": {"learning_rate"},
    "fp16_nan": {"weights_dtype", "learning_rate", "max_grad_norm"},  # the recipe is three knobs by its definition
    "nan": {"masked_batch"},
    "bad_labels": {"shuffle_labels"},
    "overfit": {"train_windows"},
}
RUNS = ("healthy", *FAULTS)

each_run = pytest.mark.parametrize("run", RUNS)


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


@each_run
@each_seed
def test_a_run_has_a_full_log(run: str, seed: int) -> None:
    assert len(series(run, seed, "loss")) == 60
    assert len(series(run, seed, "eval_loss")) == 11  # step 0 and each 30th


@each_run
def test_three_seeds_are_three_runs(run: str) -> None:
    assert len({tuple(map(str, series(run, seed, "loss"))) for seed in SEEDS}) == 3


@each_run
@each_seed
def test_metadata_names_what_made_the_log(run: str, seed: int) -> None:
    data = metadata(run, seed)
    assert (data["run"], data["seed"]) == (run, seed)
    assert data["command"] == f"python examples/gallery/make.py {run} --seed {seed}"
    assert set(data["versions"]) == {"python", "torch", "transformers", "peft", "accelerate", "numpy"}
    assert data["observed"].startswith("Training loss ")


@each_run
@each_seed
def test_only_the_fault_differs_from_healthy(run: str, seed: int) -> None:
    here, healthy = metadata(run, seed), metadata("healthy", seed)
    changed = {name for name in healthy["knobs"] if here["knobs"][name] != healthy["knobs"][name]}
    assert changed == FAULTS.get(run, set()) == set(here["changed"])
    for shared in ("settings", "text", "versions", "architecture"):
        assert here[shared] == healthy[shared]


@pytest.mark.parametrize("run", ["base", *RUNS])
def test_no_file_names_a_place_on_the_machine(run: str) -> None:
    files = list((GALLERY / run).rglob("*.json"))
    assert files
    for file in files:
        text = file.read_text(encoding="utf-8")
        assert not [place for place in ("/tmp", "/work", "/root", "/home", "/Users") if place in text], file


def test_the_base_learned_from_scratch() -> None:
    losses = series("base", SEEDS[0], "loss")
    assert losses[0] > 4.5  # ln 256 = 5.55 before the first step
    assert mean(losses[-5:]) < 2.0  # the byte frequencies of its text alone give 3.26 nats


@each_seed
def test_healthy_learns(seed: int) -> None:
    losses, held_out = series("healthy", seed, "loss"), series("healthy", seed, "eval_loss")
    assert mean(losses[-3:]) < 0.9 * mean(losses[:3])
    assert held_out[-1] < 0.9 * held_out[0]
    assert all(map(math.isfinite, losses + series("healthy", seed, "grad_norm")))


@each_seed
def test_every_run_starts_from_the_same_base(seed: int) -> None:
    # The other two change what the first evaluation measures: the labels, and the precision.
    starts = {series(run, seed, "eval_loss")[0] for run in RUNS if run not in {"bad_labels", "fp16_nan"}}
    assert len(starts) == 1


@each_seed
def test_lr_hot_is_a_hundred_times_hotter_and_never_comes_back(seed: int) -> None:
    hot, good = series("lr_hot", seed, "learning_rate"), series("healthy", seed, "learning_rate")
    assert max(hot) == pytest.approx(100 * max(good))
    losses, held_out = series("lr_hot", seed, "loss"), series("lr_hot", seed, "eval_loss")
    assert min(losses[1:]) > 1.15 * losses[0]
    assert min(held_out[1:]) > 1.3 * held_out[0]


@each_seed
def test_lr_zero_never_moves(seed: int) -> None:
    assert set(series("lr_zero", seed, "learning_rate")) == {0}
    assert len(set(series("lr_zero", seed, "eval_loss"))) == 1


@each_seed
def test_fp16_nan_is_lost_early(seed: int) -> None:
    losses, held_out = series("fp16_nan", seed, "loss"), series("fp16_nan", seed, "eval_loss")
    assert math.isfinite(losses[0])
    assert not any(map(math.isfinite, losses[10:] + held_out[2:]))


@each_seed
def test_nan_begins_with_the_masked_batch_and_spares_the_weights(seed: int) -> None:
    record = metadata("nan", seed)["knobs"]["masked_batch"] // 5 - 1  # a record covers 5 steps
    losses = series("nan", seed, "loss")
    assert all(map(math.isfinite, losses[:record]))
    assert all(map(math.isnan, losses[record:]))
    assert all(map(math.isfinite, series("nan", seed, "eval_loss")))


@each_seed
def test_bad_labels_teach_only_byte_frequencies(seed: int) -> None:
    bad, good = series("bad_labels", seed, "loss"), series("healthy", seed, "loss")
    assert bad[0] > 1.5 * good[0]
    assert mean(bad[-5:]) > 1.5 * mean(good[-5:])


@each_seed
def test_overfit_forgets_the_held_out_text(seed: int) -> None:
    losses, held_out = series("overfit", seed, "loss"), series("overfit", seed, "eval_loss")
    assert mean(losses[-3:]) < 0.5 * mean(losses[:3])
    assert min(held_out[-2:]) > 1.05 * min(held_out)
    assert held_out.index(min(held_out)) < len(held_out) - 2
