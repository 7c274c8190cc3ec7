"""Family TP7: losses, rates and data across a resume, and restarts without progress."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.rules.helpers import learning_rate, make_frame, only, run_rule, says_so_live, severities
from trainproof.frame import Frame, Repair, Segment
from trainproof.rules.registry import CannotTell
from trainproof.verdict import Severity

FAIL, WARN, INFO = Severity.FAIL, Severity.WARN, Severity.INFO
N, AT = 600, 300  # records, and the first one after the resume
SEGMENTS = (Segment(1, AT, "start"), Segment(AT + 1, N, f"resume at step {AT + 1}"))


def curve(noise: float = 0.05, seed: int = 0) -> Any:
    return (1.15 + 0.65 * np.exp(-np.arange(N) / 120)) * np.random.default_rng(seed).lognormal(0, noise, N)


def resumed(loss: Any = None, **series: Any) -> Frame:
    return make_frame(loss=curve() if loss is None else loss, segments=SEGMENTS, **series)


class TestLossJump:
    @staticmethod
    def raised(times: float, records: int) -> Any:
        loss = curve()
        loss[AT : AT + records] *= times
        return loss

    def test_a_quarter_more_that_stays_fails_after_twenty_records(self) -> None:
        seen = says_so_live("TP701", resumed(self.raised(1.25, N)))
        assert (seen.severity, seen.flagged_step) == (FAIL, AT + 21)

    def test_a_tenth_more_warns_and_fails_when_it_stays(self) -> None:
        assert only("TP701", resumed(self.raised(1.10, 100))).severity is WARN
        seen = only("TP701", resumed(self.raised(1.10, N)))
        assert (seen.severity, seen.flagged_step) == (FAIL, AT + 201)

    def test_what_came_back_within_two_hundred_records_warns(self) -> None:
        seen = only("TP701", resumed(self.raised(1.4, 60)))
        assert seen.severity is WARN
        assert "came back" in seen.message

    def test_a_high_first_record_is_left_out(self) -> None:
        assert run_rule("TP701", resumed(self.raised(3.0, 1))) == []

    @pytest.mark.parametrize("seed", range(20))
    @pytest.mark.parametrize("noise", [0.05, 0.2, 0.5])
    def test_a_clean_resume_is_silent(self, noise: float, seed: int) -> None:
        assert run_rule("TP701", resumed(curve(noise, seed))) == []

    def test_without_a_resume_it_is_skipped(self) -> None:
        with pytest.raises(CannotTell, match="no resume"):
            run_rule("TP701", make_frame(loss=curve()))


class TestRate:
    @pytest.mark.parametrize("schedule", ["linear", "cosine", "constant", "wsd"])
    def test_a_schedule_that_goes_on_is_silent(self, schedule: str) -> None:
        for warmup in (0.05, 0.6):
            assert run_rule("TP702", resumed(lr=learning_rate(N, schedule, warmup=warmup))) == []

    def test_a_second_warmup_fails_as_soon_as_the_resume_is_known(self) -> None:
        rate = learning_rate(N, "linear")
        rate[AT:] *= np.minimum(1, (1 + np.arange(N - AT)) / 50)
        assert says_so_live("TP702", resumed(lr=rate), resumed=True).severity is FAIL

    def test_a_warmup_from_half_the_rate_fails_once_it_rises(self) -> None:
        rate = learning_rate(N, "constant")
        rate[AT:] *= np.minimum(1, 0.5 + np.arange(N - AT) / 100)
        seen = only("TP702", resumed(lr=rate))
        assert (seen.severity, seen.flagged_step) == (FAIL, AT + 4)

    def test_a_rate_above_any_before_fails(self) -> None:
        rate = learning_rate(N, "linear")
        rate[AT:] *= 4
        assert says_so_live("TP702", resumed(lr=rate), resumed=True).severity is FAIL

    def test_a_rate_lowered_or_raised_within_its_range_warns(self) -> None:
        for factor in (0.5, 1.6):
            rate = learning_rate(N, "linear")
            rate[AT:] *= factor
            assert says_so_live("TP702", resumed(lr=rate), resumed=True).severity is WARN

    def test_a_rebound_in_the_middle_of_a_run_warns_and_restarts_are_told(self) -> None:
        down = np.linspace(1, 0.1, 100)
        once, thrice = np.append(down, down), np.tile(down, 4)
        assert says_so_live("TP702", make_frame(lr=once)).severity is WARN
        assert severities("TP702", make_frame(lr=thrice)) == [INFO]
        assert severities("TP702", make_frame(lr=once, facts={"schedule": "cosine_with_restarts"})) == [INFO]

    @pytest.mark.parametrize(("at", "told"), [(400, [WARN]), (200, [])])
    def test_a_plan_begun_anew_two_fifths_down_warns_and_one_near_its_start_does_not(
        self, at: int, told: list[Severity]
    ) -> None:
        rate = np.linspace(1e-4, 0, 1000)
        assert severities("TP702", make_frame(lr=np.concatenate([rate[:at], rate]))) == told


class TestDataReplayed:
    EPOCH = np.arange(N) / 200

    def test_an_epoch_that_begins_again_where_the_run_resumed_fails(self) -> None:
        epoch = np.append(self.EPOCH[:AT], self.EPOCH[:AT])
        assert says_so_live("TP703", resumed(epoch=epoch), resumed=True).severity is FAIL

    def test_elsewhere_it_warns(self) -> None:
        epoch = np.append(self.EPOCH[:AT], self.EPOCH[:AT])
        assert says_so_live("TP703", make_frame(loss=curve(), epoch=epoch)).severity is WARN

    def test_epochs_of_another_length_are_other_data(self) -> None:
        epoch = np.concatenate([np.arange(1, 61) / 50, np.arange(1, 61) / 200])
        seen = only("TP703", make_frame(epoch=epoch, steps=range(10, 1210, 10)))
        assert seen.severity is WARN
        assert "an epoch had about 500 steps and has 2,000 from there on" in seen.message

    @pytest.mark.parametrize("counter", [EPOCH, np.round(EPOCH, 2), np.floor(EPOCH)])
    def test_a_counter_that_goes_on_is_silent(self, counter: Any) -> None:
        assert run_rule("TP703", resumed(epoch=counter)) == []

    def test_tokens_of_a_batch_are_no_counter(self) -> None:
        assert run_rule("TP703", resumed(tokens=np.random.default_rng(0).integers(100, 4000, N))) == []

    def test_a_loss_that_falls_on_known_data_and_comes_back_is_told(self) -> None:
        loss = curve()
        loss[AT : AT + 100] *= 0.8
        assert severities("TP703", resumed(loss)) == [INFO]

    def test_a_loss_that_stays_down_is_not(self) -> None:
        loss = curve()
        loss[AT:] *= 0.8
        assert run_rule("TP703", resumed(loss)) == []


class TestRestartLoop:
    @staticmethod
    def restarted(*starts: int, last: int = 130) -> Frame:
        repairs = [Repair("overlap", start, 120, 100 + i, 20, 600, "") for i, start in enumerate(starts)]
        return make_frame(loss=np.ones(last), repairs=repairs)

    def test_the_same_step_again_and_again(self) -> None:
        assert severities("TP708", self.restarted(101, 101)) == []
        assert severities("TP708", self.restarted(101, 101, 101)) == [WARN]
        assert severities("TP708", self.restarted(101, 101, 101, 101, 101)) == [FAIL]

    def test_later_checkpoints_are_progress(self) -> None:
        assert run_rule("TP708", self.restarted(*range(10, 110, 10))) == []

    def test_an_attempt_that_got_through_is_told_only(self) -> None:
        assert severities("TP708", self.restarted(101, 101, 101, 101, 101, last=400)) == [INFO]
