"""TP203 and TP202 on losses that rise: those of a start-up or of a changed sum, and those that rise as these do and are lost."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from tests.rules.helpers import make_frame, run_rule
from trainproof.frame import Floats
from trainproof.verdict import Severity

FAIL, WARN, INFO = Severity.FAIL, Severity.WARN, Severity.INFO


def noise(n: int, sigma: float, seed: int) -> Floats:
    return np.random.default_rng(seed).lognormal(0, sigma, n)


def queue_fills(n: int, seed: int, sigma: float = 0.01) -> Floats:
    """A contrastive loss: up from 2.2 to 8.8 while a queue fills, then falling to 6.4 for the rest of the run."""
    i, filled = np.arange(n), n / 50
    loss = np.where(i < filled, 2.2 + 6.6 * i / filled, 6.4 + 2.4 * np.exp(-(i - filled) / (n / 4)))
    return loss * noise(n, sigma, seed)


def accuracy(n: int, end: float, seed: int) -> Floats:
    """100 while the queue is empty, 0 when it has been filled, then rising to `end`."""
    i, filled = np.arange(n), n / 50
    level = np.where(i < filled, 100 * np.exp(-5 * i / filled), end * (1 - np.exp(-(i - filled) / (n / 6))))
    return np.clip(level + np.random.default_rng(seed).normal(0, 2, n), 0, 100)


def severities(series: Mapping[str, Floats], code: str = "TP203", objective: str = "unknown") -> list[Severity]:
    return [seen.severity for seen in run_rule(code, make_frame(series, objective=objective))]


@pytest.mark.parametrize("n", [500, 3000])
@pytest.mark.parametrize("seed", range(3))
class TestStartUp:
    def test_a_queue_that_fills_while_the_accuracy_rises_is_told(self, n: int, seed: int) -> None:
        assert severities({"loss": queue_fills(n, seed), "accuracy": accuracy(n, 75, seed)}) == [INFO]

    def test_without_a_metric_it_may_be_a_lost_start_too(self, n: int, seed: int) -> None:
        assert severities({"loss": queue_fills(n, seed)}) == [WARN]

    def test_a_language_model_has_lost_its_start(self, n: int, seed: int) -> None:
        assert severities({"loss": queue_fills(n, seed)}, objective="lm") == [FAIL]

    def test_an_accuracy_that_stays_down_excuses_nothing_that_stays_up(self, n: int, seed: int) -> None:
        loss = np.minimum(queue_fills(n, seed, 0), 7.0)
        loss[n // 50 :] = 7.0
        assert severities({"loss": loss * noise(n, 0.01, seed), "accuracy": accuracy(n, 1, seed)}) == [FAIL]

    def test_a_rise_that_stays_fails(self, n: int, seed: int) -> None:
        i = np.arange(n)
        assert severities({"loss": (2 + 6 * (1 - np.exp(-50 * i / n))) * noise(n, 0.02, seed)}) == [FAIL]
        assert severities({"loss": (1.4 + 6 * i / n) * noise(n, 0.02, seed)}) == [FAIL]

    def test_an_overshoot_that_ends_on_a_high_level_fails(self, n: int, seed: int) -> None:
        i, top = np.arange(n), n // 50
        loss = np.where(i < top, 1.4 + 11 * i / top, 7.5 + 5 * np.exp(-(i - top) / (n / 30)))
        assert severities({"loss": loss * noise(n, 0.02, seed)}) == [FAIL]

    def test_what_had_been_learned_before_the_rise_is_lost(self, n: int, seed: int) -> None:
        loss = np.concatenate([np.linspace(5.0, 2.2, 10), queue_fills(n, seed)])
        assert severities({"loss": loss}) == [FAIL]


class TestAnotherSum:
    @staticmethod
    def ramped(n: int, rises: bool) -> dict[str, Floats]:
        """A second term is raised after the accuracy had come near its best; it goes on to rise, or falls to chance."""
        i = np.arange(n)
        term = np.where(i < 0.3 * n, 0.0, 1.2)
        end = np.where(i < 0.3 * n, 80 * (1 - np.exp(-20 * i / n)), 80 + 15 * (i / n - 0.3) if rises else 10)
        return {
            "loss": (0.2 + 2 * np.exp(-30 * i / n) + term) * noise(n, 0.05, 1),
            "accuracy": end + np.random.default_rng(2).normal(0, 0.5, n),
        }

    def test_a_metric_that_goes_on_to_its_best_tells_that_the_model_learns(self) -> None:
        assert severities(self.ramped(600, True)) == [INFO]
        assert severities(self.ramped(600, True), "TP202") == [WARN]

    def test_a_metric_that_falls_with_the_rise_excuses_nothing(self) -> None:
        assert severities(self.ramped(600, False)) == [FAIL]
        assert severities(self.ramped(600, False), "TP202") == [FAIL]
