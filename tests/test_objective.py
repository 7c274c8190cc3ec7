"""What is optimised, decided from declared facts and from the names of the metrics."""

from __future__ import annotations

import numpy as np
import pytest

from trainproof.facts import Facts
from trainproof.frame import Frame, Series
from trainproof.objective import OBJECTIVES, objective_of

LOSS = np.array([8.0, 6.0, 5.0, 4.5, 4.2])


def frame(facts: dict[str, str | int] | None = None, **columns: object) -> Frame:
    step = np.arange(5)
    series = {
        name: Series(name, step, np.broadcast_to(np.asarray(v, float), 5).copy(), step + 1)
        for name, v in columns.items()
    }
    return Frame(series, facts=Facts(facts or {}), original_names={name: name for name in series})


def named(*names: str, facts: dict[str, str | int] | None = None) -> Frame:
    return frame(facts, **{"loss": LOSS, **dict.fromkeys(names, 0.5)})


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ("CAUSAL_LM", "lm"),
        ("SEQ_CLS", "classification"),
        ("dpo", "preference"),
        ("grpo", "rl"),
        ("image-classification", "classification"),
        ("normalizing flow", "density"),
        ("wgan", "adversarial"),
        ("mse", "regression"),
        *((objective, objective) for objective in OBJECTIVES),
    ],
)
def test_a_declared_objective_wins(declared: str, expected: str) -> None:
    assert objective_of(named("reward", facts={"objective": declared})) == expected


@pytest.mark.parametrize(
    ("expected", "names"),
    [
        ("preference", ["rewards/chosen", "rewards/margins", "reward", "num_tokens"]),
        ("rl", ["reward", "kl", "num_tokens"]),
        ("rl", ["train/policy_gradient_loss"]),
        ("unknown", ["kl"]),  # variational autoencoders log it too
        ("adversarial", ["loss/generator", "loss/discriminator"]),
        ("adversarial", ["loss/D_A", "loss/G_A", "loss/cycle_A"]),
        ("unknown", ["loss/generator"]),
        ("lm", ["mean_token_accuracy", "num_tokens"]),
        ("lm", ["eval/val_bpb"]),
        ("classification", ["eval/accuracy"]),
        ("classification", ["train/top_5_accuracy"]),
        ("unknown", ["eval/accuracy", "eval/bleu"]),
        ("unknown", ["eval/accuracy", "loss/box"]),
        ("unknown", ["fast_rcnn/cls_accuracy", "loss/cls"]),
        ("unknown", ["accuracy", "percentage"]),  # accuracy of preferences
        ("unknown", ["eval/wer"]),
        ("unknown", ["tokens"]),
        ("unknown", []),
    ],
)
def test_names_say_what_is_optimised(expected: str, names: list[str]) -> None:
    assert objective_of(named(*names)) == expected


@pytest.mark.parametrize(
    ("expected", "perplexity"),
    [("lm", np.exp(LOSS)), ("unknown", 2**LOSS), ("unknown", np.exp(LOSS / 30)), ("unknown", np.nan)],
)
def test_a_perplexity_has_to_be_that_of_the_loss(expected: str, perplexity: object) -> None:
    assert objective_of(frame(loss=LOSS, ppl=perplexity)) == expected


@pytest.mark.parametrize(
    ("expected", "names", "facts"),
    [
        ("lm", [], {"vocab_size": 50257}),
        ("unknown", ["loss/mel"], {"vocab_size": 256}),
        ("classification", [], {"num_classes": 10}),
        ("unknown", [], {"num_classes": 2, "vocab_size": 30522}),
        ("unknown", ["loss/box"], {"num_classes": 80}),
    ],
)
def test_sizes_declared(expected: str, names: list[str], facts: dict[str, str | int]) -> None:
    assert objective_of(named(*names, facts=facts)) == expected


@pytest.mark.parametrize(
    ("expected", "loss"),
    [
        ("density", [-1, -2, -3, -3.5, -3.7]),
        ("density", [2, 1, 0.5, 0.1, -1]),
        ("unknown", [2, 1, 0.5, 0.1, -0.0003]),
        ("unknown", [np.nan] * 5),
        ("density", [-1e308, -1e308, 1e308, -1e308, np.inf]),
    ],
)
def test_a_loss_that_is_clearly_negative_is_a_density(expected: str, loss: list[float]) -> None:
    assert objective_of(frame(loss=loss)) == expected
    assert objective_of(frame(loss=loss, ppl=np.exp(np.clip(loss, -5, 5)))) in {"lm", expected}


def test_a_negative_loss_is_no_cross_entropy_of_labels() -> None:
    assert objective_of(frame({"num_classes": 10}, loss=[2, 1, 0.5, 0.1, -0.0003], accuracy=0.5)) == "unknown"


def test_a_frame_without_metrics() -> None:
    assert objective_of(frame()) == "unknown"
