"""TP503 and TP504: evaluations that are not finite, or worse than before training."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.rules.eval_frames import evals_frame, frame_of, said
from tests.rules.helpers import only, run_rule, severities
from trainproof.frame import Frame
from trainproof.rules.registry import CannotTell
from trainproof.verdict import Severity

INFO, WARN, FAIL = Severity.INFO, Severity.WARN, Severity.FAIL
NAN, INF = float("nan"), float("inf")


def based(objective: str = "unknown", **metrics: Any) -> Frame:
    """Evaluations at steps 0, 100, 200, ... beside a training loss at 10, 20, ..."""
    series: dict[str, Any] = {f"eval/{name}": ([100 * k for k in range(len(v))], v) for name, v in metrics.items()}
    return frame_of(series, loss=(range(10, 1010, 10), np.linspace(2, 1, 100)), objective=objective)


# TP503


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_a_loss_that_ends_not_finite_fails_where_it_began_to_stay_so(value: float) -> None:
    seen = only("TP503", evals_frame(loss=[1.0, value, 0.9, value, value]))
    assert (seen.severity, seen.first_step, seen.flagged_step, seen.last_step) == (FAIL, 200, 400, 500)


def test_a_single_evaluation_is_enough() -> None:
    assert severities("TP503", evals_frame(loss=[NAN])) == [FAIL]


def test_a_later_finite_evaluation_makes_it_a_warning() -> None:
    seen = only("TP503", evals_frame(loss=[1.0, NAN, NAN, 0.9]))
    assert (seen.severity, seen.flagged_step) == (WARN, 200)
    assert "2 of 4" in seen.message


def test_metrics_that_are_nan_in_health_are_passed_over() -> None:
    frame = evals_frame(loss=[1.0, 0.9, 0.8], explained_variance=[NAN, NAN, 0.1], perplexity=[INF, 2.4, 2.2])
    assert run_rule("TP503", frame) == []
    assert run_rule("TP503", evals_frame(map=[0.1, NAN, 0.2, 0.3, NAN])) == []  # an absent class, now and then
    assert run_rule("TP503", evals_frame(map=[NAN] * 5)) == []


def test_a_metric_that_turned_nan_warns_at_the_second() -> None:
    seen = only("TP503", evals_frame(map=[0.1, 0.2, 0.3, NAN, NAN, NAN]))
    assert (seen.severity, seen.first_step, seen.flagged_step) == (WARN, 400, 500)


def test_a_part_that_was_never_computed_is_information() -> None:
    assert severities("TP503", evals_frame(loss=[1.0, 0.9], aux_loss=[NAN, NAN])) == [INFO]


def test_the_test_split_is_looked_at() -> None:
    assert severities("TP503", frame_of({"test/loss": ([10], [NAN])})) == [FAIL]
    with pytest.raises(CannotTell, match="no eval metrics"):
        run_rule("TP503", frame_of({}, loss=[NAN]))


def test_it_holds_for_reinforcement_learning_too() -> None:
    assert severities("TP503", frame_of({"eval/loss": ([10], [NAN])}, objective="rl")) == [FAIL]


# TP504


def test_a_run_that_never_gets_back_to_its_base_fails_once_its_noise_is_known() -> None:
    seen = only("TP504", based(loss=[1.0, 1.21, 1.20, 1.22, 1.21, 1.22]))
    assert (seen.severity, seen.first_step, seen.flagged_step) == (FAIL, 0, 500)
    assert [e.value for e in seen.evidence][:2] == [1.0, 1.20]


def test_a_run_that_was_better_and_is_worse_now_warns() -> None:
    loss = [1.0, 0.9, 0.91, 0.92, 0.93, 1.2, 1.21, 1.22, 1.21]
    assert severities("TP504", based(loss=loss)) == [WARN]


@pytest.mark.parametrize(
    "loss",
    [
        [1.0, 1.01, 1.005, 1.01, 1.0],  # within 2 %
        [1.0, 1.1, 1.05, 0.95, 0.9],  # a dip at first
        [1.0, 1.3],  # one evaluation
        [1.0, 1.3, 0.9, 1.3, 0.9],  # noise
    ],
)
def test_runs_near_their_base_are_healthy(loss: list[float]) -> None:
    assert said("TP504", based(loss=loss)) == []


def test_an_error_rate_above_its_base_fails_too() -> None:
    assert severities("TP504", based(wer=[23.078, 40.1, 41.3, 42.2, 43.5])) == [FAIL]


def test_a_metric_that_improves_excuses_the_loss_and_a_loss_that_fell_the_metric() -> None:
    worse, better = [1.0, 1.2, 1.21, 1.22, 1.23, 1.24], [0.3, 0.4, 0.5, 0.6, 0.7, 0.75]
    assert severities("TP504", based(loss=worse, accuracy=better)) == [INFO]
    assert severities("TP504", based(loss=[1.0, 0.9, 0.8, 0.7, 0.6, 0.5], wer=[20, 30, 31, 32, 33, 34])) == [WARN]


def test_an_epoch_counted_from_zero_is_no_base() -> None:
    epochs = range(8)
    rising = [1.0, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8]
    with pytest.raises(CannotTell, match="before training"):
        run_rule("TP504", frame_of({"eval/loss": (epochs, rising)}, loss=(epochs, rising)))


def test_a_base_evaluated_at_step_one_counts() -> None:
    frame = frame_of(
        {"eval/loss": ([1, 100, 200, 300, 400], [1.0, 1.5, 1.51, 1.52, 1.53])}, loss=(range(10, 410, 10), [1.0] * 40)
    )
    assert severities("TP504", frame) == [FAIL]
