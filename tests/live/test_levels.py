"""What a screen keeps is what the rule computes over the whole series."""

from __future__ import annotations

import numpy as np
import pytest

from trainproof import stats
from trainproof.live.asked import Asked
from trainproof.live.levels import Band, LossScreen, NormScreen, RollingBaseline, middle
from trainproof.thresholds import GradientThresholds, Thresholds


@pytest.mark.parametrize("n", [20, 24, 25, 67, 69, 300, 2200])
def test_a_rolling_baseline_is_the_baseline_of_the_whole_series(n: int) -> None:
    x = np.round(np.random.default_rng(n).lognormal(0, 0.3, n), 2)
    whole = stats.baseline(x)
    rolling = RollingBaseline()
    for i, value in enumerate(x.tolist()):
        rolling.push(value)
        base = rolling.base
        if base is None:
            assert np.isnan(whole.median[i])
        else:
            assert base == (whole.median[i], whole.scale[i], whole.high[i])


def test_the_middle_of_an_even_number_is_the_mean_of_two() -> None:
    assert middle([1.0, 2.0, 4.0, 8.0]) == 3.0
    assert middle([1.0, 2.0, 4.0]) == 2.0


def asked(screen: LossScreen | NormScreen, values: list[float]) -> list[set[str]]:
    found = []
    for value in values:
        ask: set[str] = set()
        if isinstance(screen, LossScreen):
            screen.see(value, ask, ask)
        else:
            screen.see(0, value, Asked(ask, ask))
        found.append(ask)
    return found


def test_healthy_noise_is_hardly_ever_asked_about() -> None:
    x = np.random.default_rng(0).lognormal(0, 0.3, 5000)
    some = [ask for ask in asked(LossScreen(Thresholds(), {}), x.tolist()) if ask]
    assert len(some) < 50
    norms = [ask for ask in asked(NormScreen(GradientThresholds(), {}), x.tolist()) if ask]
    assert len(norms) < 5


@pytest.mark.parametrize("x", [[1.5**i for i in range(25)], [i - 30.0 for i in range(25)]])
def test_a_loss_that_rises_from_its_first_record_is_asked_about(x: list[float]) -> None:
    assert all("TP203" in ask for ask in asked(LossScreen(Thresholds(), {}), x)[12:])


def test_a_rule_that_has_failed_the_run_is_not_asked_again() -> None:
    x = [1.0, 1.1] * 40 + [9.0, 9.5] * 20
    standing: dict[str, int] = {}
    before = asked(LossScreen(Thresholds(), standing), x)
    assert sum("TP203" in ask for ask in before) >= 30
    standing["TP203"] = 2
    assert not any("TP203" in ask for ask in asked(LossScreen(Thresholds(), standing), x))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("screen", [LossScreen, NormScreen])
def test_what_lies_in_the_band_has_nothing_to_say(
    screen: type[LossScreen | NormScreen], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Levels that jump, spikes, zeros and repeats: the same is asked where every record is looked at."""
    random = np.random.default_rng(seed)
    x = np.repeat(random.lognormal(0, 0.7, 30), 100) * random.lognormal(0, 0.1, 3000) * 3.0
    x[random.random(3000) < 0.02] *= 10
    x[random.random(3000) < 0.02] = 0
    x[1500:1600] = np.repeat(x[1500:1525], 4)
    thresholds = Thresholds() if screen is LossScreen else GradientThresholds()
    with_band = asked(screen(thresholds, {}), x.tolist())  # type: ignore[arg-type]
    monkeypatch.setattr(Band, "move", lambda *_: None)
    assert asked(screen(thresholds, {}), x.tolist()) == with_band  # type: ignore[arg-type]
    assert sum(map(bool, with_band)) > 20
