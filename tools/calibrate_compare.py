"""Measure false alarms and power of comparisons on synthetic runs with fixed seeds, and write docs/comparison.md.

python -m tools.calibrate_compare            # print the tables
python -m tools.calibrate_compare --write    # and write them
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tools import synthetic
from trainproof.comparing.compare import Baseline, baseline_of, compare_run
from trainproof.comparing.reference import LogReference
from trainproof.frame import Frame
from trainproof.judge import DEFAULTS, Settings, judge_run
from trainproof.verdict import Finding, Severity, Verdict

PAGE = Path(__file__).resolve().parent.parent / "docs" / "comparison.md"
NOISE = (0.05, 0.1, 0.2, 0.33, 0.5)
LENGTHS = (200, 600, 2000)
POWER_LENGTHS = (200, 2000)
BASELINES = (1, 3, 5)
WORSE = (0.02, 0.05, 0.10)
#: what seeds alone do to the level of a run: nothing but noise, half a percent, two percent (standard deviations)
SPREADS = (0.0, 0.005, 0.02)
#: pairs of the false-alarm test (spread over NOISE and LENGTHS), and runs in a cell of the other tables
PAIRS, RUNS = 510, 40
#: the comparison rules alone: power is theirs, and the single-run rules have a page of their own
COMPARED = Settings(("TP97", "TP98"))


class Cell(NamedTuple):
    """Runs of n records with log-normal noise sigma and a seed spread tau, worse by a factor, beside k baselines."""

    n: int
    sigma: float
    k: int
    worse: float = 0.0
    tau: float = 0.0
    runs: int = RUNS
    whole: bool = False  # by all rules, on the run and on the baselines
    evaluated: bool = True


class Outcome(NamedTuple):
    verdicts: Counter[str]
    rules: Counter[str]

    def share(self, *verdicts: str) -> float:
        return sum(self.verdicts[verdict] for verdict in verdicts) / self.verdicts.total()


def run_of(cell: Cell, seed: int, worse: float) -> Frame:
    """A healthy run, its loss and its evaluations at a level of its own, worse by a factor."""
    columns = synthetic.healthy(cell.n, cell.sigma, seed)
    level = (1 + worse) * float(np.exp(cell.tau * np.random.default_rng([seed, 11]).normal()))
    columns["loss"] *= level
    columns["eval/loss"] *= level
    if not cell.evaluated:
        del columns["eval/loss"]
    return synthetic.as_frame(columns)


def measure(cell: Cell) -> Outcome:
    """The verdicts of the cell's runs, and which rules warned or failed."""
    verdicts: Counter[str] = Counter()
    rules: Counter[str] = Counter()
    for seed in range(cell.runs):
        others = [run_of(cell, 10_000 + 10 * seed + i, 0.0) for i in range(cell.k)]
        baselines = [_baseline(frame, f"seed {i}", cell.whole) for i, frame in enumerate(others)]
        run = compare_run(run_of(cell, seed, cell.worse), baselines, DEFAULTS if cell.whole else COMPARED)
        verdicts[run.verdict.value] += 1
        rules.update({f.rule for f in _all(run.findings) if f.severity is not Severity.INFO})
    return Outcome(verdicts, rules)


def _baseline(frame: Frame, label: str, judged: bool) -> Baseline:
    if judged:
        return baseline_of(frame, label, judge_run(frame), {})
    return Baseline(LogReference(label, frame), Verdict.PASS, frame.records, None, {})


def _all(findings: tuple[Finding, ...]) -> Iterator[Finding]:
    for finding in findings:
        yield finding
        yield from finding.related


def measure_all(cells: list[Cell]) -> list[Outcome]:
    with ProcessPoolExecutor() as pool:
        return list(pool.map(measure, cells, chunksize=1))


def false_alarms() -> list[str]:
    each = PAIRS // (len(NOISE) * len(LENGTHS))
    cells = [Cell(n, sigma, 1, runs=each, whole=True) for sigma in NOISE for n in LENGTHS]
    lines = ["| sigma | records | pairs | FAIL | WARN | SKIP | rules that fired |", "|---|---|---|---|---|---|---|"]
    total: Counter[str] = Counter()
    for cell, seen in zip(cells, measure_all(cells), strict=True):
        total += seen.verdicts
        v = seen.verdicts
        lines.append(
            f"| {cell.sigma} | {cell.n} | {cell.runs} | {v['FAIL']} | {v['WARN']} | {v['SKIP']} | {_rules(seen)} |"
        )
    lines += [
        "",
        f"Together: {total.total()} pairs, {total['FAIL']} FAIL, {total['WARN']} WARN ({total['WARN'] / total.total():.1%}).",
    ]
    return lines


def spreads() -> list[str]:
    cells = [Cell(600, 0.1, k, tau=tau, runs=4 * RUNS) for tau in SPREADS for k in BASELINES]
    lines = ["| spread of seeds | baselines | runs | FAIL | WARN | rules that fired |", "|---|---|---|---|---|---|"]
    for cell, seen in zip(cells, measure_all(cells), strict=True):
        v = seen.verdicts
        lines.append(f"| {cell.tau:.1%} | {cell.k} | {cell.runs} | {v['FAIL']} | {v['WARN']} | {_rules(seen)} |")
    return lines


def power(lengths: tuple[int, ...] = POWER_LENGTHS, evaluated: bool = True) -> list[str]:
    keys = [(worse, sigma, n) for worse in WORSE for sigma in NOISE for n in lengths]
    cells = [Cell(n, sigma, k, worse, evaluated=evaluated) for worse, sigma, n in keys for k in BASELINES]
    seen = iter(measure_all(cells))
    lines = [
        f"| worse by | sigma | records | {' | '.join(f'{k} baseline' + 's' * (k > 1) for k in BASELINES)} |",
        "|---|---|---|" + "---|" * len(BASELINES),
    ]
    for worse, sigma, n in keys:
        rates = [f"{o.share('WARN', 'FAIL'):.0%} ({o.share('FAIL'):.0%})" for o in (next(seen) for _ in BASELINES)]
        lines.append(f"| {worse:+.0%} | {sigma} | {n} | {' | '.join(rates)} |")
    return lines


def _rules(seen: Outcome) -> str:
    return ", ".join(f"{rule} {count}" for rule, count in sorted(seen.rules.items())) or "none"


def page() -> str:
    return "\n".join(
        [
            "# What a comparison can see",
            "",
            "Made by `make calibrate`: synthetic runs with fixed seeds (`tools/synthetic.py`): loss `(1.15 + 0.65 exp(-i / (n / 5)))`",
            "times log-normal noise of the given sigma a record, 20 evaluations with a twentieth of it, everything at its default.",
            "",
            "## False alarms: pairs that differ in the seed only",
            "",
            "Judged by all rules, the run and the baseline. The limits: 0 FAIL, at most 1 % WARN.",
            "",
            *false_alarms(),
            "",
            "## False alarms when seeds move the level",
            "",
            "Runs of 600 records, sigma 0.1, whose levels also differ by a log-normal factor of their own. One baseline cannot know such a",
            "spread; several can, and the limit moves with it.",
            "",
            *spreads(),
            "",
            "## Power: runs that are worse from the first record on",
            "",
            "How often a run whose loss and evaluations are worse by a factor is told (WARN or FAIL; in brackets FAIL), by the number of",
            "baselines. Seeds differ by noise only. What noise hides is not told, and the report says how much that is. Most of the power comes",
            "from the evaluations, whose noise is a twentieth of a record's.",
            "",
            *power(),
            "",
            "The same without evaluations, by the training loss alone:",
            "",
            *power(POWER_LENGTHS[1:], evaluated=False),
            "",
        ]
    )


if __name__ == "__main__":
    text = page()
    print(text)
    if "--write" in sys.argv[1:]:
        PAGE.write_text(text, encoding="utf-8")
