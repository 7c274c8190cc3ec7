"""EVIDENCE_MATRIX.md: every rule against every gallery run and seed, from judging them all."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from trainproof.api import compare, judge
from trainproof.rules import own_rules
from trainproof.rules.registry import APART, COMPARISON
from trainproof.verdict import Finding, RunReport, Severity

LOG = "trainer_state.json"
LOOP_LOG = "metrics.jsonl"
#: the gallery run that the others are compared with
TRUSTED = "healthy"
#: what each gallery run deserves, and what is to be said where it gets something else
EXPECTED = {
    "base": ("PASS", "healthy, from scratch"),
    "healthy": ("PASS", "healthy fine-tune"),
    "lr_hot": ("FAIL", "learning rate x100"),
    "lr_zero": ("FAIL", "learning rate 0"),
    "fp16_nan": ("FAIL", "half precision, learning rate x100, no clipping"),
    "nan": ("FAIL", "one batch with all labels masked; the logged loss is NaN from there on"),
    "bad_labels": (
        "WARN",
        "labels shuffled within each sequence: byte frequencies are learned at once and nothing after; one curve shows no more",
    ),
    "overfit": ("WARN", "16 training sequences"),
}
#: the same for runs of plain loops, which are not compared with the fine-tunes
LOOPS = {
    "experts": ("PASS", "healthy mixture of experts"),
    "experts_collapsed": ("FAIL", "no load-balancing loss"),
    "adversaries": ("PASS", "healthy adversaries"),
    "adversaries_lost": ("WARN", "the generator does not learn: the discriminator wins"),
    "losses_kept": ("PASS", "healthy loop that keeps its losses as numbers"),
    "graphs_kept": ("WARN", "the sum of the losses keeps the graph of every step"),
    "preferences": ("PASS", "healthy preference training"),
    "preferences_other_reference": ("FAIL", "the reference is another model than the start of the policy"),
    "rewards": ("PASS", "healthy group-relative policy"),
    "rewards_all_or_nothing": ("FAIL", "a reward that is never earned"),
    "drafter": ("WARN", "asynchronous pipeline; made from the numbers of a post-mortem by `drafter.py`"),
}
DESERVED = {**EXPECTED, **LOOPS}
MARKS = {Severity.FAIL: "F", Severity.WARN: "W", Severity.INFO: "i"}


class Judged(NamedTuple):
    """One gallery log and what was said of it."""

    run: str
    seed: int
    report: RunReport


def judged_gallery(gallery: Path) -> list[Judged]:
    """Every committed gallery log, in the order of DESERVED and of the seeds; the drafter's is made anew."""
    found = []
    with TemporaryDirectory() as made:
        script = gallery / "drafter.py"
        subprocess.run([sys.executable, str(script), str(Path(made) / "drafter")], check=True)
        for run in DESERVED:
            for log, seed in _logs(Path(made) / run if run == "drafter" else gallery / run):
                found.append(Judged(run, seed, judge(log).runs[0]))
    return found


def _logs(run: Path) -> Iterator[tuple[Path, int]]:
    """(log, seed) of each seed of a gallery run."""
    logs = [*run.glob(f"**/{LOG}"), *run.glob(f"**/{LOOP_LOG}")]
    for log in sorted(logs, key=lambda path: (len(path.parts), path)):
        metadata = log.parent / "metadata.json"
        yield log, int(json.loads(metadata.read_text(encoding="utf-8"))["seed"]) if metadata.exists() else 42


def evidence_matrix(gallery: Path) -> str:
    judged = judged_gallery(gallery)
    lines = [
        "# Evidence matrix",
        "",
        "Made by `make write-generated`: every gallery run judged by every rule at its default thresholds.",
        "",
    ]
    lines += [
        "## Verdicts",
        "",
        "| run | what is wrong with it | seed | deserves | verdict | findings |",
        "|---|---|---|---|---|---|",
    ]
    for run, seed, report in judged:
        deserved, fault = DESERVED[run]
        lines.append(f"| {run} | {fault} | {seed} | {deserved} | {report.verdict.value} | {_told(report)} |")
    lines += [
        "",
        "## Rules against runs",
        "",
        "F: FAIL, W: WARN, i: INFO, -: ran and was silent, blank: skipped. One letter a seed, in the order above.",
        "",
    ]
    runs = [run for run in DESERVED if any(j.run == run for j in judged)]
    lines += [f"| rule | {' | '.join(runs)} |", "|---" * (len(runs) + 1) + "|"]
    for code, rule in own_rules().items():
        if rule.family in APART:
            continue
        cells = ["".join(_mark(code, j.report) for j in judged if j.run == run).strip() for run in runs]
        lines.append(f"| [{code}]({rule.page}) {rule.name} | {' | '.join(cells)} |")
    lines += ["", "## Which rule alone catches each run", ""]
    lines += [_alone(run, [j.report for j in judged if j.run == run]) for run in runs]
    return "\n".join([*lines, *_compared(gallery)]) + "\n"


def compared_gallery(gallery: Path) -> list[Judged]:
    """Every fine-tune of the gallery beside the healthy seeds; a healthy one beside the others."""
    trusted = sorted((gallery / TRUSTED).glob(f"**/{LOG}"))
    found = []
    for run in [run for run in EXPECTED if run != "base"]:
        for log, seed in _logs(gallery / run):
            found.append(Judged(run, seed, compare(log, [other for other in trusted if other != log]).runs[0]))
    return found


def _compared(gallery: Path) -> Iterator[str]:
    judged = compared_gallery(gallery)
    runs = list(dict.fromkeys(j.run for j in judged))
    yield from ("", "## Beside the healthy runs", "")
    yield "`trainproof compare` of every fine-tune with the three healthy seeds (a healthy one with the other two): verdicts, then rules."
    yield from ("", f"| rule | {' | '.join(runs)} |", "|---" * (len(runs) + 1) + "|")
    yield f"| verdict | {' | '.join(' '.join(j.report.verdict.value for j in judged if j.run == run) for run in runs)} |"
    for code, rule in own_rules().items():
        if rule.family == COMPARISON:
            cells = ["".join(_mark(code, j.report) for j in judged if j.run == run).strip() for run in runs]
            yield f"| [{code}]({rule.page}) {rule.name} | {' | '.join(cells)} |"


def _all_findings(report: RunReport) -> list[Finding]:
    return [f for finding in report.findings for f in (finding, *finding.related)]


def _told(report: RunReport) -> str:
    found = [
        f"{f.rule} {f.severity.value} from step {f.flagged_step}"
        for f in report.findings
        if f.severity is not Severity.INFO
    ]
    return "; ".join(found) or "none"


def _mark(code: str, report: RunReport) -> str:
    worst = [MARKS[f.severity] for f in _all_findings(report) if f.rule == code]
    for letter in "FWi":
        if letter in worst:
            return letter
    return "-" if code in report.checked else " "


def _alone(run: str, reports: list[RunReport]) -> str:
    """The rules that flag every seed of a run."""
    if not reports:
        return f"- {run}: not trained"
    flagged = [{f.rule for f in _all_findings(r) if f.severity is not Severity.INFO} for r in reports]
    every = sorted(set.intersection(*flagged))
    if not any(flagged):
        return f"- {run}: none; {DESERVED[run][1]}"
    if len(every) == 1:
        return f"- {run}: {every[0]} alone catches every seed"
    return f"- {run}: {', '.join(every) or 'no one rule'} catch{'es' if not every else ''} every seed"
