"""Family TP3 on schedules that do what they declare, and on schedules that do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.rules.helpers import healthy_frame, learning_rate, make_frame, only, run_rule, severities
from trainproof.frame import Segment
from trainproof.rules.registry import CannotTell
from trainproof.verdict import Severity

CODES = ("TP301", "TP302", "TP303", "TP304", "TP305")


def quiet(code: str, frame: Any) -> bool:
    """Whether the rule passes the frame, or says that it cannot tell, or only tells."""
    try:
        return all(seen.severity is Severity.INFO for seen in run_rule(code, frame))
    except CannotTell:
        return True


# TP301


def test_a_rate_of_zero_warns_at_the_fifth_record_and_fails_at_a_fifth_of_the_plan() -> None:
    lr = np.full(200, 1e-3)
    lr[50:60] = 0
    seen = only("TP301", make_frame(lr=lr, facts={"total_steps": 200}))
    assert (seen.severity, seen.first_step, seen.flagged_step) == (Severity.WARN, 51, 55)
    lr[50:100] = 0
    seen = only("TP301", make_frame(lr=lr, facts={"total_steps": 200}))
    assert (seen.severity, seen.flagged_step) == (Severity.FAIL, 90)


def test_a_rate_of_zero_throughout_fails() -> None:
    seen = only("TP301", make_frame(lr=np.zeros(60), steps=range(5, 305, 5), facts={"total_steps": 300}))
    assert (seen.severity, seen.flagged_step) == (Severity.FAIL, 65)
    assert only("TP301", make_frame(lr=np.zeros(60))).flagged_step == 20


def test_six_records_at_zero_of_ten_warn() -> None:
    seen = only("TP301", make_frame(lr=[0.0] * 6 + [3e-4] * 4))
    assert (seen.severity, seen.flagged_step) == (Severity.WARN, 6)


def test_fewer_than_five_records_at_zero_are_none() -> None:
    lr = np.full(100, 1e-3)
    lr[50:54] = 0
    assert run_rule("TP301", make_frame(lr=lr)) == []
    assert run_rule("TP301", make_frame(lr=[0.0] * 5 + [1e-3] * 95)) == []  # the first record does not count


def test_the_last_two_percent_of_the_plan_do_not_count() -> None:
    lr = np.append(np.full(980, 1e-3), np.zeros(20))
    steps = range(1, 1001)
    assert run_rule("TP301", make_frame(lr=lr, steps=steps, facts={"total_steps": 1000})) == []
    assert severities("TP301", make_frame(lr=lr, steps=steps, facts={"total_steps": 2000})) == [Severity.WARN]


def test_a_deliberate_start_at_zero_is_told() -> None:
    lr = np.full(1000, 1e-3)
    lr[:15] = 0
    assert severities("TP301", make_frame(lr=lr)) == [Severity.INFO]
    lr[:30] = 0
    assert severities("TP301", make_frame(lr=lr)) == [Severity.WARN]


def test_a_rate_that_fades_out_is_no_zero_where_no_plan_is_known() -> None:
    lr = np.append(np.linspace(1 / 3000, 0, 101)[:-1], np.zeros(20))
    assert run_rule("TP301", make_frame(lr=lr)) == []
    assert severities("TP301", make_frame(lr=lr, facts={"total_steps": 400})) == [Severity.WARN]


@pytest.mark.parametrize(
    "printed",
    [
        pytest.param(np.round(learning_rate(1000, "cosine", peak=2e-5), 6), id="six decimals of a small rate"),
        pytest.param(np.repeat([20, 5, 1.25, 0.31, 0.08, 0.02, 0.0], 20), id="two decimals, quartered on plateaus"),
    ],
)
def test_a_small_rate_printed_as_zero_is_no_zero(printed: Any) -> None:
    assert (printed == 0).sum() >= 20
    assert run_rule("TP301", make_frame(lr=printed, facts={"total_steps": 2000})) == []


def test_a_falling_loss_gives_a_printed_zero_away() -> None:
    noise = np.random.default_rng(0).normal(0, 0.01, 100)
    falling, flat = np.linspace(3, 1, 100) + noise, 3 + noise
    assert run_rule("TP301", make_frame(loss=falling, lr=np.zeros(100))) == []
    assert severities("TP301", make_frame(loss=flat, lr=np.zeros(100))) == [Severity.FAIL]


def test_a_frozen_group_is_no_zero_rate() -> None:
    with pytest.raises(CannotTell, match="another parameter group"):
        run_rule("TP301", make_frame({"lr/1": np.full(60, 1e-3)}, lr=np.zeros(60)))


# TP302


def test_a_missing_warmup_warns_once_it_should_be_over() -> None:
    frame = make_frame(lr=np.full(100, 1e-3), facts={"warmup_steps": 20})
    seen = only("TP302", frame)
    assert (seen.severity, seen.first_step, seen.flagged_step) == (Severity.WARN, 1, 20)
    assert run_rule("TP302", make_frame(lr=learning_rate(100, warmup=0.2), facts={"warmup_steps": 20})) == []


def test_the_warmup_may_be_declared_as_a_share() -> None:
    facts = {"warmup_ratio": 0.1, "total_steps": 100}
    assert only("TP302", make_frame(lr=np.full(100, 1e-3), facts=facts)).flagged_step == 10


@pytest.mark.parametrize(
    ("steps", "why"),
    [
        pytest.param(range(50, 5050, 50), "shows too little", id="logged less often than the warm-up lasts"),
        pytest.param(range(1, 16), "not over", id="still inside the warm-up"),
    ],
)
def test_a_warmup_that_the_log_cannot_show(steps: range, why: str) -> None:
    with pytest.raises(CannotTell, match=why):
        run_rule("TP302", make_frame(lr=[1e-3] * len(steps), steps=steps, facts={"warmup_steps": 20}))


def test_a_start_from_scratch_without_a_warmup_is_told() -> None:
    frame = make_frame(lr=np.full(100, 1e-3), facts={"pretrained": False})
    assert severities("TP302", frame) == [Severity.INFO]
    with pytest.raises(CannotTell, match="no warm-up declared"):
        run_rule("TP302", make_frame(lr=np.full(100, 1e-3)))


# TP303

RISING = {"total_steps": 1000, "learning_rate": 1e-3, "warmup_steps": 50}


def test_a_warmup_that_never_ends_warns_at_a_fifth_and_fails_at_half() -> None:
    lr = np.linspace(0, 5e-4, 1000)
    seen = only("TP303", make_frame(lr=lr[:400], facts=RISING))
    assert (seen.severity, seen.flagged_step) == (Severity.WARN, 200)
    seen = only("TP303", make_frame(lr=lr, facts=RISING))
    assert (seen.severity, seen.flagged_step) == (Severity.FAIL, 500)


def test_three_declared_warmups_are_waited_for() -> None:
    facts = {**RISING, "warmup_steps": 150}
    assert only("TP303", make_frame(lr=np.linspace(0, 5e-4, 1000)[:470], facts=facts)).flagged_step == 450


def test_an_undeclared_warmup_is_given_half_of_the_run() -> None:
    facts = {"total_steps": 1000, "learning_rate": 1e-3}
    lr = np.linspace(0, 5e-4, 1000)
    assert run_rule("TP303", make_frame(lr=lr[:499], facts=facts)) == []
    seen = only("TP303", make_frame(lr=lr, facts=facts))
    assert (seen.severity, seen.flagged_step) == (Severity.WARN, 500)


def test_one_cycle_is_healthy() -> None:
    rise, fall = np.linspace(4e-5, 1e-3, 300), np.linspace(1e-3, 0, 700)
    facts = {"total_steps": 1000, "learning_rate": 1e-3}
    assert run_rule("TP303", make_frame(lr=np.append(rise, fall), facts=facts)) == []


def test_a_second_warmup_after_a_resume_is_no_endless_one() -> None:
    lr = np.concatenate([np.linspace(0, 1e-3, 50), np.linspace(1e-3, 5e-4, 500), np.linspace(0, 8e-4, 50)])
    segments = [Segment(1, 550, "start"), Segment(551, 600, "resume at step 551")]
    assert run_rule("TP303", make_frame(lr=lr, facts=RISING, segments=segments)) == []


@pytest.mark.parametrize("lr", [np.full(1000, 5e-4), np.linspace(0, 2e-3, 1000)])
def test_a_rate_that_stands_still_or_reached_its_peak_is_no_endless_warmup(lr: Any) -> None:
    assert run_rule("TP303", make_frame(lr=lr, facts={**RISING, "learning_rate": 3.9e-4})) == []
    assert run_rule("TP303", make_frame(lr=np.full(1000, 5e-4), facts=RISING)) == []


# TP304


@pytest.mark.parametrize(
    ("schedule", "flagged"), [("linear", 323), ("cosine", 323), ("polynomial", 323), ("inverse_sqrt", 260)]
)
def test_a_declared_decay_that_does_not_come_warns(schedule: str, flagged: int) -> None:
    lr = np.minimum(1.0, np.arange(1, 1001) / 50) * 1e-3
    frame = make_frame(lr=lr, facts={"total_steps": 1000, "warmup_steps": 50, "schedule": schedule})
    seen = only("TP304", frame)
    assert seen.severity is Severity.WARN
    assert 250 <= seen.flagged_step <= flagged


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_three_printed_digits_are_no_constant_rate(schedule: str) -> None:
    lr = np.array([float(f"{x:.2e}") for x in learning_rate(100_000, schedule)])[::50]
    facts: dict[str, Any] = {"total_steps": 100_000, "warmup_ratio": 0.05, "schedule": schedule}
    assert run_rule("TP304", make_frame(lr=lr, steps=range(1, 100_001, 50), facts=facts)) == []


def test_the_floor_of_a_schedule_is_no_constant_rate() -> None:
    lr = np.maximum(learning_rate(1000, "cosine"), 5e-4)
    facts: dict[str, Any] = {"total_steps": 1000, "warmup_ratio": 0.05, "schedule": "cosine"}
    assert run_rule("TP304", make_frame(lr=lr, facts=facts)) == []


def test_a_constant_rate_that_was_declared_says_nothing_and_an_undeclared_one_is_told() -> None:
    lr = np.full(1000, 1e-3)
    assert run_rule("TP304", make_frame(lr=lr, facts={"total_steps": 1000, "schedule": "constant"})) == []
    assert severities("TP304", make_frame(lr=lr)) == [Severity.INFO]
    with pytest.raises(CannotTell, match="constant part"):
        run_rule("TP304", make_frame(lr=lr, facts={"total_steps": 1000, "schedule": "warmup_stable_decay"}))
    with pytest.raises(CannotTell, match="planned steps"):
        run_rule("TP304", make_frame(lr=lr, facts={"schedule": "linear"}))


# TP305


def exhausted(n: int, times: int, schedule: str = "linear") -> Any:
    """A schedule over n / times steps, and the rate of its end from there on."""
    decay = learning_rate(n // times, schedule)
    return np.append(decay, np.full(n - len(decay), decay[-1]))


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_a_schedule_stepped_four_times_too_often_fails(schedule: str) -> None:
    seen = only("TP305", make_frame(lr=exhausted(1000, 4, schedule), facts={"total_steps": 1000}))
    assert seen.severity is Severity.FAIL
    assert 230 <= seen.flagged_step <= 300
    assert "The planned steps are 4 x step 250, where it ended" in seen.message


def test_a_schedule_that_ends_a_little_early_warns() -> None:
    lr = np.append(learning_rate(900), np.zeros(100))
    seen = only("TP305", make_frame(lr=lr, facts={"total_steps": 1000}))
    assert (seen.severity, seen.flagged_step) == (Severity.WARN, 904)


def test_without_a_plan_it_is_only_told() -> None:
    assert severities("TP305", make_frame(lr=exhausted(1000, 4))) == [Severity.INFO]


@pytest.mark.parametrize(
    "lr",
    [
        pytest.param(np.repeat([1e-1, 1e-2, 1e-3, 1e-4], 250), id="steps of a tenth"),
        pytest.param(1e-3 * 0.99 ** np.arange(1000), id="exponential"),
        pytest.param(np.repeat(1e-3 * 0.5 ** np.arange(20), 50), id="halved on plateaus"),
        pytest.param(np.append(np.full(500, 1e-3), np.full(500, 1e-6)), id="a second phase at a small rate"),
        pytest.param(np.tile(1e-3 * (1 + np.cos(np.pi * np.arange(250) / 250)) / 2, 4), id="warm restarts"),
        pytest.param(0.07 * 0.93 ** np.arange(1000) + 1e-3 * np.linspace(1, 0.1, 1000), id="comes down from 0.07"),
        pytest.param(1e-3 * (1 - np.arange(1000) / 1000) ** 2, id="polynomial of power 2"),
    ],
)
def test_rates_that_approach_zero_on_purpose(lr: Any) -> None:
    assert run_rule("TP305", make_frame(lr=lr, facts={"total_steps": 1000})) == []


def test_declared_restarts_are_not_asked() -> None:
    facts: dict[str, Any] = {"total_steps": 1000, "schedule": "cosine_with_restarts"}
    with pytest.raises(CannotTell, match="more than once"):
        run_rule("TP305", make_frame(lr=exhausted(1000, 4), facts=facts))


def test_a_rate_that_came_back_is_told() -> None:
    lr = np.concatenate([exhausted(500, 2), np.full(500, 1e-3)])
    assert severities("TP305", make_frame(lr=lr, facts={"total_steps": 1000})) == [Severity.INFO]


# all of them


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("schedule", ["linear", "cosine", "constant", "wsd"])
@pytest.mark.parametrize("n", [100, 1000, 5000])
def test_healthy_schedules_are_quiet(code: str, schedule: str, n: int) -> None:
    facts: dict[str, Any] = {"warmup_ratio": 0.05, "learning_rate": 1e-3}
    if schedule in ("linear", "cosine", "constant"):
        facts["schedule"] = schedule
    for every in (1, 10):
        frame = healthy_frame(n, 0.2, 0, schedule, facts=facts)
        frame = frame.replace(series={name: s.take(slice(None, None, every)) for name, s in frame.items()})
        assert quiet(code, frame)
        assert quiet(code, frame.replace(facts=type(frame.facts)()))
