"""Consoles of gradient boosting: which metric of which data is the loss, and which way it goes."""

from __future__ import annotations

import pytest

from tests.readers.console.test_generic import ACCURACY, HUNDREDS, TRAIN, VALID, repeated
from tests.readers.console.test_samples import points, read

SHIFTED = [(100 * e, v) for e, v in VALID]


@pytest.mark.parametrize(
    "line",
    [
        "[{s}]\ttrain-error:0.21\ttrain-logloss:{t}\teval-error:0.24\teval-logloss:{v}",
        "[11:22:33] [{s}]\tvalidation_0-rmse:{t}\tvalidation_1-rmse:{v}",
        "[{s}]\ttraining's binary_logloss: {t}\tvalid_1's binary_logloss: {v}",
        "[{s}]\ttraining's l2: {t}\ttraining's l1: 0.5\tvalid_0's l2: {v}\tvalid_0's l1: 0.6\tvalid_1's l2: 9.5",
        (
            "[LightGBM] [Info] Iteration:{s}, training l2 : {t}\n[LightGBM] [Info] Iteration:{s}, valid_1 l2 : {v}\n"
            "[LightGBM] [Info] 0.012345 seconds elapsed, finished iteration {s}"
        ),
        "{s}:\tlearn: {t}\ttest: {v}\tbest: {v} ({s})\ttotal: 51ms\tremaining: 4.9s",
        "[{s}/2000] 1 tree, 31 leaves, max depth = 8, train loss: {t}, val loss: {v}, in 0.012s",
    ],
)
def test_the_losses_of_training_and_evaluation(line: str) -> None:
    frame = read(repeated(line).encode())
    assert frame.source.format == "boosting"
    assert (points(frame, "loss"), points(frame, "eval/loss")) == (HUNDREDS, SHIFTED)
    assert not {"remaining", "best", "in"} & set(frame)


def test_a_lone_set_of_scikit_learns_interface_is_of_evaluation() -> None:
    frame = read(repeated("[{s}]\tvalidation_0-logloss:{v}").encode())
    assert points(frame, "eval/loss") == SHIFTED
    assert "loss" not in frame


def test_a_metric_that_is_to_grow_is_no_loss() -> None:
    scored = "{s}:\tlearn: {a}\ttest: {a}\tbest: {a} ({s})\ttotal: 51ms\tremaining: 4.9s"
    frame = read(repeated(scored).encode())
    assert points(frame, "eval/score") == [(100 * e, a) for e, a in ACCURACY]
    assert not {"loss", "eval/loss"} & set(frame)
    assert "loss" not in read(repeated("{s}:\tlearn: {a}\ttotal: 51ms\tremaining: 4.9s").encode())
    assert "loss" not in read(repeated("[{s}]\ttrain-auc:{a}\teval-auc:{a}").encode())


def test_the_table_of_scikit_learn() -> None:
    head = "      Iter       Train Loss      OOB Improve   Remaining Time \n"
    frame = read((head + repeated("{e:>10}           {t}           0.0123            2.90s")).encode())
    assert points(frame, "loss") == TRAIN
