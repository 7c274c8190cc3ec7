"""TP211, TP306, TP508 and TP511: parts of the loss, batches, metrics against losses, and the best checkpoint."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.rules.helpers import make_frame, only, run_rule, says_so_live, severities
from trainproof.rules.registry import CannotTell
from trainproof.verdict import Severity

WARN, INFO = Severity.WARN, Severity.INFO


def noisy(level: Any, sigma: float = 0.02, seed: int = 0) -> Any:
    return np.asarray(level, float) * np.random.default_rng(seed).lognormal(0, sigma, len(level))


class TestDomination:
    def test_a_part_that_grew_over_the_others_warns(self) -> None:
        named = {"loss/a": noisy(np.full(300, 1.0)), "loss/b": noisy(np.append(np.full(150, 0.5), np.full(150, 500.0)))}
        seen = says_so_live("TP211", make_frame(named))
        assert (seen.severity, seen.evidence[0].metric) == (WARN, "loss/b")

    def test_one_that_was_large_from_the_start_is_told(self) -> None:
        named = {"loss/a": noisy(np.full(300, 1.0)), "loss/b": noisy(np.full(300, 500.0))}
        assert severities("TP211", make_frame(named)) == [INFO]

    def test_parts_of_like_size_are_silent(self) -> None:
        named = {"loss/a": noisy(np.full(300, 1.0)), "loss/b": noisy(np.linspace(20, 30, 300))}
        assert run_rule("TP211", make_frame(named)) == []


class TestBatch:
    def test_a_batch_that_doubles_alone_is_told(self) -> None:
        batch = np.repeat([256, 512], 50)
        assert severities("TP306", make_frame(lr=np.full(100, 1e-3), batch_size=batch)) == [INFO]
        assert run_rule("TP306", make_frame(lr=np.repeat([1e-3, 2e-3], 50), batch_size=batch)) == []
        with pytest.raises(CannotTell, match="no batch size"):
            run_rule("TP306", make_frame(lr=np.full(100, 1e-3)))


class TestMetric:
    FALL = np.linspace(1.0, 0.5, 30)

    def evals(self, metric: Any, name: str = "eval/accuracy") -> Any:
        return make_frame({"eval/loss": noisy(self.FALL), name: metric})

    def test_a_metric_that_falls_with_the_loss_warns(self) -> None:
        assert says_so_live("TP508", self.evals(noisy(np.linspace(0.8, 0.5, 30))), scheduled=True).severity is WARN

    @pytest.mark.parametrize("level", [np.linspace(0.5, 0.8, 30), np.full(30, 0.7)])
    def test_one_that_rises_or_stands_is_silent(self, level: Any) -> None:
        assert run_rule("TP508", self.evals(noisy(level))) == []

    def test_an_error_rate_is_read_in_its_own_direction(self) -> None:
        assert run_rule("TP508", self.evals(noisy(np.linspace(0.8, 0.5, 30)), "eval/wer")) == []
        assert severities("TP508", self.evals(noisy(np.linspace(0.5, 0.8, 30)), "eval/wer")) == [WARN]

    def test_an_area_at_one_half_while_the_loss_fell_to_ln2_warns(self) -> None:
        rng = np.random.default_rng(0)
        loss = 0.6931 + 0.1 * np.exp(-np.arange(38))
        frame = make_frame(
            {"loss": loss, "auc": 0.5003 + rng.normal(0, 1e-4, 38), "eval/loss": loss, "eval/auc": np.full(38, 0.5003)}
        )
        seen = only("TP508", frame)
        assert (seen.severity, seen.flagged_step) == (WARN, 20)

    def test_an_area_that_leaves_it_is_silent(self) -> None:
        loss = 0.6931 + 0.1 * np.exp(-np.arange(38))
        area = np.append(np.full(25, 0.5), np.full(13, 0.6))
        assert run_rule("TP508", make_frame({"loss": loss, "auc": area, "eval/loss": loss, "eval/auc": area})) == []

    @pytest.mark.parametrize(("start", "end"), [(0.12, 0.12), (0.12, 0.2), (0.6, 0.6)])
    def test_accuracies_that_stay_low_from_the_first_record_warn(self, start: float, end: float) -> None:
        rng = np.random.default_rng(0)
        accuracy = np.linspace(start, end, 400) + rng.normal(0, 0.006, 400)
        loss = 2.6 + 0.2 * np.exp(-np.arange(400) / 5) + rng.normal(0, 0.002, 400)
        frame = make_frame({"loss": loss, "eval/loss": loss, "train_acc": accuracy, "eval/accuracy": accuracy})
        idle = start == end < 0.25
        assert severities("TP508", frame) == [WARN] * idle
        if idle:
            assert 200 <= says_so_live("TP508", frame, scheduled=True).flagged_step <= 300


class TestBestKept:
    def test_a_best_between_checkpoints_is_told(self) -> None:
        frame = {"eval/loss": ([100, 200, 300, 400], [2.0, 1.5, 1.7, 1.9])}
        assert severities("TP511", make_frame(frame, facts={"save_steps": 500})) == [INFO]
        assert run_rule("TP511", make_frame(frame, facts={"save_steps": 100})) == []
        assert (
            run_rule("TP511", make_frame({"eval/loss": ([100, 200, 300], [2.0, 1.5, 1.5])}, facts={"save_steps": 500}))
            == []
        )
