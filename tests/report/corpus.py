"""Reports made by hand for the tests of renderers: ordinary ones, and every ugly one that we could think of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from trainproof.frame import Floats, Frame, Series
from trainproof.panels import panels_of
from trainproof.verdict import (
    SCHEMA_VERSION,
    DroppedLine,
    Evidence,
    Finding,
    Report,
    RunReport,
    SegmentReport,
    Severity,
    Verdict,
    fold_severities,
    fold_verdicts,
    number,
)

#: metric name -> values at the steps 1, 2, ...
Columns = Mapping[str, Sequence[float] | Floats]

HOSTILE = "<script>alert(1)</script>\"'&\x1b[31mred\x1b]0;t\x07\r\n\u202egnp.exe\u2028\ud800\x9b1m{{ 7*7 }}"


def finding(severity: Severity = Severity.FAIL, code: str = "TP203", **changed: object) -> Finding:
    fields: dict[str, object] = {
        "rule": code,
        "name": "loss-diverged",
        "severity": severity,
        "message": "the loss rose from its best level 1.52 at step 60 to 4.283 at step 100 and has not come back.",
        "first_step": 60,
        "last_step": 100,
        "flagged_step": 74,
        "evidence": (Evidence("loss", 60, 1.5182, 60), Evidence("loss", 100, 4.28251, 100)),
        "threshold": {"ratio": 1.5, "regained": 0.25},
        "fix": "Lower the learning rate, or start again from the checkpoint before step 60.",
        "page": f"rules/{code}.md",
    }
    return Finding(**{**fields, **changed})  # type: ignore[arg-type]  # the fields that a test changes


def frame(columns: Columns) -> Frame:
    """A frame with the steps 1, 2, ..."""
    series = {}
    for name, values in columns.items():
        steps = np.arange(1, len(values) + 1)
        series[name] = Series(name, steps, np.array(values, np.float64), steps)
    return Frame(series)


def run(columns: Columns, findings: Sequence[Finding] = (), **changed: object) -> RunReport:
    """The report on a run with these curves and findings."""
    curves = frame(columns)
    fields: dict[str, object] = {
        "source": "trainer_state.json",
        "format": "hf",
        "name": None,
        "verdict": fold_severities(f.severity for f in findings),
        "reason": None,
        "objective": "lm",
        "records": curves.records,
        "first_step": curves.first_step,
        "last_step": curves.last_step,
        "segments": (SegmentReport(1, curves.last_step or 1, "start"),),
        "facts": {"total_steps": 100, "schedule": "linear"},
        "dropped": 0,
        "dropped_lines": (),
        "masked": (),
        "overrides": {},
        "findings": tuple(findings),
        "checked": ("TP101", "TP201", "TP203"),
        "skipped": {
            "TP501": "no eval/loss in the log",
            "TP502": "no eval/loss in the log",
            "TP106": "no loss_scale in the log",
        },
        "panels": panels_of(curves, findings),
    }
    return RunReport(**{**fields, **changed})  # type: ignore[arg-type]  # the fields that a test changes


def report(*runs: RunReport) -> Report:
    return Report(SCHEMA_VERSION, "0.1.0", "epoch", fold_verdicts(r.verdict for r in runs), runs)


def falling(n: int = 100, seed: int = 0) -> Floats:
    """A healthy loss of n records, rounded so that goldens hold on any processor."""
    noise = np.random.default_rng(seed).normal(0, 0.03, n)
    return np.round((1.2 + 2.5 * np.exp(-np.arange(n) / (n / 6))) * np.exp(noise), 4)


def diverging() -> Floats:
    """A loss of 100 records that leaves its best level at step 60."""
    loss = falling()
    loss[60:] += np.linspace(0.3, 2.9, 40)
    return np.round(loss, 4)


def healthy() -> Report:
    loss = falling()
    lr = np.linspace(5e-5, 5e-7, 100)
    return report(run({"loss": loss, "lr": lr, "grad_norm": loss / 2}))


def diverged() -> Report:
    loss = diverging()
    gradient = np.round(np.where(np.arange(100) < 55, 0.8, 9.0) + np.random.default_rng(1).normal(0, 0.2, 100), 4)
    related = finding(
        Severity.WARN,
        "TP401",
        name="grad-explosion",
        message="grad_norm 9.5 at step 56 is 12 times its median.",
        first_step=56,
        evidence=(Evidence("grad_norm", 56, float(gradient[55]), 56),),
    )
    chief = finding(
        related=(related,),
        evidence=(Evidence("loss", 60, float(loss[59]), 60), Evidence("loss", 100, float(loss[99]), 100)),
    )
    told = finding(
        Severity.INFO, "TP003", name="step-overlap", message="steps 40 to 42 were logged twice; the later ones count."
    )
    lr = np.linspace(5e-5, 5e-7, 100)
    return report(
        run(
            {"loss": loss, "lr": lr, "grad_norm": gradient, "eval/loss": loss[:5] + 0.1},
            [chief, told],
            segments=(SegmentReport(1, 42, "start"), SegmentReport(43, 100, "resume at step 43")),
            dropped=2,
            dropped_lines=(DroppedLine(17, "not a JSON object"), DroppedLine(18, "cut off")),
            masked=("loss",),
            overrides={"loss.diverged_ratio": 1.5},
        )
    )


def dead() -> Report:
    loss = falling()
    loss[70:] = np.nan
    seen = finding(
        code="TP101",
        name="nonfinite-loss",
        message="loss is NaN from step 71 on, in 30 of 100 records.",
        first_step=71,
        evidence=(Evidence("loss", 71, "NaN", 71), Evidence("loss", 70, float(loss[69]), 70)),
        threshold={"share": 0.001},
    )
    return report(run({"loss": loss, "lr": np.full(100, 3e-4)}, [seen]))


def several() -> Report:
    unread = run({}, source="notes.jsonl", verdict=Verdict.SKIP, reason="the log has no numeric records", checked=())
    warned = run({"loss": falling()}, [finding(Severity.WARN)], source="runs/c/log.csv", format="csv", name="c")
    return report(
        run({"loss": falling()}, source="runs/a.json"), diverged().runs[0], warned, unread, run({"loss": falling()})
    )


def hostile() -> Report:
    seen = finding(
        message=HOSTILE,
        fix=HOSTILE,
        evidence=(Evidence(HOSTILE, 3, number(2.0), 3), Evidence("x" * 5000, 3, "NaN", 3)),
        threshold={HOSTILE: 1.0},
        related=(finding(Severity.WARN, message=HOSTILE),),
    )
    told = finding(Severity.INFO, message=HOSTILE)
    one = run(
        {HOSTILE: falling(50)},
        [seen, told],
        source=HOSTILE,
        name=HOSTILE,
        format=HOSTILE,
        reason=HOSTILE,
        segments=(SegmentReport(1, 3, HOSTILE), SegmentReport(4, 50, HOSTILE)),
        facts={HOSTILE: HOSTILE},
        dropped=1,
        dropped_lines=(DroppedLine(1, HOSTILE),),
        masked=(HOSTILE,),
        overrides={HOSTILE: 1.0},
        skipped={"TP501": HOSTILE},
    )
    return report(one, one)


def crowded() -> Report:
    """200 findings on one run."""
    findings = []
    for i in range(200):
        severity = Severity.FAIL if i % 3 == 0 else Severity.WARN
        findings.append(
            finding(
                severity,
                first_step=1 + 2 * i,
                last_step=1 + 2 * i + i % 40,
                evidence=(Evidence("loss", 1 + 2 * i, 1.0, 1),),
            )
        )
    return report(run({"loss": falling(500)}, findings))


def one_record() -> Report:
    return report(run({"loss": [2.5], "lr": [1e-3]}, [finding(first_step=1, last_step=1, flagged_step=1)]))


def all_nan() -> Report:
    return report(run({"loss": [float("nan")] * 40, "lr": [float("inf")] * 40}, [finding(first_step=1, last_step=40)]))


def constant() -> Report:
    return report(run({"loss": [0.0] * 40, "lr": [1e-5] * 40, "grad_norm": [-3.0] * 40}))


def huge() -> Report:
    return report(
        run(
            {
                "loss": [2.0, 3.0, 1e300, 4.0, -1e300] * 20,
                "grad_norm": [1.0, 1e-300, 1e300, 5e-324, 1.7e308] * 20,
                "lr": [1.7e308, -1.7e308] * 50,
                "reward": [5e-324, 0.0] * 50,
            }
        )
    )


def negative() -> Report:
    return report(run({"loss": -falling(), "grad_norm": np.linspace(-1e-9, 1e-9, 100)}))


def thirty() -> Report:
    runs = []
    for i in range(30):
        findings = [finding()] if i % 10 == 3 else [finding(Severity.WARN)] if i % 10 == 7 else []
        runs.append(
            run(
                {"loss": falling(300, i), "lr": falling(300, i)},
                findings,
                source=f"sweep/run-{i:02}/trainer_state.json",
            )
        )
    return report(*runs)


def long_run() -> Report:
    """100,000 records with findings."""
    n = 100_000
    rng = np.random.default_rng(3)
    loss = np.exp(rng.normal(0, 0.1, n)) * (1.5 + 3 * np.exp(-np.arange(n) / 2e4))
    loss[50_000] = 40.0
    columns = {
        name: loss * np.exp(rng.normal(0, 0.3, n)) for name in ("grad_norm", "step_time", "throughput", "reward", "kl")
    }
    findings = [
        finding(Severity.WARN, first_step=9000 * i, last_step=9000 * i + 400, evidence=(Evidence("loss", 9000 * i, float(loss[9000 * i - 1]), 9000 * i),))
        for i in range(1, 11)
    ]  # fmt: skip
    lr = np.linspace(1e-3, 1e-5, n)
    return report(run({"loss": loss, "eval/loss": loss[:500], "lr": lr, **columns}, findings))


def nothing() -> Report:
    """A log that holds nothing to judge."""
    return report(run({}, verdict=Verdict.SKIP, reason="the log has no numeric records", checked=(), skipped={}))


REPORTS: dict[str, Callable[[], Report]] = {
    one.__name__: one
    for one in (
        healthy,
        diverged,
        dead,
        several,
        hostile,
        crowded,
        one_record,
        all_nan,
        constant,
        huge,
        negative,
        thirty,
        long_run,
        nothing,
    )
}
