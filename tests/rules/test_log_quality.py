"""Family TP0 on logs with holes, repeats and columns that stop."""

from __future__ import annotations

import numpy as np
import pytest

from tests.rules.helpers import healthy_frame, make_frame, only, run_rule, severities
from trainproof.frame import Repair, Series
from trainproof.rules.registry import CannotTell
from trainproof.verdict import Severity

FALLING = [2.0 - 0.01 * i for i in range(60)]


def overlap(first: int, last: int) -> Repair:
    return Repair("overlap", first, last, 99, last - first + 1, 400, f"resumed at step {first} after step {last}")


def test_few_records_are_told_with_what_was_found() -> None:
    seen = only("TP001", make_frame(loss=[1.0, 0.9], lr=[0.1, 0.1]))
    assert seen.severity is Severity.INFO
    assert "only 2 records of loss (found: loss, lr" in seen.message
    assert run_rule("TP001", make_frame(loss=FALLING[:8])) == []


def test_a_log_without_numbers_is_told() -> None:
    assert "no numeric records" in only("TP001", make_frame()).message


def test_few_evaluations_are_a_legal_log() -> None:
    assert run_rule("TP001", make_frame({"eval/loss": [1.0, 0.9, 0.8]})) == []


def test_a_hole_in_the_steps_warns_once_the_old_interval_is_back() -> None:
    steps = [*range(10, 310, 10), *range(400, 600, 10)]
    seen = only("TP002", make_frame(loss=FALLING[:50], steps=steps))
    assert (seen.severity, seen.first_step, seen.flagged_step) == (Severity.WARN, 300, 430)
    assert "step 300 is followed by 400, where the distance was 10" in seen.message


def test_a_hole_below_five_intervals_is_none() -> None:
    assert run_rule("TP002", make_frame(loss=FALLING[:50], steps=[*range(10, 310, 10), *range(340, 540, 10)])) == []


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([*range(1, 101), *range(200, 3200, 100)], id="every 100th after the first 100"),
        pytest.param([*range(1, 101), 1000], id="a last record of its own"),
        pytest.param([s + 100 * (s // 20) for s in range(160)], id="gaps are how this run logs"),
    ],
)
def test_an_interval_changed_on_purpose_is_only_told(steps: list[int]) -> None:
    assert severities("TP002", make_frame(loss=np.ones(len(steps)), steps=steps)) == [Severity.INFO]


def test_irregular_steps_have_no_usual_interval() -> None:
    steps = np.cumsum(np.random.default_rng(0).integers(1, 200, 300))
    assert run_rule("TP002", make_frame(loss=np.ones(300), steps=steps.tolist())) == []


def test_an_overlap_within_the_save_interval_is_told_and_more_warns() -> None:
    loss = np.linspace(2, 1, 400)
    frame = make_frame(loss=loss, facts={"save_steps": 50}, repairs=[overlap(160, 200), overlap(200, 290)])
    first, second = run_rule("TP003", frame)
    assert [first.severity, second.severity] == [Severity.INFO, Severity.WARN]
    assert (first.first_step, first.last_step) == (160, 200)


def test_an_overlap_without_a_declared_interval_is_only_told() -> None:
    frame = make_frame(loss=np.linspace(2, 1, 400), repairs=[overlap(160, 290)])
    assert severities("TP003", frame) == [Severity.INFO]


def test_a_counter_that_begins_anew_warns() -> None:
    epoch = np.concatenate([np.linspace(0, 2, 199), np.linspace(0, 2, 201)])
    seen = only("TP003", make_frame(loss=np.linspace(2, 1, 400), epoch=epoch, repairs=[overlap(200, 210)]))
    assert seen.severity is Severity.WARN
    assert "epoch fell from 2 to 0" in seen.message


def test_a_loss_that_does_not_go_on_at_the_seam_warns() -> None:
    noise = np.random.default_rng(1).normal(0, 0.01, 400)
    steady = 1.0 + noise
    assert severities("TP003", make_frame(loss=steady, repairs=[overlap(200, 210)])) == [Severity.INFO]
    higher = steady + 0.2 * (np.arange(400) >= 199)
    seen = only("TP003", make_frame(loss=higher, repairs=[overlap(200, 210)]))
    assert seen.severity is Severity.WARN
    assert "the loss went from" in seen.message
    assert seen.first_step == 200


def test_disorder_is_told() -> None:
    repair = Repair("disorder", 1, 50, 3, 20, 50, "sorted by step")
    assert severities("TP003", make_frame(loss=FALLING, repairs=[repair])) == [Severity.INFO]


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("epochs", "the steps fall back 20 times in 50 records: as was said."),
        ("repeats", "20 of 50 records are of a step that was logged already: as was said."),
        ("writers", "this run is 20 of 50 records of its log: as was said."),
    ],
)
def test_what_was_put_right_is_told(kind: str, told: str) -> None:
    seen = only("TP003", make_frame(loss=FALLING, repairs=[Repair(kind, 1, 50, 3, 20, 50, "as was said")]))
    assert (seen.severity, seen.message, seen.evidence[0].line) == (Severity.INFO, told, 3)


def duplicates(count: int, of: int) -> Repair:
    return Repair("duplicates", 5, 60, 12, count, of, "the same step with the same value")


@pytest.mark.parametrize(
    ("count", "of", "expected"),
    [(10, 100, [Severity.WARN]), (9, 100, []), (5, 19, []), (75, 100, [Severity.INFO]), (50, 100, [Severity.INFO])],
)
def test_repeated_records(count: int, of: int, expected: list[Severity]) -> None:
    assert severities("TP004", make_frame(loss=FALLING, repairs=[duplicates(count, of)])) == expected


def test_a_rank_column_explains_repeats() -> None:
    frame = make_frame(loss=FALLING, rank=[0.0] * 60, repairs=[duplicates(20, 100)])
    assert severities("TP004", frame) == [Severity.INFO]


def test_a_metric_that_stops_warns_at_the_tenth_record_without_it() -> None:
    frame = make_frame(loss=FALLING, grad_norm=np.linspace(1, 2, 40))
    seen = only("TP005", frame)
    assert (seen.severity, seen.flagged_step, seen.last_step) == (Severity.WARN, 50, 60)
    assert "grad_norm stops at step 40, while loss goes on for 20 records" in seen.message


@pytest.mark.parametrize(
    "stopped",
    [
        pytest.param(np.linspace(1, 2, 51), id="nine records without it"),
        pytest.param(np.linspace(1, 2, 19), id="nineteen records with it"),
        pytest.param((list(range(1, 40, 2)), np.linspace(1, 2, 20)), id="every second record"),
    ],
)
def test_a_metric_that_was_hardly_there_does_not_stop(stopped: object) -> None:
    assert run_rule("TP005", make_frame(loss=FALLING, grad_norm=stopped)) == []


@pytest.mark.parametrize("value", [0.0, 1.0, -1.0])
def test_a_constant_gradient_norm_is_a_placeholder(value: float) -> None:
    seen = only("TP005", make_frame(loss=FALLING, grad_norm=[value] * 60))
    assert (seen.severity, seen.flagged_step) == (Severity.INFO, 50)


def test_a_constant_rate_and_a_static_scale_are_no_placeholders() -> None:
    assert run_rule("TP005", make_frame(loss=FALLING, lr=[1e-3] * 60, loss_scale=[1.0] * 60)) == []
    assert severities("TP005", make_frame(loss=FALLING, loss_scale=[-1.0] * 60)) == [Severity.INFO]
    assert severities("TP005", make_frame({"eval/loss/box": [0.0] * 60}, loss=FALLING)) == [Severity.INFO]


def test_a_gradient_norm_beside_a_constant_loss_is_no_placeholder() -> None:
    assert run_rule("TP005", make_frame(loss=[1.0] * 60, grad_norm=[0.0] * 60)) == []


@pytest.mark.parametrize("code", ["TP002", "TP003", "TP004", "TP005"])
def test_a_healthy_run_has_a_whole_log(code: str) -> None:
    assert run_rule(code, healthy_frame(400, 0.2, 0)) == []


def test_a_log_of_nothing_cannot_be_judged() -> None:
    with pytest.raises(CannotTell, match="0 records"):
        run_rule("TP002", make_frame())
    empty = np.empty(0, np.int64)
    frame = make_frame(loss=FALLING).replace(series={"loss": Series("loss", empty, np.empty(0), empty)})
    assert [s.severity for s in run_rule("TP001", frame)] == [Severity.INFO]
