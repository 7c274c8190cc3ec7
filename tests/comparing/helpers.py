"""Runs made by hand or from a seed, and their comparison by the comparison rules alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tests.rules.helpers import make_frame
from tools import synthetic
from trainproof.comparing.compare import Baseline, compare_run
from trainproof.comparing.reference import Curve, LogReference
from trainproof.facts import FactValue
from trainproof.frame import Floats, Frame
from trainproof.judge import Settings
from trainproof.verdict import Finding, RunReport, Severity, Verdict

#: the comparison rules alone
COMPARED = Settings(("TP97", "TP98"))


def noise(n: int, seed: int, sigma: float = 0.02) -> Floats:
    return np.random.default_rng(seed).lognormal(0, sigma, n)


def falling(n: int = 200, seed: int = 0, *, sigma: float = 0.02, times: float = 1.0) -> Floats:
    """A healthy loss of n records: the synthetic curve with its own noise."""
    return times * synthetic.curve(n) * noise(n, seed, sigma)


def run_of(seed: int = 0, n: int = 200, sigma: float = 0.02, times: float = 1.0, **more: Any) -> Frame:
    """A run with such a loss."""
    return make_frame(loss=falling(n, seed, sigma=sigma, times=times), **more)


def trusted(frame: Frame, label: str = "trusted", settings: Mapping[str, FactValue] | None = None) -> Baseline:
    return Baseline(LogReference(label, frame), Verdict.PASS, frame.records, None, settings or {})


def compared(run: Frame, *baselines: Frame, settings: Settings = COMPARED, align: str | None = None) -> RunReport:
    """The report of the run beside baselines that are taken as they are."""
    found = [trusted(frame, f"baseline {i}") for i, frame in enumerate(baselines, 1)]
    return compare_run(run, found, settings, align=align)


def findings(report: RunReport) -> dict[str, Finding]:
    """Every finding, related ones too, by its rule."""
    return {f.rule: f for finding in report.findings for f in (finding, *finding.related)}


def severities(report: RunReport) -> dict[str, Severity]:
    """Rule -> severity of what moves the verdict."""
    return {code: f.severity for code, f in findings(report).items() if f.severity is not Severity.INFO}


def curve(values: Sequence[float] | Floats, steps: Sequence[int] | None = None) -> Curve:
    """A curve at the steps 1, 2, ..., or at given ones."""
    step = np.asarray(steps if steps is not None else range(1, len(values) + 1), np.int64)
    return Curve(step.astype(np.float64), np.asarray(values, np.float64), step, step)
