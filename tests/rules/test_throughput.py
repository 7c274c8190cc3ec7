"""Family TP90: step times, stalls, waiting for data, memory, ends and ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.rules.helpers import make_frame, only, run_rule, says_so_live, severities
from trainproof.frame import Frame, Segment
from trainproof.rules.registry import CannotTell
from trainproof.verdict import Severity

FAIL, WARN, INFO = Severity.FAIL, Severity.WARN, Severity.INFO


def times(level: Any, noise: float = 0.1, seed: int = 0) -> Any:
    return np.asarray(level) * np.random.default_rng(seed).lognormal(0, noise, len(level))


def timed(level: Any, noise: float = 0.1, **more: Any) -> Frame:
    return make_frame(loss=np.ones(len(level)), step_time=times(level, noise), **more)


class TestDrop:
    @pytest.mark.parametrize(("factor", "severity"), [(2.5, WARN), (10.0, WARN), (40.0, FAIL)])
    def test_a_slow_rest_of_the_run(self, factor: float, severity: Severity) -> None:
        seen = says_so_live("TP901", timed(np.append(np.ones(200), np.full(100, factor))))
        assert seen.severity is severity
        assert 240 <= seen.flagged_step <= 255

    def test_a_slow_stretch_that_ended_is_silent(self) -> None:
        assert run_rule("TP901", timed(np.concatenate([np.ones(200), np.full(100, 10.0), np.ones(60)]))) == []

    def test_longer_samples_at_the_same_throughput_are_silent(self) -> None:
        slow = np.append(np.ones(200), np.full(200, 3.0))
        assert run_rule("TP901", timed(slow, throughput=times(np.full(400, 5e4)))) == []

    def test_a_throughput_or_a_clock_is_enough(self) -> None:
        slow = np.append(np.ones(200), np.full(200, 3.0))
        for series in ({"throughput": 5e4 / slow}, {"time": np.cumsum(slow)}):
            assert severities("TP901", make_frame({"loss": np.ones(400), **series})) == [WARN]
        with pytest.raises(CannotTell, match="no step time"):
            run_rule("TP901", make_frame({"reward": np.ones(400), "time": np.cumsum(slow)}, objective="rl"))


class TestCreep:
    def test_steps_that_grow_warn_and_fail(self) -> None:
        assert says_so_live("TP902", timed(np.linspace(1, 1.6, 400)), scheduled=True).severity is WARN
        assert says_so_live("TP902", timed(np.linspace(1, 6, 400)), scheduled=True).severity is FAIL

    def test_a_jump_is_no_creep(self) -> None:
        seen = only("TP902", timed(np.append(np.ones(220), np.full(180, 10.0)), 0.02))
        assert seen.severity is WARN
        assert "all along" not in seen.message

    def test_epochs_whose_time_grows_warn(self) -> None:
        public = "1.75 1.87 2.05 2.40 2.56 2.68 2.64 2.63 2.62 2.55 2.57 2.66 2.68 2.63 2.63 2.63 2.66 2.77".split()
        epoch_times = np.repeat(np.array(public, float), 8)
        frame = make_frame(loss=np.ones(144), step_time=epoch_times, epoch=1e-6 + np.arange(144) / 8)
        assert severities("TP902", frame) == [WARN]

    def test_epochs_sorted_by_length_are_silent(self) -> None:
        sorted_epochs = np.tile(np.linspace(0.4, 0.95, 40), 15)[:590]
        frame = make_frame(loss=np.ones(590), step_time=times(sorted_epochs, 0.05), epoch=1e-6 + np.arange(590) / 40)
        assert run_rule("TP902", frame) == []

    @pytest.mark.parametrize("seed", range(10))
    def test_noise_and_a_little_growth_are_silent(self, seed: int) -> None:
        assert (
            run_rule("TP902", make_frame(loss=np.ones(600), step_time=times(np.linspace(1, 1.13, 600), 0.3, seed)))
            == []
        )


class TestStalls:
    @staticmethod
    def stalled(at: Any, length: float = 20.0) -> Frame:
        level = np.ones(600)
        level[np.asarray(at)] = length
        return timed(level, facts={"save_steps": 100})

    def test_stalls_at_any_time_warn(self) -> None:
        seen = says_so_live("TP903", self.stalled([110, 130, 270, 290, 420, 555]), scheduled=True)
        assert seen.severity is WARN

    def test_stalls_at_the_save_interval_are_told(self) -> None:
        seen = only("TP903", self.stalled([99, 199, 299, 399, 499, 599]))
        assert seen.severity is INFO
        assert "the interval of saving" in seen.message

    def test_one_long_step_is_silent(self) -> None:
        assert run_rule("TP903", self.stalled([300], 100.0)) == []

    def test_heavy_tails_are_silent(self) -> None:
        assert run_rule("TP903", timed(np.ones(600), 0.3)) == []


class TestDataBound:
    def test_a_wait_that_grew_warns(self) -> None:
        wait = np.append(np.full(100, 0.1), np.full(100, 0.9))
        assert only("TP904", timed(1 + wait, data_time=wait)).severity is WARN

    def test_a_steady_wait_is_told(self) -> None:
        assert says_so_live("TP904", timed(np.full(100, 7.4), 0.0, data_time=np.full(100, 6.8))).severity is INFO

    def test_a_long_first_record_is_left_out(self) -> None:
        assert run_rule("TP904", timed(np.ones(100), data_time=np.append(32.0, np.full(99, 0.004)))) == []


class TestMemory:
    def test_a_leak_warns_and_fails_when_it_reaches_the_limit(self) -> None:
        leak = 2.5 + 0.028 * np.arange(100) + np.random.default_rng(0).normal(0, 0.01, 100)
        frame = make_frame(loss=np.ones(100), memory=leak)
        assert only("TP905", frame).severity is WARN
        limited = make_frame(loss=np.ones(100), memory=leak, facts={"memory_limit": 24.0, "total_steps": 5000})
        assert only("TP905", limited).severity is FAIL
        roomy = make_frame(loss=np.ones(100), memory=leak, facts={"memory_limit": 80.0, "total_steps": 1000})
        assert only("TP905", roomy).severity is WARN

    def test_a_peak_that_has_seen_the_longest_sample_is_silent(self) -> None:
        rng = np.random.default_rng(0)
        assert run_rule("TP905", make_frame(memory=np.maximum.accumulate(rng.uniform(10, 20, 400)))) == []

    def test_steady_memory_is_silent(self) -> None:
        assert run_rule("TP905", make_frame(memory=np.full(400, 20.0))) == []

    def test_near_the_limit_warns_at_the_second_record(self) -> None:
        frame = make_frame(loss=np.ones(50), memory=[70.0] * 30 + [78.5] * 20, facts={"memory_limit": 80})
        assert says_so_live("TP906", frame).flagged_step == 32


class TestRest:
    def test_a_log_that_ends_early_is_told(self) -> None:
        frame = make_frame(loss=np.ones(50), facts={"total_steps": 100})
        assert severities("TP907", frame) == [INFO]
        assert run_rule("TP907", frame.replace(ended=True)) == []
        resumed = [Segment(1, 50, "start"), Segment(51, 97, "resume at step 51")]
        assert run_rule("TP907", make_frame(loss=np.ones(97), facts={"total_steps": 100}, segments=resumed)) == []
        assert run_rule("TP907", make_frame(loss=np.ones(97), facts={"total_steps": 100})) == []

    def test_a_slow_rank_warns(self) -> None:
        rng = np.random.default_rng(0)
        ranks = {f"step_time/rank{i}": rng.lognormal(0, 0.1, 200) for i in range(8)}
        assert run_rule("TP908", make_frame({"loss": np.ones(200), **ranks})) == []
        ranks["step_time/rank3"][100:] *= 1.5
        seen = says_so_live("TP908", make_frame({"loss": np.ones(200), **ranks}))
        assert (seen.severity, seen.evidence[0].metric) == (WARN, "step_time/rank3")
        assert 108 <= seen.flagged_step <= 125
