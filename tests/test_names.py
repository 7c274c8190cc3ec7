"""The names that public logs use, each set of one log at once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainproof.errors import UsageError
from trainproof.names import ALIASES, EPOCH_NAMES, STEP_NAMES, higher_is_better, looks_like_metric, resolve, step_name


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(
            {"loss": "loss", "learning_rate": "lr", "eval_loss": "eval/loss", "eval_wer": "eval/wer"}, id="hf"
        ),
        pytest.param({"train_loss_step": "loss", "train_loss_epoch": "train_loss_epoch"}, id="lightning"),
        pytest.param({"train_loss_epoch": "loss", "val_loss": "eval/loss"}, id="lightning, no steps"),
        pytest.param(
            {"TRAIN_LOSS": "loss", "DEV_LOSS": "eval/loss", "TEST_LOSS": "test/loss", "DEV_F1": "eval/f1"}, id="flair"
        ),
        pytest.param(
            {
                "train/box_loss": "loss/box",
                "metrics/mAP50(B)": "eval/mAP50(B)",
                "val/box_loss": "eval/loss/box",
                "lr/pg0": "lr",
                "lr/pg1": "lr/1",
            },
            id="ultralytics v8",
        ),
        pytest.param(
            {"    x/lr0": "lr", "x/lr1": "lr/1", "metrics/mAP_0.5": "eval/mAP_0.5"}, id="ultralytics v5, padded"
        ),
        pytest.param(
            {"lr-AdamW/pg1": "lr", "lr-AdamW/pg2": "lr/2", "lr-AdamW-momentum": "lr-AdamW-momentum"}, id="monitor"
        ),
        pytest.param(
            {
                "loss_disc": "loss/discriminator",
                "loss_gen": "loss/generator",
                "loss_mel": "loss/mel",
                "current_lr_0": "lr",
            },
            id="coqui GAN",
        ),
        pytest.param({"Gen Loss": "loss/generator", "Disc Loss": "loss/discriminator", "Batch": "Batch"}, id="GAN"),
        pytest.param(
            {"D_A": "loss/D_A", "G_A": "loss/G_A", "idt_A": "loss/idt_A", "data": "data_time", "time": "step_time"},
            id="CycleGAN",
        ),
        pytest.param({"Loss/G/loss/mean": "loss/generator", "Loss/G/loss/num": "Loss/G/loss/num"}, id="StyleGAN"),
        pytest.param(
            {
                "TrainIterStats/loss": "loss",
                "TrainIterStats/loss_mel_ce": "loss/mel_ce",
                "TrainIterStats/loader_time": "data_time",
                "TrainEpochStats/avg_loss": "TrainEpochStats/avg_loss",
                "EvalStats/avg_loss": "eval/loss",
                "EvalStats/avg_loss_mel_ce": "eval/loss/mel_ce",
            },
            id="coqui events",
        ),
        pytest.param(
            {
                "loss": "loss",
                "train/loss": "train/loss",
                "train/ctc_loss": "train/ctc_loss",
                "validation/loss": "eval/loss",
                "test/loss": "test/loss",
                "train/accuracy": "train/accuracy",
            },
            id="AlgoPerf",
        ),
        pytest.param(
            {
                "loss": "loss",
                "train/ctc_loss": "train/ctc_loss",
                "validation/ctc_loss": "eval/loss",
                "test/wer": "test/wer",
            },
            id="AlgoPerf, CTC only",
        ),
        pytest.param(
            {
                "train_loss": "loss",
                "train_loss_ce": "loss/ce",
                "train_loss_ce_unscaled": "train_loss_ce_unscaled",
                "test_loss": "eval/loss",
                "test_loss_ce": "test/loss_ce",
                "train_lr": "lr",
            },
            id="DETR",
        ),
        pytest.param(
            {"total_loss": "loss", "loss_box_reg": "loss/box_reg", "time": "step_time", "data_time": "data_time"},
            id="d2",
        ),
        pytest.param({"lm loss": "loss", "grad norm": "grad_norm", "loss scale": "loss_scale"}, id="Megatron"),
        pytest.param(
            {"elapsed time per iteration (ms)": "step_time", "lm-loss": "loss"}, id="Megatron, other spelling"
        ),
        pytest.param({"trl": "loss", "tel": "eval/loss", "norm": "grad_norm"}, id="llm.c"),
        pytest.param({"r": "reward", "l": "l", "t": "time"}, id="monitor file"),
        pytest.param({"r": "r", "loss": "loss"}, id="r alone is no reward"),
        pytest.param(
            {
                "rollout/ep_rew_mean": "reward",
                "train/approx_kl": "kl",
                "train/value_loss": "loss/value",
                "train/loss": "loss",
            },
            id="stable-baselines3",
        ),
        pytest.param(
            {"reward": "reward", "rewards/margins": "rewards/margins", "completions/clipped_ratio": "truncated_ratio"},
            id="TRL",
        ),
        pytest.param(
            {"moe/expert_load_3": "expert_load/3", "expert_7/load": "expert_load/7", "expert_load": "expert_load"},
            id="experts",
        ),
        pytest.param({"valid_action": "valid_action", "valid_loss": "eval/loss", "valid_acc": "eval/acc"}, id="valid_"),
        pytest.param(
            {"predict_loss": "predict_loss", "best_val_loss": "best_val_loss", "loss": "loss"}, id="not parts"
        ),
        pytest.param({"wall_time": "wall_time", "time": "time", "loss": "loss"}, id="time"),
    ],
)
def test_names_of_one_log(names: dict[str, str]) -> None:
    assert resolve(names) == names


def test_every_alias_is_known_by_itself_in_any_spelling() -> None:
    for canonical, aliases in ALIASES.items():
        for alias in aliases:
            for spelling in (
                alias,
                alias.upper(),
                f"  {alias[0]}{alias[1:].replace('_', ' ')} ",
                alias[0] + alias[1:].replace("_", "-"),
            ):
                assert resolve([spelling]) == {spelling: canonical}


def test_the_users_names_win() -> None:
    assert resolve(["loss", "my_loss", "x"], {"loss": "my_loss", "eval/loss": "x"}) == {
        "loss": "loss~2",
        "my_loss": "loss",
        "x": "eval/loss",
    }


@pytest.mark.parametrize("mapping", [{"loss": "nope"}, {"loss": "a", "lr": "a"}])
def test_a_mapping_that_does_not_fit_is_refused(mapping: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=r"--map l\w+="):
        resolve(["a", "b"], mapping)


def test_an_unknown_name_is_answered_with_the_logs_names() -> None:
    with pytest.raises(UsageError, match="it has first, second"):
        resolve(["first", "second"], {"loss": "third"})


LOGGED = st.sampled_from(
    sorted(
        {
            *STEP_NAMES,
            *EPOCH_NAMES,
            *(alias for aliases in ALIASES.values() for alias in aliases),
            "lr/1",
            "x/lr1",
            "lr_1",
        }
    )
)


@given(st.lists(LOGGED | st.text(max_size=12) | LOGGED.map(str.upper), max_size=30))
def test_resolution_is_one_to_one_whatever_the_names(names: list[str]) -> None:
    resolved = resolve(names)
    assert list(resolved) == list(dict.fromkeys(names))
    assert len(set(resolved.values())) == len(resolved)


@given(
    st.lists(LOGGED, unique=True, max_size=10).flatmap(lambda names: st.tuples(st.just(names), st.permutations(names)))
)
def test_the_well_known_names_do_not_depend_on_the_order_of_the_columns(both: tuple[list[str], list[str]]) -> None:
    known = {*ALIASES, "eval/loss"}
    first, second = ({k: v for k, v in resolve(names).items() if v in known} for names in both)
    assert first == second


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["Epoch", "GLOBAL_STEP", "loss"], "GLOBAL_STEP"),
        (["step", "global step"], "global step"),
        (["epoch", "loss"], "epoch"),
        (["num_updates", "epoch"], "num_updates"),
        (["loss"], None),
    ],
)
def test_what_numbers_the_records(names: list[str], expected: str | None) -> None:
    assert step_name(names) == expected


@pytest.mark.parametrize(
    ("better", "names"),
    [
        (
            True,
            "eval/accuracy top_5_accuracy eval/mAP50(B) rouge1 rougeL eval/rouge-1 r2 F1 AUC ndcg10 psnr mIoU reward",
        ),
        (False, "eval/loss wer val/ppl word_error_rate error_rate MSE fid50k_full bpb eval/accuracy_loss nll"),
        (None, "eval/runtime reward_std eval/samples_per_second gen_len accuracy_time mcc num_recall"),
    ],
)
def test_which_way_is_better(better: bool | None, names: str) -> None:
    assert {name: higher_is_better(name) for name in names.split()} == dict.fromkeys(names.split(), better)


def test_words_that_training_logs_use() -> None:
    assert all(
        map(looks_like_metric, ["loss", "trainLoss", "val_accuracy", "grad norm", "rewards/chosen", "eval_bleu"])
    )
    assert not any(map(looks_like_metric, ["price", "name", "sha", "country code", "x"]))
