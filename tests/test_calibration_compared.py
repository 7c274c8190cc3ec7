"""What `make calibrate` measures of comparisons, with fewer runs."""

from __future__ import annotations

import pytest

from tools.calibrate_compare import NOISE, Cell, measure


@pytest.mark.parametrize("n", [60, 200, 600])
@pytest.mark.parametrize("sigma", NOISE)
def test_pairs_that_differ_in_the_seed_only_are_not_told(sigma: float, n: int) -> None:
    assert measure(Cell(n, sigma, 1, runs=4, whole=True)).verdicts == {"PASS": 4}


@pytest.mark.parametrize("k", [1, 3, 5])
def test_a_tenth_worse_fails(k: int) -> None:
    outcome = measure(Cell(600, 0.05, k, worse=0.10, runs=4))
    assert outcome.verdicts == {"FAIL": 4}
    assert outcome.rules["TP978"] == outcome.rules["TP971"] == 4


def test_more_baselines_see_more() -> None:
    one, five = (measure(Cell(600, 0.05, k, worse=0.03, runs=6)) for k in (1, 5))
    assert one.share("WARN", "FAIL") < five.share("WARN", "FAIL") == 1


def test_several_baselines_know_what_seeds_do() -> None:
    assert measure(Cell(600, 0.1, 5, tau=0.02, runs=10)).verdicts == {"PASS": 10}
