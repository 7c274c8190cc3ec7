"""Family TP1 on values that are not finite, hidden, absurd or no longer there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.rules.helpers import healthy_frame, learning_rate, make_frame, only, run_rule, severities
from trainproof.frame import Event
from trainproof.rules.registry import CannotTell
from trainproof.verdict import Severity

NAN, INF = float("nan"), float("inf")


def with_values(values: Any, at: Any, value: float) -> Any:
    out = np.array(values, dtype=float)
    out[at] = value
    return out


# TP101


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_a_nonfinite_loss_fails_at_the_first_and_cites_what_was_beside_it(value: float) -> None:
    loss = with_values(np.linspace(2, 1, 100), slice(62, None), value)
    seen = only("TP101", make_frame(loss=loss, lr=np.full(100, 1e-3), loss_scale=np.full(100, 512.0)))
    assert (seen.severity, seen.first_step, seen.last_step, seen.flagged_step) == (Severity.FAIL, 63, 100, 63)
    assert {(e.metric, e.step) for e in seen.evidence} == {("loss", 62), ("loss", 63), ("lr", 63), ("loss_scale", 63)}
    assert "the last finite value was" in seen.message


def test_a_loss_that_was_never_finite_fails() -> None:
    assert only("TP101", make_frame(loss=[NAN] * 5)).flagged_step == 1


def test_a_step_skipped_by_design_warns() -> None:
    loss = np.linspace(2, 1, 2000)
    assert severities("TP101", make_frame(loss=with_values(loss, [700, 1500], NAN))) == [Severity.WARN]
    assert severities("TP101", make_frame(loss=with_values(loss, [700, 900, 1500], NAN))) == [Severity.FAIL]
    assert severities("TP101", make_frame(loss=with_values(loss, [700, 701], NAN))) == [Severity.FAIL]
    assert severities("TP101", make_frame(loss=with_values(loss, [1999], NAN))) == [Severity.FAIL]


def test_a_part_fails_by_itself_and_warns_beside_a_finite_total() -> None:
    part = [1.0, NAN, NAN, NAN]
    frame = make_frame({"loss/cls": part, "loss/box": [0.3, 0.2, 0.2, 0.2]})
    seen = only("TP101", frame)
    assert (seen.severity, seen.evidence[0].metric, seen.flagged_step) == (Severity.FAIL, "loss/cls", 2)
    assert severities("TP101", make_frame({"loss/cls": part}, loss=[1.0] * 4)) == [Severity.WARN]
    both = make_frame({"loss/cls": part}, loss=[1.0, NAN, 1.0, 1.0])
    assert severities("TP101", both) == [Severity.FAIL, Severity.FAIL]
    hidden = make_frame({"loss/cls": part}, loss=[1.0] * 4, masked=["loss"])
    assert severities("TP101", hidden) == [Severity.FAIL]


def test_rewards_before_the_first_update_are_not_finite() -> None:
    loss = [NAN, NAN, 0.1, 0.2, 0.1]
    assert run_rule("TP101", make_frame(loss=loss, objective="rl")) == []
    assert severities("TP101", make_frame(loss=loss)) == [Severity.FAIL]
    assert severities("TP101", make_frame(loss=[*loss, NAN], objective="rl")) == [Severity.FAIL]


def test_other_metrics_may_be_nan_and_a_loss_scale_is_no_loss() -> None:
    assert run_rule("TP101", make_frame({"explained_variance": [NAN] * 4}, loss=[1.0] * 4)) == []
    with pytest.raises(CannotTell, match="no loss"):
        run_rule("TP101", make_frame(loss_scale=[1.0] * 4))


# TP102


def grads(n: int, bad: Any) -> Any:
    return with_values(np.full(n, 1.5) + np.arange(n) / n, bad, NAN)


def test_three_in_a_row_fail_at_the_third_while_the_schedule_moves() -> None:
    lr = np.linspace(1e-5, 1e-3, 60)
    seen = only("TP102", make_frame(grad_norm=grads(60, [0, 1, 2]), lr=lr))
    assert (seen.severity, seen.flagged_step) == (Severity.FAIL, 3)
    seen = only("TP102", make_frame(grad_norm=grads(60, [40, 41, 42])))
    assert (seen.severity, seen.flagged_step) == (Severity.FAIL, 43)
    assert severities("TP102", make_frame(grad_norm=grads(60, [40, 41]))) == [Severity.WARN]


def test_a_scaler_searches_at_the_start() -> None:
    assert severities("TP102", make_frame(grad_norm=grads(60, 0), lr=np.full(60, 1e-3))) == [Severity.INFO]
    assert severities("TP102", make_frame(grad_norm=grads(60, range(8)), lr=np.full(60, 1e-3))) == [Severity.INFO]
    seen = only("TP102", make_frame(grad_norm=grads(60, range(9)), lr=np.full(60, 1e-3)))
    assert (seen.severity, seen.flagged_step) == (Severity.FAIL, 9)


def test_a_share_of_the_records_warns_and_fails() -> None:
    isolated = make_frame(grad_norm=grads(150, [100]))
    assert severities("TP102", isolated) == [Severity.INFO]
    seen = only("TP102", make_frame(grad_norm=grads(150, [60, 100])))
    assert (seen.severity, seen.flagged_step) == (Severity.WARN, 101)
    seen = only("TP102", make_frame(grad_norm=grads(60, [30, 40, 50])))
    assert (seen.severity, seen.flagged_step) == (Severity.FAIL, 51)


def test_a_share_that_fell_again_is_told() -> None:
    assert severities("TP102", make_frame(grad_norm=grads(1000, [60, 100]))) == [Severity.INFO]


def test_steps_that_the_scaler_skipped_are_told() -> None:
    """A skipped step shows as a learning rate that repeats on the next record."""
    bad = [0, 1, 17, 40, 50, 60, 73]
    lr = learning_rate(75)
    for i in bad:
        lr[i + 1 :] = np.append(lr[i], lr[i + 1 : -1])
    assert severities("TP102", make_frame(grad_norm=grads(75, bad), lr=lr)) == [Severity.INFO]
    assert severities("TP102", make_frame(grad_norm=grads(75, bad), lr=learning_rate(75))) == [Severity.FAIL]
    flat = np.full(75, 1e-3)  # a schedule that never moves says nothing by standing still
    assert severities("TP102", make_frame(grad_norm=grads(75, bad), lr=flat)) == [Severity.FAIL]


def test_a_scale_that_is_cut_beside_it_is_a_skipped_step() -> None:
    bad = [30, 40, 50]
    scale = np.full(60, 2.0**16)
    for i in bad:
        scale[i:] /= 2
    assert severities("TP102", make_frame(grad_norm=grads(60, bad), loss_scale=scale)) == [Severity.INFO]


def test_without_a_scaler_a_loss_that_moves_with_it_fails() -> None:
    loss = with_values(np.full(60, 2.0), slice(31, None), 9.0)
    for more in ({"facts": {"precision": "bfloat16"}}, {"loss_scale": np.ones(60)}):
        frame = make_frame(loss=loss, grad_norm=grads(60, [30]), **more)
        seen = only("TP102", frame)
        assert (seen.severity, seen.flagged_step) == (Severity.FAIL, 32)
    assert severities("TP102", make_frame(loss=loss, grad_norm=grads(60, [30]))) == [Severity.INFO]
    steady = make_frame(loss=np.full(60, 2.0), grad_norm=grads(60, [30]), facts={"precision": "bf16"})
    assert severities("TP102", steady) == [Severity.INFO]


# TP103


def test_a_zero_loss_beside_a_nonfinite_norm_fails_at_the_first() -> None:
    frame = make_frame(loss=[3.5, 0.0, 0.0], grad_norm=[100.7, NAN, NAN])
    seen = only("TP103", frame)
    assert (seen.severity, seen.flagged_step, seen.last_step) == (Severity.FAIL, 2, 3)
    assert seen.evidence[-1].value == "NaN"


def test_a_zero_loss_before_a_nonfinite_evaluation_fails_there() -> None:
    frame = make_frame({"eval/loss": ([0, 25], [NAN, NAN])}, loss=([10, 20, 30], [0.0, 0.0, 0.0]))
    assert only("TP103", frame).flagged_step == 25
    assert run_rule("TP103", make_frame({"eval/loss": ([5], [NAN])}, loss=([10, 20], [0.0, 0.0]))) == []


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(make_frame(loss=[1.0, 0.0, 1.0], grad_norm=[NAN, 1.0, NAN]), id="not in the same record"),
        pytest.param(make_frame(loss=[0.0] * 3, grad_norm=[0.0] * 3), id="finite norms"),
    ],
)
def test_zeros_and_nans_apart_hide_nothing(frame: Any) -> None:
    assert run_rule("TP103", frame) == []


def test_reward_losses_are_zero_by_construction() -> None:
    with pytest.raises(CannotTell):
        run_rule("TP103", make_frame(loss=[0.0] * 3, grad_norm=[NAN] * 3, objective="rl"))


# TP104


def test_events_are_told_once_a_kind_at_the_step_before_them() -> None:
    events = [
        Event("cuda-out-of-memory", "RuntimeError: CUDA out of memory", 8),
        Event("xid-63", "NVRM: Xid 63", 5),
        Event("cuda-out-of-memory", "again", 9),
    ]
    first, second = run_rule("TP104", make_frame(loss=[3.0] * 6, steps=range(10, 70, 10), events=events))
    assert (first.severity, first.flagged_step, first.evidence[0].line) == (Severity.FAIL, 60, 8)
    assert "(2 such lines)" in first.message
    assert (second.severity, second.flagged_step) == (Severity.WARN, 50)


def test_a_log_without_events_is_not_judged_by_them() -> None:
    with pytest.raises(CannotTell):
        run_rule("TP104", make_frame(loss=[1.0]))


# TP105


def skipped(n: int, at: Any, of: float = 1.0) -> Any:
    return with_values(np.zeros(n), at, of)


def test_a_running_total_of_one_is_no_step_skipped_again_and_again() -> None:
    total = np.where(np.arange(300) >= 220, 1.0, 0.0)
    scale = np.where(np.arange(300) >= 220, 131072.0, 262144.0)
    assert run_rule("TP105", make_frame(skipped_steps=total, loss_scale=scale)) == []
    falling = np.where(np.arange(300) >= 220, 262144.0 * 0.5 ** (np.arange(300) - 219.0), 262144.0)
    assert only("TP105", make_frame(skipped_steps=total, loss_scale=falling)).severity is Severity.FAIL


def test_more_than_a_twentieth_of_the_steps_warns() -> None:
    assert run_rule("TP105", make_frame(skipped_steps=skipped(400, range(150, 350, 20)))) == []  # 10 of 200
    frame = make_frame(skipped_steps=skipped(400, [200, 210, 220, 230, 240, 250, 260, 270, 280, 290, 300]))
    seen = only("TP105", frame)
    assert (seen.severity, seen.flagged_step) == (Severity.WARN, 301)  # 11 of the last 200


def test_more_than_a_fifth_fails() -> None:
    seen = only("TP105", make_frame(skipped_steps=skipped(600, range(300, 500, 4))))
    assert (seen.severity, seen.flagged_step) == (Severity.FAIL, 461)


def test_eight_consecutive_skipped_steps_fail_at_the_eighth() -> None:
    seen = only("TP105", make_frame(skipped_steps=skipped(1000, range(500, 508))))
    assert (seen.severity, seen.flagged_step) == (Severity.FAIL, 508)
    assert run_rule("TP105", make_frame(skipped_steps=skipped(1000, range(500, 507)))) == []


def test_a_running_total_and_a_logging_interval_are_understood() -> None:
    total = np.cumsum(skipped(100, range(60, 66), of=10.0))
    seen = only("TP105", make_frame(skipped_steps=total, steps=range(10, 1010, 10)))
    assert (seen.severity, seen.flagged_step) == (Severity.FAIL, 610)  # all 10 steps of one record


def test_the_start_up_search_and_probing_are_healthy() -> None:
    scale = np.full(3000, 2.0**12)
    scale[:8] = 2.0 ** np.arange(20, 12, -1)
    for i in (1500, 2900):
        scale[i:] /= 2
    assert run_rule("TP105", make_frame(loss_scale=scale)) == []
    assert run_rule("TP105", make_frame(skipped_steps=([10, 510], [6.0, 8.0]))) == []


def test_halvings_of_the_scale_are_skipped_steps() -> None:
    scale = np.full(400, 2.0**30)
    scale[200:220] = 2.0 ** np.arange(30, 10, -1)
    scale[220:] = 2.0**10
    assert only("TP105", make_frame(loss_scale=scale)).flagged_step == 209


@pytest.mark.parametrize(
    ("value", "why"), [(1.0, "static"), (512.0, "static"), (0.0, "placeholder"), (-1.0, "placeholder")]
)
@pytest.mark.parametrize("code", ["TP105", "TP106"])
def test_a_static_scale_and_a_placeholder_are_not_asked(code: str, value: float, why: str) -> None:
    with pytest.raises(CannotTell, match=why):
        run_rule(code, make_frame(loss_scale=np.full(300, value)))


def test_a_short_run_is_not_asked_for_its_overflows() -> None:
    with pytest.raises(CannotTell, match="needs 100"):
        run_rule("TP105", make_frame(skipped_steps=skipped(90, 60)))


# TP106


def test_a_scale_at_one_warns_at_the_fifth_record() -> None:
    scale = np.repeat([8.0, 4.0, 2.0, 1.0], 75)
    seen = only("TP106", make_frame(loss_scale=scale))
    assert (seen.severity, seen.flagged_step) == (Severity.WARN, 230)


def test_a_scale_printed_as_zero_after_real_ones_counts() -> None:
    scale = np.repeat([8.0, 2.0, 0.0], 60)
    assert only("TP106", make_frame(loss_scale=scale)).flagged_step == 125


def test_a_fall_of_64_within_50_steps_warns_and_a_slow_one_does_not() -> None:
    scale = np.full(600, 2.0**16)
    for k in range(6):
        scale[300 + 9 * k :] /= 2
    seen = only("TP106", make_frame(loss_scale=scale))
    assert (seen.severity, seen.flagged_step) == (Severity.WARN, 346)
    slow = np.full(600, 2.0**16)
    for k in range(6):
        slow[300 + 11 * k :] /= 2
    assert run_rule("TP106", make_frame(loss_scale=slow)) == []


def test_a_scale_that_was_regained_is_told() -> None:
    scale = np.full(600, 2.0**16)
    scale[300:] = 2.0**10
    scale[450:] = 2.0**12
    assert severities("TP106", make_frame(loss_scale=scale)) == [Severity.INFO]
    scale[450:520] = 2.0**11
    assert severities("TP106", make_frame(loss_scale=scale)) == [Severity.WARN]


def test_a_scale_at_the_bottom_with_steps_still_skipped_fails() -> None:
    scale = np.repeat([2.0**16, 2.0**9], 200)
    frame = make_frame(loss_scale=scale, skipped_steps=skipped(400, range(205, 400, 5)))
    seen = only("TP106", frame)
    assert seen.severity is Severity.FAIL
    assert 201 <= seen.flagged_step <= 260
    low = np.tile([1.0, 1.0, 1.0, 2.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.5], 40)
    assert severities("TP106", make_frame(loss_scale=low)) == [Severity.FAIL]


def test_the_first_steps_of_a_scale_are_a_search() -> None:
    scale = np.full(300, 256.0)
    scale[:30] = np.repeat([2.0**16, 2.0**8, 0.5], 10)
    assert run_rule("TP106", make_frame(loss_scale=scale)) == []


# TP107


def test_absurd_values_warn_once_and_fail_twice() -> None:
    loss = with_values(np.linspace(6, 5, 100), 40, 153318.95)
    seen = only("TP107", make_frame(loss=loss, objective="lm"))
    assert (seen.severity, seen.flagged_step) == (Severity.WARN, 41)
    seen = only("TP107", make_frame(loss=with_values(loss, 60, 12545.3), objective="lm"))
    assert (seen.severity, seen.first_step, seen.flagged_step) == (Severity.FAIL, 41, 61)


@pytest.mark.parametrize(
    "loss",
    [
        pytest.param(with_values(np.full(100, 5.0), 19, 1e6), id="in the first 20 records"),
        pytest.param(with_values(np.full(100, 5.0), 50, 1000.0), id="not above 1,000"),
        pytest.param(with_values(np.full(100, 3e4), 50, 1e6), id="summed over tokens"),
    ],
)
def test_values_that_are_not_absurd(loss: Any) -> None:
    assert run_rule("TP107", make_frame(loss=loss, objective="lm")) == []


def test_the_vocabulary_raises_the_limit_and_regression_is_not_asked() -> None:
    loss = with_values(np.full(100, 5.0), 50, 1100.0)
    assert run_rule("TP107", make_frame(loss=loss, objective="lm", facts={"vocab_size": 100_000})) == []
    assert severities("TP107", make_frame(loss=loss, objective="lm", facts={"vocab_size": 10_000})) == [Severity.WARN]
    with pytest.raises(CannotTell):
        run_rule("TP107", make_frame(loss=loss, objective="regression"))


# TP110


def test_a_loss_that_exploded_and_went_blank_fails_at_the_fifth_blank() -> None:
    loss = [*np.linspace(0.4, 0.138, 60), 32.8, 1.5e7, 6.6e27]
    seen = only("TP110", make_frame(loss=loss, lr=learning_rate(100)))
    assert (seen.severity, seen.flagged_step, seen.last_step) == (Severity.FAIL, 68, 100)
    assert run_rule("TP110", make_frame(loss=loss, lr=learning_rate(67))) == []


def test_an_infinite_norm_beside_the_last_values_fails_and_nothing_of_the_kind_warns() -> None:
    loss, norm = np.linspace(2, 1, 60), np.linspace(1, 2, 60)
    frame = make_frame(loss=loss, grad_norm=with_values(norm, 59, INF), lr=learning_rate(100))
    assert severities("TP110", frame) == [Severity.FAIL]
    assert severities("TP110", make_frame(loss=loss, grad_norm=norm, lr=learning_rate(100))) == [Severity.WARN]
    assert severities("TP110", make_frame(loss=with_values(loss, 59, INF), lr=learning_rate(100))) == [Severity.FAIL]


def test_an_evaluation_loss_that_goes_blank_beside_a_pinned_metric_fails() -> None:
    steps = list(range(100, 2100, 100))
    accuracy = [0.1, 0.2, 0.3] + [0.0] * 17
    frame = make_frame({"eval/loss": (steps[:3], [4.5, 3.8, 3.1]), "eval/accuracy": (steps, accuracy)})
    seen = only("TP110", frame)
    assert (seen.severity, seen.flagged_step) == (Severity.FAIL, 800)
    assert "at exactly 0" in seen.message
    one = make_frame({"eval/loss": (steps[:1], [30.8]), "eval/wer": (steps, [4.2] + [0.8966] * 19)})
    assert severities("TP110", one) == [Severity.FAIL]


def test_an_evaluation_loss_that_goes_blank_beside_a_moving_metric_warns() -> None:
    steps = list(range(100, 2100, 100))
    evals = {"eval/accuracy": (steps, np.linspace(0.1, 0.3, 20))}
    assert severities("TP110", make_frame({"eval/loss": (steps[:9], [2.0] * 9), **evals})) == [Severity.WARN]
    assert run_rule("TP110", make_frame({"eval/loss": (steps[:2], [2.0] * 2), **evals})) == []


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(
            make_frame(
                {"eval/accuracy": (range(100, 3100, 100), np.linspace(0.1, 0.7, 30))},
                loss=np.linspace(6.9, 6.8, 100),
                grad_norm=np.linspace(1, 2, 100),
            ),
            id="logged for the first 100 steps by design",
        ),
        pytest.param(make_frame(loss=([10, 20, 30], [2, 1, 1]), grad_norm=np.ones(100)), id="logged less often"),
    ],
)
def test_losses_that_are_logged_as_they_are_meant_to_be(frame: Any) -> None:
    assert run_rule("TP110", frame) == []


def test_a_clock_that_goes_on_is_no_companion() -> None:
    with pytest.raises(CannotTell, match="beside a loss"):
        run_rule("TP110", make_frame(loss=np.ones(60), epoch=np.ones(100)))


# all of them


@pytest.mark.parametrize("code", ["TP101", "TP102", "TP103", "TP107", "TP110"])
def test_a_healthy_run_has_sound_numbers(code: str) -> None:
    assert run_rule(code, healthy_frame(1000, 0.5, 3, objective="lm")) == []
