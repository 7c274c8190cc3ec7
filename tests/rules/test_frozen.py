"""TP505: evaluations that give the same value again and again."""

from __future__ import annotations

import numpy as np
import pytest

from tests.rules.eval_frames import evals_frame, frame_of, said
from tests.rules.helpers import only, run_rule, severities
from trainproof.rules.frozen import is_small_fraction, significant_digits
from trainproof.rules.registry import CannotTell
from trainproof.verdict import Severity

INFO, WARN, FAIL = Severity.INFO, Severity.WARN, Severity.FAIL


def test_a_loss_frozen_for_three_evaluations_warns_and_for_five_fails() -> None:
    warn = only("TP505", evals_frame(loss=[1.2, 1.3, 2.384921, 2.384921, 2.384921]))
    assert (warn.severity, warn.first_step, warn.flagged_step) == (WARN, 300, 500)
    fail = only("TP505", evals_frame(loss=[2.384921] * 6))
    assert (fail.severity, fail.first_step, fail.flagged_step, fail.last_step) == (FAIL, 100, 500, 600)


@pytest.mark.parametrize(
    "loss",
    [
        [0.0] * 100,  # never computed
        [-1.0] * 10,
        [0.6931] * 10,  # four digits repeat by rounding
        [2.384921, 2.384921, 2.4],  # it moves again
        [2.384921, 2.384921],
    ],
)
def test_placeholders_and_coarse_values_are_passed_over(loss: list[float]) -> None:
    assert run_rule("TP505", evals_frame(loss=loss)) == []


def test_a_loss_that_fell_to_zero_is_no_placeholder() -> None:
    seen = only("TP505", evals_frame(loss=[1.5, 1.2, 0.0, 0.0, 0.0, 0.0, 0.0]))
    assert (seen.severity, seen.first_step, seen.flagged_step) == (FAIL, 300, 700)


def test_a_loss_that_stays_at_its_best_is_a_schedule_that_ended() -> None:
    loss, accuracy = [6.9, 2.0, 1.2, 0.9] + [0.8548135757] * 9, [0.001, 0.5, 0.7, 0.77] + [0.78031999] * 9
    seen = only("TP505", evals_frame(loss=loss, accuracy=accuracy))
    assert (seen.severity, seen.evidence[0].metric) == (INFO, "eval/loss")


def test_a_cached_result_beside_splits_that_move_warns() -> None:
    frame = frame_of(
        {
            "eval/loss": (range(10, 90, 10), [3357.9224] * 8),
            "test/accuracy": (range(10, 90, 10), np.linspace(0.1, 0.4, 8)),
        }
    )
    assert severities("TP505", frame) == [WARN]


def test_a_constant_part_of_the_loss_is_a_placeholder() -> None:
    assert run_rule("TP505", evals_frame(l2_loss=[0.1234567] * 9)) == []


def test_a_pinned_error_rate_beside_a_level_loss_fails_at_the_tenth() -> None:
    loss = 5.4 + 0.01 * np.sin(np.arange(14))
    seen = only("TP505", evals_frame(loss=loss, wer=[1.33, 1.1, *[0.8966179750330672] * 12]))
    assert (seen.severity, seen.first_step, seen.flagged_step) == (FAIL, 300, 1200)
    assert severities("TP505", evals_frame(loss=loss[:8], wer=[1.33, 1.1, *[0.8966179750330672] * 6])) == [WARN]


def test_a_metric_pinned_at_its_worst_or_at_chance_fails_at_the_fifth() -> None:
    loss = [4.5, 4.4, 4.41, 4.4, 4.42, 4.41, 4.4]
    seen = only("TP505", evals_frame(loss=loss, bleu=[3.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0]))
    assert (seen.severity, seen.first_step, seen.flagged_step) == (FAIL, 300, 700)
    assert severities("TP505", evals_frame(loss=loss, wer=[0.9, 0.95, 1.0, 1.0, 1.0, 1.0, 1.0])) == [FAIL]
    chance = frame_of(
        {"eval/loss": (range(7), loss), "eval/accuracy": (range(7), [0.2, 0.11, *[0.1] * 5])}, facts={"num_classes": 10}
    )
    assert severities("TP505", chance) == [FAIL]


def test_a_metric_at_its_worst_while_the_loss_falls_is_a_fault_of_the_metric() -> None:
    falling = np.linspace(3, 1, 12)
    seen = only("TP505", evals_frame(loss=falling, wer=[100.0] * 12))
    assert (seen.severity, seen.flagged_step) == (WARN, 1000)
    assert "fault of the metric" in seen.message
    assert run_rule("TP505", evals_frame(loss=falling[:6], map=[0.0] * 6)) == []  # the first evaluations of a detector


def test_saturated_small_and_lonely_metrics_are_healthy() -> None:
    loss = 0.1 + 0.001 * np.cos(np.arange(12))
    assert run_rule("TP505", evals_frame(loss=loss, accuracy=[1.0] * 12)) == []
    assert run_rule("TP505", evals_frame(loss=loss, accuracy=[5 / 6] * 12)) == []
    assert run_rule("TP505", evals_frame(loss=loss, exact_match=[0.0] * 12, f1=np.linspace(0.2, 0.5, 12))) == []
    assert said("TP505", evals_frame(hp_metric=[-1.0] * 9, ap=[-1.0] * 9)) == []


def test_without_an_evaluation_it_is_skipped() -> None:
    with pytest.raises(CannotTell):
        run_rule("TP505", evals_frame(gen_len=[3.0, 3.0, 3.0]))


def test_digits_and_fractions() -> None:
    assert [significant_digits(v) for v in (0.0, 100.0, 0.5, 2.384921, -1e-7, 1.5e300)] == [0, 1, 1, 7, 1, 2]
    assert is_small_fraction(5 / 6, 200)
    assert is_small_fraction(81.25, 200)  # 13 of 16, as a percentage
    assert not is_small_fraction(0.8966179750330672, 200)
