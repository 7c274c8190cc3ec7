"""Family TP6: periods, repeats, mixtures and tokens a step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.rules.helpers import healthy_frame, make_frame, only, run_rule, says_so_live, severities
from trainproof.frame import Frame
from trainproof.rules.registry import CannotTell
from trainproof.verdict import Severity

FAIL, WARN, INFO = Severity.FAIL, Severity.WARN, Severity.INFO
#: losses of batches of five lengths, as a public run that groups them by length logs them
BUCKETS = np.array([1.5, 1.27, 1.45, 2.16, 3.29])


def buckets(n: int, noise: float = 0.03, seed: int = 0) -> Any:
    return np.resize(BUCKETS, n) * np.random.default_rng(seed).lognormal(0, noise, n)


class TestPeriodicLoss:
    def test_batches_in_a_cycle_of_lengths_warn(self) -> None:
        seen = says_so_live("TP601", make_frame(loss=buckets(120)), scheduled=True)
        assert seen.severity is WARN
        assert "every 5 records" in seen.message
        assert seen.flagged_step <= 25

    @pytest.mark.parametrize("period", [2, 3, 7, 30, 100])
    def test_the_shortest_period_is_told(self, period: int) -> None:
        rng = np.random.default_rng(period)
        phases = rng.permutation(np.linspace(1, 3, period))
        loss = np.resize(phases, 600) * rng.lognormal(0, 0.05, 600) + np.exp(-np.arange(600) / 100)
        assert f"every {period} records" in only("TP601", make_frame(loss=loss)).message

    def test_a_small_amplitude_is_told_only(self) -> None:
        loss = 2 + 0.1 * np.resize([0.0, 0.5, 1.0, 0.5], 200) + np.random.default_rng(0).normal(0, 0.01, 200)
        assert severities("TP601", make_frame(loss=loss)) == [INFO]

    @pytest.mark.parametrize("level", [[1.5] * 50 + [90.0] * 50, [1.0] * 70 + [3.0] * 10 + [1.0] * 70])
    def test_steps_and_humps_are_no_cycles(self, level: Any) -> None:
        noise = np.random.default_rng(0).lognormal(0, 0.02, len(level))
        assert run_rule("TP601", make_frame(loss=np.asarray(level) * noise)) == []

    def test_a_cycle_that_ended_is_silent(self) -> None:
        loss = np.append(buckets(100), 2 * np.random.default_rng(1).lognormal(0, 0.2, 700))
        assert run_rule("TP601", make_frame(loss=loss)) == []

    def test_a_mean_that_restarts_with_each_epoch_is_silent(self) -> None:
        rng = np.random.default_rng(0)
        x = rng.lognormal(0, 0.3, (6, 100)) * np.exp(-np.arange(600).reshape(6, 100) / 300)
        means = np.cumsum(x, axis=1) / np.arange(1, 101)
        frame = make_frame(loss=means.ravel(), epoch=1e-6 + np.arange(600) / 100)
        assert run_rule("TP601", frame) == []

    @pytest.mark.parametrize("sigma", [0.05, 0.2, 0.5])
    @pytest.mark.parametrize("n", [20, 60, 600])
    def test_healthy_noise_is_silent(self, n: int, sigma: float) -> None:
        assert not [seed for seed in range(20) if run_rule("TP601", healthy_frame(n, sigma, seed))]


class TestCyclesAreNoDivergence:
    """TP203 beside TP601 and TP927: the next length is no departure from the best level."""

    SORTED = np.tile(np.linspace(3, 15, 17), 12)

    def test_epochs_sorted_by_length_do_not_fail(self) -> None:
        loss = self.SORTED * np.random.default_rng(0).lognormal(0, 0.05, len(self.SORTED))
        frame = make_frame(loss=loss, epoch=1e-6 + np.arange(len(loss)) / 17)
        assert severities("TP203", frame) == [INFO]
        assert run_rule("TP506", frame) == []

    def test_stretches_of_one_length_do_not_fail(self) -> None:
        order = np.random.default_rng(0).choice([0.4, 0.8, 1.6], 40)
        loss = np.repeat(order, 10) * np.random.default_rng(1).lognormal(0, 0.03, 400)
        assert FAIL not in severities("TP203", make_frame(loss=loss))

    def test_a_divergence_of_all_phases_does(self) -> None:
        loss = np.append(self.SORTED, 4 * self.SORTED) * np.random.default_rng(0).lognormal(0, 0.05, 408)
        assert severities("TP203", make_frame(loss=loss)) == [FAIL]


class TestRepeatedSequence:
    @staticmethod
    def epochs(noise: float, digits: int = 12, count: int = 3) -> Frame:
        rng = np.random.default_rng(0)
        x = np.tile(rng.lognormal(0, 0.3, 50), count) * np.exp(rng.normal(0, 1, 50 * count) * noise)
        return make_frame(loss=np.round(x, digits), epoch=1e-6 + np.arange(50 * count) / 50)

    def test_an_epoch_that_comes_back_digit_for_digit_fails(self) -> None:
        seen = says_so_live("TP604", self.epochs(0.0))
        assert (seen.severity, seen.flagged_step) == (FAIL, 55)

    def test_a_stretch_that_repeats_by_the_end_fails_there(self) -> None:
        x = np.random.default_rng(0).lognormal(0, 0.3, 110)
        x[100:110] = x[60:70]
        assert says_so_live("TP604", make_frame(loss=x)).flagged_step == 105

    def test_losses_of_few_digits_repeat_by_chance(self) -> None:
        assert run_rule("TP604", make_frame(loss=np.round(self.epochs(0.0)["loss"].value, 3))) == []

    def test_one_value_forever_is_another_rules(self) -> None:
        assert run_rule("TP604", make_frame(loss=np.full(100, 1.23456789))) == []

    def test_the_same_order_again_is_told_only(self) -> None:
        seen = only("TP604", self.epochs(0.05))
        assert seen.severity is INFO
        assert "position by position" in seen.message

    def test_a_shuffled_epoch_is_silent(self) -> None:
        assert run_rule("TP604", healthy_frame(600, 0.3, 0, epoch=np.arange(600) / 100 + 1e-6)) == []


class TestMixture:
    def test_a_source_that_ran_out_warns(self) -> None:
        share = np.append(np.full(150, 0.3), np.zeros(150)) + np.random.default_rng(0).normal(0, 0.02, 300)
        frame = make_frame({"loss": np.ones(300), "mixture/books": share})
        assert says_so_live("TP603", frame, scheduled=True).severity is WARN

    def test_steady_shares_are_silent_and_no_shares_are_skipped(self) -> None:
        share = 0.3 + np.random.default_rng(0).normal(0, 0.05, 300)
        assert run_rule("TP603", make_frame({"loss": np.ones(300), "mixture/books": share})) == []
        with pytest.raises(CannotTell, match="no shares"):
            run_rule("TP603", make_frame(loss=np.ones(300)))


class TestTokens:
    @staticmethod
    def counter(rate: Any) -> Frame:
        return make_frame(loss=np.ones(len(rate)), tokens=np.cumsum(np.round(rate)))

    def test_data_sorted_by_length_warns(self) -> None:
        rate = np.linspace(4000, 1500, 300) + np.random.default_rng(0).normal(0, 100, 300)
        assert says_so_live("TP605", self.counter(rate), scheduled=True).severity is WARN

    def test_a_batch_ramp_is_told_only(self) -> None:
        assert only("TP605", self.counter(np.repeat([1e5, 2e5, 4e5], 100))).severity is INFO

    def test_a_steady_rate_is_silent_and_a_counter_that_falls_is_skipped(self) -> None:
        rng = np.random.default_rng(0)
        assert run_rule("TP605", self.counter(rng.normal(4000, 400, 300))) == []
        with pytest.raises(CannotTell, match="falls"):
            run_rule("TP605", make_frame(loss=np.ones(100), tokens=rng.normal(4000, 400, 100)))
