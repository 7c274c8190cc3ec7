"""The guardian: its policies, its hooks, its state, and that it never disturbs the run."""

from __future__ import annotations

import json
import logging
import math
from typing import Any

import numpy as np
import pytest

import trainproof
from tests.live.feeding import rows
from tools import synthetic
from trainproof.errors import UsageError
from trainproof.guardian import Guardian
from trainproof.thresholds import LossThresholds
from trainproof.verdict import Finding, Severity, Verdict

NOISE = np.random.default_rng(0).lognormal(0, 0.03, 300)
HEALTHY = [float((1.5 + np.exp(-i / 10)) * NOISE[i]) for i in range(60)]
DIVERGED = [*HEALTHY, *(6.0 * NOISE[60:90]).tolist()]


def feed(guardian: Guardian, losses: list[float], first: int = 1) -> list[Finding]:
    return [finding for i, loss in enumerate(losses) for finding in guardian.observe(first + i, loss=float(loss))]


def test_a_diverged_loss_is_said_once_at_the_record_at_which_it_is_seen() -> None:
    guardian = Guardian(on_finding=())
    for step, loss in enumerate(DIVERGED, 1):
        failed = [f for f in guardian.observe(step, loss=loss) if f.severity is Severity.FAIL]
        if failed:
            assert [(f.rule, f.flagged_step) for f in failed] == [("TP203", step)]
            break
    assert 62 <= step <= 70
    assert not [f for f in feed(guardian, DIVERGED[step:], step + 1) if f.rule == "TP203"]


class TestPolicy:
    def test_warn_observes_and_never_stops(self) -> None:
        guardian = Guardian(on_finding=())
        feed(guardian, DIVERGED)
        assert guardian.verdict is Verdict.FAIL
        assert not guardian.should_stop

    def test_stop_on_fail_stops_a_diverged_run_and_no_healthy_one(self) -> None:
        lost, fine = Guardian(policy="stop_on_fail", on_finding=()), Guardian(policy="stop_on_fail", on_finding=())
        feed(lost, DIVERGED)
        feed(fine, HEALTHY)
        assert [f.rule for f in lost.stopped_by] == ["TP203"]
        assert not fine.should_stop

    @pytest.mark.parametrize("seed", range(4))
    def test_a_deep_spike_that_comes_back_stops_nothing(self, seed: int) -> None:
        """Ten times its level, and back after 14 records: a FAIL that is cleared."""
        run = synthetic.healthy(200, 0.05, seed)["loss"]
        run[100:114] *= np.linspace(10, 1, 14)
        guardian = Guardian(policy="stop_on_fail", on_finding=())
        said = feed(guardian, run.tolist())
        assert [(f.rule, f.severity) for f in said if f.rule == "TP203"][-1:] == [("TP203", Severity.FAIL)]
        assert not guardian.should_stop
        assert guardian.verdict is not Verdict.FAIL

    @pytest.mark.parametrize("sigma", [0.02, 0.1, 0.3])
    def test_a_loss_that_stays_away_stops_the_run_some_records_after_the_fail(self, sigma: float) -> None:
        run = synthetic.healthy(200, sigma, 0)["loss"]
        run[100:] *= 8
        guardian = Guardian(policy="stop_on_fail", on_finding=())
        failed = stopped = None
        for i, loss in enumerate(run.tolist()):
            if any(f.rule == "TP203" and f.severity is Severity.FAIL for f in guardian.observe(i, loss=loss)):
                failed = i
            if guardian.should_stop and stopped is None:
                stopped = i
        assert failed is not None
        assert stopped == failed + LossThresholds().diverged_stop_records <= 125

    def test_a_loss_that_climbs_stops_the_run_at_once(self) -> None:
        run = synthetic.healthy(200, 0.05, 0)["loss"]
        run[100:] *= 1.5 ** np.arange(100)
        guardian = Guardian(policy="stop_on_fail", on_finding=())
        for i, loss in enumerate(run.tolist()):
            new = guardian.observe(i, loss=loss)
            assert guardian.should_stop is any(f.rule == "TP203" and f.severity is Severity.FAIL for f in new)
            if guardian.should_stop:
                break
        assert i < 115

    def test_rules_that_do_not_stop_do_not_stop(self) -> None:
        guardian = Guardian(policy="stop_on_fail", stop_rules=["TP101"], on_finding=())
        feed(guardian, DIVERGED)
        assert guardian.verdict is Verdict.FAIL
        assert not guardian.should_stop

    def test_one_loss_that_is_not_finite_stops_nothing_and_the_second_does(self) -> None:
        guardian = Guardian(policy="stop_on_fail", on_finding=())
        assert [f.rule for f in feed(guardian, [*HEALTHY, np.nan])] == ["TP101"]
        assert not guardian.should_stop
        feed(guardian, [np.nan], 62)
        assert [f.rule for f in guardian.stopped_by] == ["TP101"]

    @pytest.mark.parametrize(
        ("wrong", "told"),
        [({"policy": "halt"}, "stop_on_fail"), ({"stop_rules": ["TP000"]}, "TP000"), ({"select": ["XX"]}, "XX")],
    )
    def test_wrong_arguments_are_told(self, wrong: dict[str, Any], told: str) -> None:
        with pytest.raises(UsageError, match=told):
            Guardian(**wrong)


class TestFindings:
    def test_what_came_back_is_cleared(self) -> None:
        cleared: list[Finding] = []
        guardian = Guardian(on_finding=(), on_cleared=cleared.append)
        feed(guardian, [*DIVERGED[:68], *(1.5 * NOISE[100:200]).tolist()])
        assert [f.rule for f in cleared] == ["TP203"]
        assert "TP203" not in {f.rule for f in guardian.findings}

    def test_what_was_cleared_is_armed_again(self) -> None:
        values = [1.0 - 0.01 * i for i in range(12)]
        guardian = Guardian(on_finding=())
        said = []
        step = 0
        for rise in ([1.2, 1.5, 1.6, 1.7], [0.8, 0.7, 0.6, 0.6, 0.6, 0.6], [1.2, 1.5, 1.6, 1.7]):
            for value in [*values, *rise]:
                step += 10
                guardian.observe(step, loss=1.0)
                said += [f for f in guardian.observe(step, eval_loss=value) if f.rule == "TP501"]
        assert len({f.flagged_step for f in said}) == len(said) >= 2

    def test_each_hook_is_called_with_each_finding(self) -> None:
        first: list[Finding] = []
        second: list[Finding] = []
        new = feed(Guardian(on_finding=[first.append, second.append]), DIVERGED)
        assert first == second == new != []

    def test_by_default_a_finding_is_one_line_of_the_log(self, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.WARNING, "trainproof"):
            feed(Guardian(), DIVERGED)
        assert any("FAIL TP203 at step" in line for line in caplog.messages)


class TestNeverInTheWay:
    def test_an_error_inside_is_told_once_and_silences_it(
        self, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: object) -> None:
            raise RuntimeError("broken rule")

        guardian = Guardian(on_finding=())
        monkeypatch.setattr("trainproof.guardian.ask_rule", fail)
        assert feed(guardian, DIVERGED) == []
        assert guardian.ask() == []
        assert len([r for r in caplog.records if "error of its own" in r.message]) == 1

    def test_a_hook_that_fails_costs_neither_the_run_nor_the_guardian(self, caplog: pytest.LogCaptureFixture) -> None:
        def fail(_: Finding) -> None:
            raise OSError("no network")

        guardian = Guardian(policy="stop_on_fail", on_finding=fail)
        feed(guardian, DIVERGED)
        assert guardian.should_stop
        assert any("hook" in line for line in caplog.messages)

    @pytest.mark.parametrize("value", [None, "1.5", True, [1.0], {"a": 1}, object(), b"1", 10**400])
    def test_values_that_are_no_numbers_are_left_out(self, value: object) -> None:
        guardian = Guardian(on_finding=())
        assert guardian.observe(1, loss=value) == []  # type: ignore[arg-type]
        assert guardian.records == 0
        guardian.observe(2, loss=1.0)
        assert guardian.records == 1

    def test_numpy_scalars_and_whole_numbers_are_numbers(self) -> None:
        guardian = Guardian(on_finding=())
        guardian.observe(1, loss=np.float32(1.5), lr=1)  # type: ignore[arg-type]
        frame = guardian.log.frames()[0]
        assert (frame["loss"].value[0], frame["lr"].value[0]) == (1.5, 1.0)

    @pytest.mark.parametrize("step", [None, math.nan, math.inf, "ten", {}, np.zeros(2)])
    def test_a_step_that_is_no_number_costs_that_record_and_is_told_once(
        self, step: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        guardian = Guardian(policy="stop_on_fail", on_finding=())
        assert guardian.observe(step, loss=1.0) == guardian.observe(step, loss=1.0) == []
        assert [line for line in caplog.messages if "step is no number" in line] == caplog.messages[:1]
        feed(guardian, DIVERGED)
        assert guardian.should_stop

    def test_a_value_that_raises_what_it_likes_is_left_out(self) -> None:
        class Broken:
            def __float__(self) -> float:
                raise KeyError("no value yet")

        guardian = Guardian(on_finding=())
        guardian.observe(1, loss=Broken(), grad_norm=1.0)  # type: ignore[arg-type]
        assert list(guardian.log.frames()[0]) == ["grad_norm"]

    def test_the_step_may_be_named(self) -> None:
        guardian = Guardian(on_finding=())
        guardian.observe(step=7, loss=1.0)
        assert guardian.log.frames()[0].last_step == 7

    def test_a_step_out_of_bounds_costs_that_record(self) -> None:
        guardian = Guardian(policy="stop_on_fail", on_finding=())
        guardian.observe(2**70, loss=1.0)
        feed(guardian, DIVERGED)
        assert guardian.should_stop

    def test_the_metrics_given_are_not_changed(self) -> None:
        logs = {"loss": 1.0, "note": "x"}
        Guardian(on_finding=()).record(1, logs)
        assert logs == {"loss": 1.0, "note": "x"}


def test_every_rank_but_the_first_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    assert feed(Guardian(on_finding=()), DIVERGED) == []
    assert feed(Guardian(on_finding=(), rank=0), DIVERGED) != []


class TestState:
    @pytest.mark.parametrize("cut", [3, 55, 66, 80])
    def test_a_resumed_guardian_goes_on_where_it_was(self, cut: int) -> None:
        whole = Guardian(policy="stop_on_fail", on_finding=())
        expected = [(f.rule, f.flagged_step) for f in feed(whole, DIVERGED)]
        before = Guardian(policy="stop_on_fail", on_finding=(), facts={"total_steps": 500})
        said = feed(before, DIVERGED[:cut])
        after = Guardian(policy="stop_on_fail", on_finding=())
        after.load_state_dict(json.loads(json.dumps(before.state_dict())))
        said += feed(after, DIVERGED[cut:], cut + 1)
        assert [(f.rule, f.flagged_step) for f in said] == expected
        assert after.should_stop
        assert after.log.frames()[0].total_steps == 500

    def test_a_state_of_another_version_is_told(self) -> None:
        with pytest.raises(UsageError, match="version 9"):
            Guardian().load_state_dict({"version": 9})

    @pytest.mark.parametrize(
        "damage", [{"rows": 3}, {"rows": [[1]]}, {"rows": [[1, 2, 3]]}, {"told": [["TP101"]]}, {"facts": 3}]
    )
    def test_a_damaged_state_is_told(self, damage: dict[str, Any]) -> None:
        guardian = Guardian(on_finding=())
        feed(guardian, HEALTHY)
        with pytest.raises(UsageError, match="damaged"):
            guardian.load_state_dict({**guardian.state_dict(), **damage})
        assert guardian.records == len(HEALTHY)

    @pytest.mark.parametrize("state", [None, [], "x", {}])
    def test_what_is_no_state_is_told(self, state: Any) -> None:
        with pytest.raises(UsageError, match="version None"):
            Guardian().load_state_dict(state)

    def test_steps_that_are_trained_again_after_a_resume_are_no_second_fault(self) -> None:
        guardian = Guardian(on_finding=())
        feed(guardian, HEALTHY)
        assert feed(guardian, HEALTHY[50:], 51) == []


def test_two_runs_in_one_log_are_told_apart() -> None:
    guardian = Guardian(on_finding=())
    feed(guardian, DIVERGED)
    assert guardian.verdict is Verdict.FAIL
    again = [loss + 0.01 for loss in DIVERGED]
    feed(guardian, again[:60])
    assert not [f for f in guardian.findings if f.severity is Severity.FAIL]
    assert [f.rule for f in feed(guardian, again[60:], 61) if f.severity is Severity.FAIL] == ["TP203"]


@pytest.mark.parametrize(
    ("kind", "sigma"), [("late_divergence", 0.1), ("plateau", 0.01), ("spike_and_recover", 0.1), ("eval_rise", 0.1)]
)
def test_many_records_at_once_end_where_one_at_a_time_does(kind: str, sigma: float) -> None:
    frame = synthetic.as_frame(getattr(synthetic, kind)(600, sigma, 0))
    one, many = Guardian(on_finding=()), Guardian(on_finding=())
    for step, values in rows(frame):
        one.record(step, values)
    for begin in range(0, 640, 320):
        many.extend((i, step, values) for i, (step, values) in enumerate(rows(frame)[begin : begin + 320], begin))
    one.ask()
    many.ask()
    assert [(f.rule, f.flagged_step) for f in many.findings] == [(f.rule, f.flagged_step) for f in one.findings] != []


def test_a_run_is_passed_once_some_rule_could_judge_it() -> None:
    guardian = Guardian(on_finding=())
    verdicts = []
    for i, loss in enumerate(HEALTHY):
        guardian.observe(i, loss=loss)
        verdicts.append(guardian.verdict)
    since = verdicts.index(Verdict.PASS)
    assert 2 <= since <= 20
    assert verdicts == [Verdict.SKIP] * since + [Verdict.PASS] * (len(HEALTHY) - since)


def test_the_report_is_that_of_the_finished_log() -> None:
    frame = synthetic.as_frame(synthetic.nan_loss(100, 0.1, 0))
    guardian = Guardian(on_finding=())
    for step, values in rows(frame):
        guardian.record(step, values)
    live, offline = guardian.run_report(), trainproof.judge(frame).runs[0]
    assert [(f.rule, f.message) for f in live.findings] == [(f.rule, f.message) for f in offline.findings]
    assert live.checked == offline.checked


class TestGuard:
    def test_a_plain_loop_is_stopped(self) -> None:
        with trainproof.guard(policy="stop_on_fail", on_finding=()) as g:
            for step, loss in enumerate(DIVERGED, 1):
                g.observe(step, loss=loss)
                if g.should_stop:
                    break
        assert 62 <= step <= 80

    def test_an_error_of_the_loop_is_its_own(self) -> None:
        with pytest.raises(ZeroDivisionError), trainproof.guard(on_finding=()) as g:
            g.observe(1, loss=1 / 0)
        assert g.records == 0

    def test_at_its_end_the_rules_that_wait_are_asked(self) -> None:
        with trainproof.guard(on_finding=()) as g:
            for step in range(1, 48):
                assert g.observe(step, loss=float(2.0 * NOISE[step]), lr=0.001) == []
        assert [f.rule for f in g.findings] == ["TP205"]
