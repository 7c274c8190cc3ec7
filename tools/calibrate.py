"""Measure false alarms and detection on synthetic runs with fixed seeds, and write the tables into docs/calibration.md.

python -m tools.calibrate            # print the tables
python -m tools.calibrate --write    # and write them
"""

from __future__ import annotations

import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tools import synthetic
from trainproof.judge import judge_run
from trainproof.verdict import Severity

PAGE = Path(__file__).resolve().parent.parent / "docs" / "calibration.md"
SEEDS = 200
LENGTHS = (100, 200, 600, 1500, 5000)
NOISE = (0.05, 0.1, 0.2, 0.33, 0.5)


class Cell(NamedTuple):
    """One kind of run at one length and noise."""

    kind: str
    n: int
    sigma: float
    seeds: int = SEEDS


class Outcome(NamedTuple):
    """How many of the cell's runs got each verdict, and which rules warned or failed."""

    verdicts: Counter[str]
    rules: Counter[str]

    def flagged(self) -> int:
        return self.verdicts["WARN"] + self.verdicts["FAIL"]


FAULTS = (
    *(Cell("drift", n, 0.1) for n in (600, 1500, 5000)),
    *(
        Cell(kind, n, sigma)
        for kind in ("late_divergence", "spike_and_recover", "nan_loss", "zero_collapse", "eval_rise")
        for n in (200, 600, 1500)
        for sigma in (0.05, 0.1, 0.2)
    ),
    *(Cell("plateau", n, 0.01) for n in (300, 600, 1500, 5000)),
)
HEALTHY = tuple(Cell("healthy", n, sigma) for sigma in NOISE for n in LENGTHS)
#: healthy too, with noise of other kinds: 3,000 runs
ODD = tuple(
    Cell(kind, n, sigma, 100)
    for kind in ("heavy_tailed", "quantised", "bucketed", "multi_epoch", "resumed")
    for sigma in (0.05, 0.2)
    for n in (200, 600, 1500)
)


def measure(cell: Cell) -> Outcome:
    """Judge the cell's runs, one a seed, by all rules at their defaults."""
    verdicts: Counter[str] = Counter()
    rules: Counter[str] = Counter()
    for seed in range(cell.seeds):
        run = judge_run(synthetic.frame_of(cell.kind, cell.n, cell.sigma, seed))
        verdicts[run.verdict.value] += 1
        rules.update({f.rule for f in run.findings if f.severity is not Severity.INFO})
    return Outcome(verdicts, rules)


def measure_all(cells: tuple[Cell, ...]) -> list[Outcome]:
    with ProcessPoolExecutor() as pool:
        return list(pool.map(measure, cells, chunksize=1))


def healthy_table(cells: tuple[Cell, ...], outcomes: list[Outcome]) -> list[str]:
    lines = ["| kind | sigma | records | runs | FAIL | WARN | SKIP | rules that fired |", "|---" * 8 + "|"]
    for cell, seen in zip(cells, outcomes, strict=True):
        v = seen.verdicts
        lines.append(
            f"| {cell.kind} | {cell.sigma} | {cell.n} | {cell.seeds} | {v['FAIL']} | {v['WARN']} | {v['SKIP']} | {_rules(seen)} |"
        )
    return lines


def fault_table(cells: tuple[Cell, ...], outcomes: list[Outcome]) -> list[str]:
    lines = ["| fault | sigma | records | runs | caught | FAIL | rules that fired |", "|---|---|---|---|---|---|---|"]
    for cell, seen in zip(cells, outcomes, strict=True):
        caught = f"{seen.flagged() / cell.seeds:.1%}"
        lines.append(
            f"| {cell.kind} | {cell.sigma} | {cell.n} | {cell.seeds} | {caught} | {seen.verdicts['FAIL']} | {_rules(seen)} |"
        )
    return lines


def _rules(seen: Outcome) -> str:
    return ", ".join(f"{rule} {count}" for rule, count in sorted(seen.rules.items())) or "none"


def page() -> str:
    healthy = healthy_table(HEALTHY, measure_all(HEALTHY))
    odd = healthy_table(ODD, measure_all(ODD))
    faults = fault_table(FAULTS, measure_all(FAULTS))
    return "\n".join(
        [
            "# Calibration",
            "",
            "Made by `make calibrate`: synthetic runs with fixed seeds (`tools/synthetic.py`), judged by all rules at their defaults.",
            "",
            "## False alarms on healthy runs",
            "",
            "Loss `(1.15 + 0.65 exp(-i / (n / 5))) x lognormal(0, sigma)`, linear learning rate with 5 % warm-up, gradient norm with",
            "log-normal noise 0.3, 20 evaluations. The limits: 0 FAIL, under 1 % WARN.",
            "",
            *healthy,
            "",
            "The same curve with other noise: the exponential of a Student t of 3 degrees of freedom, losses rounded to bfloat16, batches of one",
            "of three lengths, four epochs in the log, and a clean resume in the middle. The limits are the same.",
            "",
            *odd,
            "",
            "## Detection",
            "",
            "Caught means WARN or FAIL. The limit: 95 % of the seeds.",
            "",
            *faults,
            "",
        ]
    )


if __name__ == "__main__":
    text = page()
    print(text)
    if "--write" in sys.argv[1:]:
        PAGE.write_text(text)
