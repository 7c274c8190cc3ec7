"""What `make calibrate` measures, with fewer seeds: healthy runs are silent, faults are caught."""

from __future__ import annotations

import pytest

from tools.calibrate import FAULTS, HEALTHY, Cell, measure

SEEDS = 5


def _name(cell: Cell) -> str:
    return f"{cell.kind}-{cell.n}-{cell.sigma}"


@pytest.mark.parametrize("cell", [cell for cell in HEALTHY if cell.n <= 1500], ids=_name)
def test_healthy_runs_neither_fail_nor_warn(cell: Cell) -> None:
    outcome = measure(cell._replace(seeds=SEEDS))
    assert outcome.verdicts == {"PASS": SEEDS}


@pytest.mark.parametrize("cell", [cell for cell in FAULTS if cell.n <= 600], ids=_name)
def test_faults_are_caught(cell: Cell) -> None:
    outcome = measure(cell._replace(seeds=SEEDS))
    assert outcome.flagged() == SEEDS, outcome.rules


@pytest.mark.parametrize("kind", ["late_divergence", "nan_loss", "zero_collapse"])
def test_runs_that_are_lost_fail(kind: str) -> None:
    assert measure(Cell(kind, 600, 0.1, SEEDS)).verdicts == {"FAIL": SEEDS}
