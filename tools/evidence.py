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
from trainproof.verdict import SEVERITY_RANK, Finding, RunReport, Severity

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
#: the same for runs that are not compared with the fine-tunes
LOOPS = {
    "experts": ("PASS", "healthy mixture of experts"),
    "experts_collapsed": ("FAIL", "no load-balancing loss"),
    "adversaries": ("PASS", "healthy adversaries"),
    "adversaries_lost": ("WARN", "the generator does not learn: the discriminator wins"),
    "adversaries_minimax": ("PASS", "healthy adversaries with the loss of the first paper"),
    "adversaries_minimax_lost": ("FAIL", "the same; the generator does not learn, and both losses vanish"),
    "critics": ("PASS", "healthy Wasserstein game"),
    "critics_clipped": ("FAIL", "the critic's weights are clipped to 0.001: neither side has anything to follow"),
    "density": ("PASS", "healthy fit of a density: a loss below 0"),
    "halves": ("PASS", "healthy half precision with a loss scaler"),
    "halves_without_epsilon": (
        "FAIL",
        "the root of 0 has no gradient: every step is skipped, and the loss scale falls to nothing",
    ),
    "losses_kept": ("PASS", "healthy loop that keeps its losses as numbers"),
    "graphs_kept": ("WARN", "the sum of the losses keeps the graph of every step"),
    "timed": ("PASS", "healthy loop that logs its times"),
    "data_searched": ("WARN", "the loader reads its file from the beginning for each batch"),
    "hooks_kept": ("FAIL", "the hooks of every step stay"),
    "evaluated_each_step": ("WARN", "from the middle on 32 batches are evaluated after each step"),
    "evaluated_at_length": ("FAIL", "from the middle on 128 batches are evaluated after each step"),
    "course": ("PASS", "healthy plain loop"),
    "warmup_in_epochs": ("FAIL", "the scheduler is stepped once an epoch"),
    "scheduler_four_times": ("FAIL", "the scheduler is stepped four times a step"),
    "poisoned_shard": ("WARN", "ten batches of random bytes"),
    "one_hot_step": ("FAIL", "one step at a thousand times the rate"),
    "in_order": ("PASS", "healthy, the data in one order in every epoch"),
    "another_optimizer": ("FAIL", "the same; the optimizer holds the weights of a copy"),
    "resumed": ("PASS", "healthy: a crash and a clean resume"),
    "resumed_without_weights": ("FAIL", "a resume with new weights"),
    "resumed_without_optimizer": ("WARN", "a resume with a new optimizer"),
    "resumed_without_scheduler": ("FAIL", "a resume with a new scheduler"),
    "resumed_without_sampler": ("FAIL", "a resume that reads the data from the beginning"),
    "restart_loop": ("FAIL", "five restarts that die at the same step"),
    "lengths_mixed": ("PASS", "healthy: batches of three kinds in random order"),
    "lengths_in_stretches": ("WARN", "batches of one kind twelve times in a row"),
    "squares": ("PASS", "healthy descent of a sum of squares"),
    "squares_settled": ("WARN", "the same at thirty times the rate: all is learned after a tenth of the steps"),
    "squares_warm": ("FAIL", "a rate just above the stable one"),
    "squares_hot": ("FAIL", "a rate far above it"),
    "squares_left_blank": ("FAIL", "the same, by a logger that leaves out what is not finite"),
    "seen_once": ("PASS", "healthy: a table that meets each context once"),
    "seen_again": ("WARN", "the same, five times over a fifth of the contexts: learned by heart"),
    "next_byte": ("PASS", "healthy plain loop with evaluations"),
    "few_contexts": ("FAIL", "the same on 512 contexts"),
    "units_killed": ("FAIL", "one step in the middle at a thousand times the rate"),
    "stock": ("PASS", "healthy, from scratch"),
    "batch_of_one": ("PASS", "healthy: one sequence a batch"),
    "warmup_stable_decay": ("PASS", "healthy: a constant rate with a decay at the end"),
    "curriculum": ("PASS", "healthy: texts that repeat themselves come first"),
    "epochs": ("PASS", "healthy: four epochs"),
    "eval_leaked": ("WARN", "the evaluation texts are among the training texts"),
    "warmup_ignored": ("WARN", "a schedule that has no warm-up, though one is declared"),
    "accumulation": ("PASS", "healthy: four micro-batches a step"),
    "accumulation_summed": ("FAIL", "a loss that is not divided by the number of micro-batches"),
    "all_masked": ("FAIL", "every label masked: the logger's filter writes 0"),
    "dpo": ("PASS", "healthy preference training"),
    "dpo_hot": ("FAIL", "a hundred times the rate: the wrong answers are preferred"),
    "grpo": ("PASS", "healthy group-relative training"),
    "grpo_without_kl": ("PASS", "healthy: no reference, so that the loss says little"),
    "grpo_loss_of_zero": ("PASS", "healthy: advantages that sum to 0, so that the loss is 0 while the reward rises"),
    "grpo_hot": ("FAIL", "a hundred times the rate"),
    "grpo_other_end": ("FAIL", "an end token that the model never writes"),
    "preferences": ("PASS", "healthy preference training"),
    "preferences_other_reference": ("FAIL", "the reference is another model than the start of the policy"),
    "rewards": ("PASS", "healthy group-relative policy"),
    "rewards_hot": ("WARN", "forty times the rate: the answers stand still half right"),
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


def evidence_of_rules(judged: list[Judged]) -> str:
    """What each rule's page says of the gallery, as JSON: code -> the run that shows it best, and what was said of healthy runs."""
    found: dict[str, dict[str, object]] = {}
    healthy = [j.report for j in judged if DESERVED[j.run][0] == "PASS"]
    for code, rule in own_rules().items():
        if rule.family in APART:
            continue
        told = [(j, f) for j in judged for f in _all_findings(j.report) if f.rule == code]
        silent = sum(code in report.checked and code not in _flagged(report) for report in healthy)
        found[code] = {"silent": silent, "of": sum(code in report.checked for report in healthy), "shown": []}
        if told:
            best = min(told, key=lambda pair: SEVERITY_RANK[pair[1].severity])[0].run
            found[code]["shown"] = [_shown(best, [(j.seed, f) for j, f in told if j.run == best])]
            found[code]["others"] = [run for run in dict.fromkeys(j.run for j, _ in told) if run != best]
    return json.dumps(found, indent=1, sort_keys=True) + "\n"


def _shown(run: str, told: list[tuple[int, Finding]]) -> dict[str, object]:
    """A run, what is wrong with it, in which seeds a rule spoke, and what it said of the first."""
    finding = told[0][1]
    return {
        "run": run,
        "fault": DESERVED[run][1],
        "seeds": {str(seed): f.severity.value for seed, f in told},
        "said": finding.message,
        "cited": [
            f"{e.metric}  step {e.step}  {e.value if isinstance(e.value, str) else f'{e.value:.6g}'}"
            for e in finding.evidence[:4]
        ],
    }


def evidence_matrix(gallery: Path, judged: list[Judged]) -> str:
    """The page, as Markdown."""
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
    return "\n".join([*lines, *_caught(judged), *_evidence(judged), *_compared(gallery)]) + "\n"


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


def _flagged(report: RunReport) -> set[str]:
    """The rules that warn or fail, folded findings too."""
    return {f.rule for f in _all_findings(report) if f.severity is not Severity.INFO}


def _caught(judged: list[Judged]) -> Iterator[str]:
    """Which rules flag each faulty run, alone or together; which fault none flags; what is said of healthy runs."""
    yield from ("", "## Which rule alone catches each fault", "")
    yield "Rules that warn or fail, folded findings included. `alone`: no other does, for that seed."
    yield from ("", "| run | alone, in seeds | in every seed | in some seeds |", "|---|---|---|---|")
    missed = []
    for run, (deserved, fault) in DESERVED.items():
        seeds = [(j.seed, _flagged(j.report)) for j in judged if j.run == run]
        if deserved == "PASS" or not seeds:
            continue
        alone = {rule: [str(seed) for seed, rules in seeds if rules == {rule}] for _, rules in seeds for rule in rules}
        told = "; ".join(f"{rule} ({', '.join(of)})" for rule, of in sorted(alone.items()) if of)
        every = set.intersection(*(rules for _, rules in seeds))
        some = set.union(*(rules for _, rules in seeds)) - every
        yield f"| {run} | {told or '-'} | {', '.join(sorted(every)) or '-'} | {', '.join(sorted(some)) or '-'} |"
        missed += [f"- {run}, seed {seed}: {fault}" for seed, rules in seeds if not rules]
    yield from ("", "## Faults that no rule catches", "", *(missed or ["None."]))
    yield from ("", "## Verdicts that are not deserved", "")
    yield "A healthy run that warns, or a fault that gets another verdict than it deserves."
    other = [
        f"- {j.run}, seed {j.seed}: {j.report.verdict.value} instead of {DESERVED[j.run][0]} ({_told(j.report)})"
        for j in judged
        if j.report.verdict.value != DESERVED[j.run][0]
    ]
    yield from ("", *(other or ["None."]))


def _evidence(judged: list[Judged]) -> Iterator[str]:
    """The rules that may FAIL: where they do, and on how many healthy runs they ran without a word."""
    yield from ("", "## Rules that may FAIL", "")
    yield "Runs that each fails (in how many seeds), and the healthy runs on which it ran and neither warned nor failed."
    yield "A rule without a run here is shown at work by made logs in `tests/rules` alone."
    yield from ("", "| rule | fails | silent on healthy runs |", "|---|---|---|")
    healthy = [j.report for j in judged if DESERVED[j.run][0] == "PASS"]
    for code, rule in own_rules().items():
        if rule.severity is not Severity.FAIL or rule.family in APART:
            continue
        fails = [j.run for j in judged if _mark(code, j.report) == "F"]
        told = ", ".join(f"{run} ({fails.count(run)})" for run in dict.fromkeys(fails))
        silent = sum(code in report.checked and code not in _flagged(report) for report in healthy)
        yield f"| [{code}]({rule.page}) {rule.name} | {told or '-'} | {silent} |"
