"""What `make calibrate` measures, with fewer seeds: healthy runs are silent, faults are caught."""

from __future__ import annotations

import pytest

from tools import synthetic
from tools.calibrate import FAULTS, HEALTHY, Cell, measure
from trainproof.judge import judge_run
from trainproof.verdict import Verdict

SEEDS = 5


def _name(cell: Cell) -> str:
    return f"{cell.kind}-{cell.n}-{cell.sigma}"


@pytest.mark.parametrize("cell", [cell for cell in HEALTHY if cell.n <= 1500], ids=_name)
def test_healthy_runs_neither_fail_nor_warn(cell: Cell) -> None:
    outcome = measure(cell._replace(seeds=SEEDS))
    assert outcome.verdicts == {"PASS": SEEDS}


@pytest.mark.parametrize("kind", ["heavy_tailed", "quantised", "bucketed", "multi_epoch"])
@pytest.mark.parametrize("sigma", [0.05, 0.2])
def test_other_healthy_runs_do_not_fail_either(kind: str, sigma: float) -> None:
    for seed in range(SEEDS):
        columns = getattr(synthetic, kind)(600, sigma, seed)
        for frame in (synthetic.as_frame(columns), synthetic.as_resumed(columns)):
            assert judge_run(frame).verdict is Verdict.PASS


def test_a_falling_loss_in_bfloat16_is_no_plateau() -> None:
    for seed in (1000, 1001):
        assert judge_run(synthetic.as_frame(synthetic.quantised(1500, 0.05, seed))).verdict is Verdict.PASS


@pytest.mark.parametrize("seed", [21, 25, 37, 49])
def test_outliers_of_heavy_tails_that_meet_by_chance_are_no_spike(seed: int) -> None:
    assert judge_run(synthetic.frame_of("heavy_tailed", 1500, 0.2, seed)).verdict is Verdict.PASS


@pytest.mark.parametrize("cell", [cell for cell in FAULTS if cell.n <= 600], ids=_name)
def test_faults_are_caught(cell: Cell) -> None:
    outcome = measure(cell._replace(seeds=SEEDS))
    assert outcome.flagged() == SEEDS, outcome.rules


@pytest.mark.parametrize("kind", ["late_divergence", "nan_loss", "zero_collapse"])
def test_runs_that_are_lost_fail(kind: str) -> None:
    assert measure(Cell(kind, 600, 0.1, SEEDS)).verdicts == {"FAIL": SEEDS}
