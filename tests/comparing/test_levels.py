"""Noise, standard errors, and the limits that several baselines make."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.comparing.helpers import curve, noise
from trainproof import stats
from trainproof.comparing.levels import Gap, level_gap, noise_of, print_steps, standing
from trainproof.comparing.matching import match
from trainproof.thresholds import ComparisonThresholds
from trainproof.verdict import Severity

T = ComparisonThresholds()


def normal(n: int, seed: int, sigma: float = 0.1) -> stats.Floats:
    return np.random.default_rng(seed).normal(0, sigma, n)


# Student's limits from a table of the t distribution, one-sided 2.326e-4 (3.5 normal standard deviations) and 0.005


@pytest.mark.parametrize(("z", "df", "limit"), [(3.5, 10, 5.06), (3.5, 30, 3.92), (2.576, 4, 4.604), (2.576, 8, 3.355)])
def test_student_limit_is_that_of_the_tables(z: float, df: float, limit: float) -> None:
    assert stats.student_limit(z, df) == pytest.approx(limit, rel=0.03)


def test_student_limit_tends_to_the_normal_one() -> None:
    assert stats.student_limit(3.5, 1e9) == pytest.approx(3.5)
    assert stats.student_limit(3.5, 1) == stats.student_limit(3.5, 4)


@pytest.mark.parametrize("r", [0.5, 0.9, 0.98])
def test_serial_correlation_of_smoothed_noise(r: float) -> None:
    x = normal(2000, 1)
    for i in range(1, len(x)):
        x[i] = r * x[i - 1] + (1 - r) * x[i]
    assert stats.serial_correlation(x + np.linspace(0, 3, len(x))) == pytest.approx(r, abs=0.1)


@pytest.mark.parametrize("seed", range(20))
def test_noise_without_correlation_has_none_whatever_its_trend(seed: int) -> None:
    x = normal(300, seed)
    x[200:] += 5
    assert stats.serial_correlation(x) == 0
    assert stats.serial_correlation(x[:10]) == 0, "too few to tell"


@pytest.mark.parametrize(("values", "quantum"), [([1.25, 3.0], 0.01), ([2.0, 3.0], 1.0), ([0.1234567891], 0.0)])
def test_print_quantum(values: list[float], quantum: float) -> None:
    assert stats.print_quantum(np.array(values)) == quantum


def test_the_standard_error_is_that_of_medians_seen() -> None:
    levels, claimed = [], []
    for seed in range(300):
        x = normal(200, seed)
        levels.append(float(np.median(x[-40:])))
        claimed.append(noise_of(x, 40, T)[0])
    assert float(np.median(claimed)) == pytest.approx(float(np.std(levels)), rel=0.25)


def test_a_late_rise_is_not_taken_for_noise() -> None:
    x = normal(200, 3, 0.02)
    before = noise_of(x, 10, T)[0]
    x[-10:] += 1.0
    assert noise_of(x, 10, T)[0] < 2 * before


def test_smoothed_losses_have_wider_errors() -> None:
    x = normal(2000, 5)
    smooth = x.copy()
    for i in range(1, len(x)):
        smooth[i] = 0.95 * smooth[i - 1] + 0.05 * x[i]
    naive = stats.MEDIAN_SE * stats.difference_noise(smooth) / math.sqrt(100)
    assert noise_of(smooth, 100, T)[0] > 10 * naive


def test_equal_series_have_no_noise() -> None:
    assert level_gap(np.zeros(50), 20, T)[:2] == (0.0, 0.0)


def test_too_few_points_cannot_tell_their_noise() -> None:
    found = level_gap(np.array([0.1, 0.2, 0.1]), 3, T)
    assert found.value == 0.1
    assert math.isnan(found.se)


def test_coarse_print_is_noise() -> None:
    """0.02 beside 0.03, printed to two decimals, is no difference of a half."""
    pairs = match(curve([0.03] * 50), curve([0.02] * 50))
    found = standing([level_gap(pairs.ratio, 20, T, quantum=print_steps(pairs))], T.loss_warn, T)
    assert found.severity is Severity.INFO
    fine = match(curve([0.0301234567] * 50), curve([0.0201234567] * 50))
    assert print_steps(fine) == 0
    assert standing([level_gap(fine.ratio, 20, T)], T.loss_warn, T).severity is Severity.FAIL


def gaps(*values: float, se: float = 0.001, df: float = 1e6) -> list[Gap]:
    return [Gap(value, se, df) for value in values]


@pytest.mark.parametrize(
    ("value", "severity"),
    [(0.02, Severity.INFO), (0.024, Severity.WARN), (0.05, Severity.WARN), (0.054, Severity.FAIL), (-1, Severity.INFO)],
)
def test_one_baseline_is_held_to_two_and_five_percent_beyond_noise(value: float, severity: Severity) -> None:
    """Noise explains 3.5 x 0.001."""
    assert standing(gaps(value), 0.02, T).severity is severity


def test_seeds_that_agree_make_the_limits_tighter_and_seeds_that_do_not_make_them_wider() -> None:
    one = standing(gaps(0.03), 0.02, T).warn
    agreeing = [standing(gaps(*[0.03] * k), 0.02, T).warn for k in (2, 3, 5, 10)]
    assert one == 0.02
    assert agreeing == sorted(agreeing, reverse=True)
    assert agreeing[2] < 0.012
    apart = standing(gaps(0.0, 0.03, 0.06, 0.01, 0.05), 0.02, T)
    assert apart.warn > 0.05
    assert apart.severity is Severity.INFO


def test_the_limit_leaves_a_new_seed_alone() -> None:
    """Of levels drawn from one law, one in 200 at most is outside of the others."""
    rng = np.random.default_rng(4)
    for k in (2, 3, 5):
        outside = 0
        for _ in range(2000):
            levels = rng.normal(0, 0.004, k + 1)
            outside += standing(gaps(*(levels[0] - levels[1:]), se=1e-9), 0.02, T).severity is not Severity.INFO
        assert outside <= 20


def test_the_noise_of_the_baselines_is_no_seed_spread() -> None:
    noisy = standing(gaps(0.0, 0.05, 0.1, se=0.05), 0.02, T)
    sure = standing(gaps(0.0, 0.05, 0.1, se=0.001), 0.02, T)
    assert noisy.warn == pytest.approx(sure.warn * math.sqrt(0.5), rel=0.02), "half of what they differ by is noise"
    assert noisy.noise == pytest.approx(3.5 * 0.05 * math.sqrt(4 / 6), rel=0.01)


def test_a_limit_may_never_fail() -> None:
    assert standing(gaps(9.0), 0.02, T, math.inf).severity is Severity.WARN


def test_noise_helper_has_the_noise_it_says() -> None:
    assert float(np.std(np.log(noise(10_000, 1, 0.3)))) == pytest.approx(0.3, rel=0.03)
