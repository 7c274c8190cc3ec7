"""The statistics against their definitions, computed the plain way."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from trainproof import stats
from trainproof.rules import eval_series

finite = arrays(np.float64, st.integers(0, 200), elements=st.floats(-1e6, 1e6))


@given(finite)
def test_median5_is_the_median_of_the_last_five(x: stats.Floats) -> None:
    got = stats.median5(x)
    assert np.isnan(got[:4]).all()
    for i in range(4, len(x)):
        assert got[i] == np.median(x[i - 4 : i + 1])


@given(finite, st.integers(1, 30), st.integers(1, 9))
def test_trailing_median_is_the_median_of_each_window(x: stats.Floats, width: int, stride: int) -> None:
    at, got = stats.trailing_median(x, width, stride)
    assert at.tolist() == list(range(width - 1, len(x), stride))
    assert got == pytest.approx([np.median(x[i - width + 1 : i + 1]) for i in at])


def test_trailing_medians_of_a_long_series_are_those_of_its_parts() -> None:
    x = np.random.default_rng(3).lognormal(0, 0.1, 600_000)
    at, got = stats.trailing_median(x, 20, 10)  # several threads share these
    assert at.tolist() == list(range(19, len(x), 10))
    for begin in (0, 123_450, 599_000):
        part = stats.trailing_median(x[begin : begin + 1000], 20, 10)[1]
        assert got[begin // 10 : begin // 10 + len(part)].tolist() == part.tolist()


@given(finite, st.integers(1, 40))
def test_trailing_minimum_waits_until_the_window_is_full(x: stats.Floats, width: int) -> None:
    got = stats.trailing_minimum(x, width)
    for i in range(len(x)):
        assert got[i] == (x[i - width + 1 : i + 1].min() if i >= width - 1 else -math.inf)


def plain_baseline(x: stats.Floats, i: int, lag: int) -> tuple[float, float]:
    window = np.sort(x[max(0, i - lag - 63) : i - lag + 1])
    median = float(np.median(window))
    gaps = np.diff(window)
    quantum = float(gaps[gaps > 0].min()) if (gaps > 0).any() else 0.0
    return median, max(1.4826 * float(np.median(np.abs(window - median))), 0.02 * abs(median), quantum)


@pytest.mark.parametrize("i", [24, 25, 60, 68, 69, 500, 2047])
def test_baseline_is_exact_up_to_two_thousand_records(i: int) -> None:
    x = np.random.default_rng(1).lognormal(0, 0.3, 2500)
    base = stats.baseline(x)
    assert (base.median[i], base.scale[i]) == pytest.approx(plain_baseline(x, i, 5))


def test_baseline_is_renewed_every_thirty_two_records_after_that() -> None:
    x = np.random.default_rng(2).lognormal(0, 0.3, 3000)
    base = stats.baseline(x)
    for i in (2048, 2063, 2064, 2999):
        renewed = 2048 + (i - 2048) // 32 * 32
        assert (base.median[i], base.scale[i]) == pytest.approx(plain_baseline(x, renewed, 5))


@given(arrays(np.float64, st.integers(70, 120), elements=st.floats(-3, 3)), st.integers(0, 6), st.integers(0, 9))
def test_the_scale_of_a_baseline_is_never_less_than_the_print_quantum(x: stats.Floats, digits: int, i: int) -> None:
    x = np.round(x, digits)
    base = stats.baseline(x)
    assert (base.median[60 + i], base.scale[60 + i]) == pytest.approx(plain_baseline(x, 60 + i, 5))


def test_baseline_needs_twenty_records_before_the_lag() -> None:
    base = stats.baseline(np.ones(30))
    assert np.flatnonzero(np.isfinite(base.median))[0] == 24
    assert base.scale[24] == pytest.approx(0.02)


@given(arrays(np.float64, st.integers(30, 120), elements=st.floats(0.1, 10)), st.integers(30, 120))
def test_baseline_is_causal(x: stats.Floats, cut: int) -> None:
    whole, part = stats.baseline(x), stats.baseline(x[:cut])
    np.testing.assert_array_equal(whole.median[: len(part.median)], part.median)
    np.testing.assert_array_equal(whole.scale[: len(part.scale)], part.scale)


def test_baseline_of_a_coarsely_printed_loss_has_the_print_quantum_as_scale() -> None:
    x = np.where(np.arange(100) % 50 == 0, 1.0 + 2**-4, 1.0)
    assert stats.baseline(x).scale[90] == 2**-4


def test_schedule_is_fifty_times_powers_of_1_05_and_the_end() -> None:
    counts = stats.schedule(200).tolist()
    assert counts[:4] == [50, 53, 56, 58]
    assert counts[-1] == 200
    assert all(b <= math.ceil(a * 1.05) + 1 for a, b in zip(counts[:-2], counts[1:-1], strict=True))
    assert stats.schedule(10).tolist() == [10]
    assert stats.schedule(0).tolist() == []


@given(st.integers(1, 5000), st.integers(0, 2000))
def test_schedule_of_a_longer_log_begins_with_that_of_a_shorter_one(n: int, more: int) -> None:
    assert stats.schedule(n).tolist()[:-1] == [c for c in stats.schedule(n + more).tolist() if c < n]


def test_theil_sen_ignores_outliers() -> None:
    t = np.arange(50.0)
    y = 3 * t + 1
    y[::7] += 1000
    assert stats.theil_sen(t, y) == pytest.approx(3.0)


def test_mann_kendall_against_a_hand_computed_value() -> None:
    assert stats.mann_kendall(np.array([1.0, 2, 3, 4, 5])) == pytest.approx((10 - 1) / math.sqrt(5 * 4 * 15 / 18))
    assert stats.mann_kendall(np.array([2.0, 2, 2, 2])) == 0.0
    # one tie of two: variance loses 2 * 1 * 9 / 18
    assert stats.mann_kendall(np.array([1.0, 1, 2, 3])) == pytest.approx((5 - 1) / math.sqrt((4 * 3 * 13 - 18) / 18))


def test_the_standard_error_of_a_trend_is_that_of_repeated_trends() -> None:
    rng = np.random.default_rng(3)
    seen = [stats.trend(rng.normal(0, 1, 600), 0, 600) for _ in range(300)]
    spread = float(np.std([s.change for s in seen]))
    assert np.median([s.se for s in seen]) == pytest.approx(spread, rel=0.15)


def test_the_noise_of_the_logarithm_is_sigma_under_a_trend() -> None:
    rng = np.random.default_rng(4)
    x = np.exp(-np.arange(5000) / 1000) * rng.lognormal(0, 0.2, 5000)
    assert stats.difference_noise(np.log(x)) == pytest.approx(0.2, rel=0.05)


def test_noise_so_far_is_the_noise_of_the_prefix() -> None:
    x = np.random.default_rng(5).normal(0, 1, 300)
    got = stats.noise_so_far(x)
    assert np.isinf(got[:8]).all()
    assert got[20] == pytest.approx(stats.difference_noise(x[:21]))
    last = stats.schedule(300)[-2]
    assert got[299] == got[last - 1] == pytest.approx(stats.difference_noise(x[:last]))


@pytest.mark.parametrize("so_far", [stats.noise_so_far, eval_series.noise_so_far])
@given(n=st.integers(4, 400))
def test_noise_so_far_is_the_same_however_long_the_log_grows(so_far: Callable[..., stats.Floats], n: int) -> None:
    x = np.random.default_rng(6).normal(0, 1, 400)
    assert np.array_equal(so_far(x[:n]), so_far(x)[:n])


def test_the_noise_of_a_short_prefix_is_that_of_numpy() -> None:
    x = np.random.default_rng(8).normal(0, 1, 300)
    noise = stats.noise_renewed(x)
    expected = [stats.STEP_TO_SIGMA * np.median(np.abs(np.diff(x[:count]))) for count in noise.counts.tolist()]
    assert noise.values.tolist() == pytest.approx(expected)
    assert noise.counts.tolist() == stats.renewals(300, 9).tolist()


@given(st.integers(1, 30), st.integers(0, 12), st.integers(1, 9))
def test_what_was_renewed_holds_until_it_is_renewed_again(size: int, first: int, stride: int) -> None:
    renewed = stats.Renewed(np.array([3, 4, 9, 20]), np.array([1.0, 2.0, 3.0, 4.0]))
    records = [first + stride * i for i in range(size)]
    expected = [sum(count <= record + 1 for count in (3, 4, 9, 20)) or math.inf for record in records]
    assert renewed.each(size, first, stride).tolist() == expected


@given(
    arrays(np.float64, st.integers(1, 260), elements=st.floats(0.5, 2)),
    st.sampled_from((0.01, 0.1, 1.0)),
    st.sampled_from((0.01, 0.1)),
)
def test_what_stands_still_may_stand_still(x: stats.Floats, noise: float, share: float) -> None:
    x = 1 + noise * (x - 1)
    seen = stats.change_over(x)
    if abs(seen.change) + 2 * seen.se < share * abs(seen.level):
        assert stats.may_stand_still(x, share)


def test_a_noisy_series_does_not_stand_still() -> None:
    random = np.random.default_rng(9)
    assert not stats.may_stand_still(random.lognormal(0, 0.1, 60), 0.01)
    assert stats.may_stand_still(random.lognormal(0, 0.001, 60), 0.01)


@pytest.mark.parametrize("width", [2, 3, 10, 11])
def test_block_medians_are_those_of_numpy(width: int) -> None:
    x = np.random.default_rng(width).normal(0, 1, 120 * width + 1)
    assert stats.block_medians(x).tolist() == np.median(x[1:].reshape(120, width), axis=1).tolist()


def test_scheduled_counts_are_those_of_the_schedule() -> None:
    assert sorted(n for n in stats.scheduled_counts() if n < 10**4) == stats.schedule(10**4)[:-1].tolist()


def test_page_hinkley_fires_when_the_excess_has_added_up() -> None:
    z = np.concatenate([np.zeros(50), np.full(50, 3.0)])
    assert stats.page_hinkley(z, 0.5, 25) == (50 + 10, 50)  # 11 x 2.5 = 27.5 is the first sum above 25
    assert stats.page_hinkley(np.zeros(1000), 0.5, 25) is None


@given(arrays(np.bool_, st.integers(0, 60)))
def test_runs_of_cover_exactly_the_true_values(mask: stats.Bools) -> None:
    rebuilt = np.zeros(len(mask), dtype=bool)
    for start, stop in stats.runs_of(mask):
        assert stop > start
        assert not rebuilt[max(0, start - 1) : stop].any()
        rebuilt[start:stop] = True
    np.testing.assert_array_equal(rebuilt, mask)


def test_first_and_last_run() -> None:
    mask = np.array([1, 0, 1, 1, 1, 0, 1, 1], dtype=bool)
    assert stats.first_run(mask, 2) == (2, 5)
    assert stats.first_run(mask, 4) is None
    assert stats.last_run(mask) == (6, 8)
    assert stats.last_run(~mask) is None


def test_a_running_mean_is_told_from_noise_and_from_a_smooth_curve() -> None:
    rng = np.random.default_rng(6)
    raw = 1.5 * rng.lognormal(0, 0.2, 500)
    assert stats.is_running_mean(np.cumsum(raw) / np.arange(1, 501))
    assert not stats.is_running_mean(raw)
    assert not stats.is_running_mean(1 / np.arange(1.0, 501))


@pytest.mark.parametrize("seed", range(10))
def test_a_loss_is_no_running_mean_of_records_that_would_be_negative(seed: int) -> None:
    """A short log of window means whose steps shrink as 1/n: some of what it would be the mean of would be losses below 0."""
    rng, step = np.random.default_rng(seed), np.arange(60)
    assert not stats.is_running_mean(0.4 + 2 * np.exp(-step / 8) + rng.normal(0, 0.8, 60) / (step + 10))
    records = (1.5 + 2 * np.exp(-step / 10)) * rng.lognormal(0, 0.5, 60)
    mean = np.cumsum(np.tile(records, 8)) / np.arange(1, 481)
    assert stats.is_running_mean(np.round(mean, 4))


@given(seed=st.integers(0, 50), epochs=st.integers(1, 4), noise=st.sampled_from([0.0, 0.05, 0.2]))
def test_a_sum_since_the_start_or_since_that_of_each_epoch_is_known(seed: int, epochs: int, noise: float) -> None:
    losses = (1 + np.exp(-np.arange(160) / 60)) * np.random.default_rng(seed).lognormal(0, noise, 160)
    sums = np.concatenate([np.cumsum(part) for part in np.array_split(losses, epochs)])
    assert stats.is_running_sum(sums)
    assert not stats.is_running_sum(losses)
    assert not stats.is_running_sum(np.cumsum(losses) / np.arange(1, 161))
    assert not stats.is_running_sum(losses * np.exp(np.arange(160) / 40))  # it diverges


def test_a_smooth_rise_is_no_sum() -> None:
    assert not stats.is_running_sum(np.linspace(2, 20, 100))
    assert not stats.is_running_sum(np.exp(np.arange(100) / 10))
    assert not stats.is_running_sum(np.ones(100))
    assert not stats.is_running_sum(np.cumsum(np.ones(40)))  # too few to tell


@given(st.lists(st.integers(-3, 3), max_size=30))
def test_distinct_values_and_their_counts(x: list[int]) -> None:
    values, counts = stats.distinct(np.array(x, np.int64))
    assert dict(zip(values.tolist(), counts.tolist(), strict=True)) == Counter(x)
    assert values.tolist() == sorted(set(x))


def test_the_median_of_many_values_is_that_of_numpy() -> None:
    for n in (stats.SHORT, stats.SHORT + 1):
        x = np.random.default_rng(n).normal(0, 1, n)
        assert stats.median(x) == np.median(x)
        x[7] = np.nan
        assert math.isnan(stats.median(x))


@given(st.lists(st.floats(-1e6, 1e6) | st.just(math.nan), max_size=12))
def test_the_median_is_that_of_numpy(x: list[float]) -> None:
    expected = float(np.median(x)) if x else math.nan
    assert stats.median(x) == pytest.approx(expected, rel=1e-12, nan_ok=True)
