"""Family TP95: experts, auxiliary losses, logits and norms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.rules.helpers import make_frame, only, run_rule, says_so_live, severities
from trainproof.frame import Frame
from trainproof.rules.registry import CannotTell
from trainproof.verdict import Severity

FAIL, WARN, INFO = Severity.FAIL, Severity.WARN, Severity.INFO
N = 200


def experts(shares: Any, tokens: int = 8192, collapse_at: int = 100, seed: int = 0) -> Frame:
    """Loads of as many experts as there are shares: even until `collapse_at`, multinomial noise throughout."""
    rng = np.random.default_rng(seed)
    even = np.full(len(shares), 1 / len(shares))
    counts = np.stack([rng.multinomial(tokens, even if i < collapse_at else shares) for i in range(N)])
    return make_frame({"loss": np.ones(N), **{f"expert_load/{e}": counts[:, e] for e in range(len(shares))}})


class TestExperts:
    def test_one_expert_with_nearly_everything_fails(self) -> None:
        seen = says_so_live("TP951", experts([0.94, 0.02, 0.02, 0.02]))
        assert (seen.severity, seen.flagged_step) == (FAIL, 120)
        assert seen.evidence[0].metric == "expert_load/0"

    def test_two_of_eight_experts_fail(self) -> None:
        assert only("TP951", experts([0.494, 0.494, *[0.002] * 6])).severity is FAIL

    def test_a_crowded_or_an_empty_expert_warns(self) -> None:
        assert says_so_live("TP951", experts([0.55, *[0.45 / 7] * 7])).severity is WARN
        assert says_so_live("TP951", experts([0.0, *[1 / 7] * 7])).severity is WARN

    def test_uneven_within_reason_is_silent(self) -> None:
        assert run_rule("TP951", experts([0.3, *[0.1] * 7])) == []

    def test_counts_of_few_tokens_are_silent(self) -> None:
        assert run_rule("TP951", experts([0.94, 0.02, 0.02, 0.02], tokens=64)) == []

    def test_a_collapse_that_ended_is_silent(self) -> None:
        frame = experts([0.94, 0.02, 0.02, 0.02], collapse_at=0)
        turned = {name: s.value[::-1] if name != "loss" else s.value for name, s in frame.items()}
        mixed = {name: np.append(values[:100], np.full(100, 2048.0)) for name, values in turned.items()}
        assert run_rule("TP951", make_frame(mixed)) == []


class TestAuxiliary:
    def test_an_auxiliary_loss_that_never_changes_warns(self) -> None:
        named = {
            "loss": np.linspace(3, 2, N),
            "loss/load_balancing": np.append(np.linspace(1.1, 1.02, 100), np.full(100, 1.0023411)),
        }
        seen = says_so_live("TP952", make_frame(named))
        assert (seen.severity, seen.flagged_step) == (WARN, 150)

    @pytest.mark.parametrize("values", [np.zeros(N), np.full(N, 1.02), 1 + np.random.default_rng(0).normal(0, 1e-3, N)])
    def test_placeholders_coarse_prints_and_moving_ones_are_silent(self, values: Any) -> None:
        assert run_rule("TP952", make_frame({"loss": np.linspace(3, 2, N), "loss/aux": values})) == []


class TestGrowth:
    def test_a_logit_that_jumps_or_triples_warns(self) -> None:
        jumped = np.append(np.full(150, 10.0), np.full(50, 80.0))
        assert (
            says_so_live("TP953", make_frame({"loss": np.ones(N), "max_attn_logit": jumped}), scheduled=True).severity
            is WARN
        )
        growing = 10 * np.exp(np.arange(N) / 80) * np.random.default_rng(0).lognormal(0, 0.05, N)
        assert (
            says_so_live("TP953", make_frame({"loss": np.ones(N), "max_attn_logit": growing}), scheduled=True).severity
            is WARN
        )

    def test_norms_are_told_only(self) -> None:
        growing = 10 * np.exp(np.arange(N) / 80)
        assert severities("TP953", make_frame({"loss": np.ones(N), "params_norm": growing})) == [INFO]

    @pytest.mark.parametrize("shape", [np.sqrt(1 + np.arange(N)), 1.0 + np.arange(N), np.full(N, 30.0)])
    def test_healthy_growth_is_silent(self, shape: Any) -> None:
        noisy = shape * np.random.default_rng(0).lognormal(0, 0.1, N)
        assert run_rule("TP953", make_frame({"loss": np.ones(N), "params_norm": noisy, "max_attn_logit": noisy})) == []

    def test_attention_on_one_token_warns(self) -> None:
        entropy = np.append(np.full(100, 3.0), np.full(100, 0.05))
        assert says_so_live("TP953", make_frame({"loss": np.ones(N), "attn_entropy": entropy})).severity is WARN

    def test_without_any_of_them_it_is_skipped(self) -> None:
        with pytest.raises(CannotTell, match="no logits"):
            run_rule("TP953", make_frame(loss=np.ones(N)))
