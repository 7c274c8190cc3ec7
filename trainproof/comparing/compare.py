"""Judge a run by itself and beside its baselines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from trainproof.comparing.axis import Axis, choose_axis
from trainproof.comparing.changes import changes
from trainproof.comparing.comparison import Comparison
from trainproof.comparing.drawing import comparison_panels
from trainproof.comparing.matching import Pairs
from trainproof.comparing.reference import LogReference, Reference, StoredReference
from trainproof.comparing.summary import StoredRun
from trainproof.errors import UsageError
from trainproof.facts import FactValue
from trainproof.frame import Frame, Series
from trainproof.judge import Settings, check_selectors, finding_of, judge_run, matching
from trainproof.rules import all_rules
from trainproof.rules.registry import COMPARISON, CannotTell, Rule, Sighting
from trainproof.verdict import (
    SEVERITY_RANK,
    BaselineReport,
    Compared,
    Figure,
    Finding,
    RunReport,
    Severity,
    Verdict,
    fold_severities,
)

#: comparison rules that say whether the run is worse: without one of them nothing was compared
LEVELS = frozenset({"TP971", "TP972", "TP976", "TP977", "TP978"})
#: comparison rules on the loss, which tell one fault; the first that fired names it
LOSS_RULES = ("TP973", "TP971", "TP972", "TP977", "TP976", "TP975", "TP983", "TP984")
#: finite losses that make a scale
LEAST_SCALE = 5


class Baseline(NamedTuple):
    """A baseline that was read and judged: `refused` says why a run cannot be compared with it."""

    reference: Reference
    verdict: Verdict
    records: int
    refused: str | None
    settings: Mapping[str, FactValue]
    notes: tuple[str, ...] = ()


def baseline_of(frame: Frame, label: str, report: RunReport, settings: Mapping[str, FactValue]) -> Baseline:
    """A judged log as a baseline; one that fails, or that has no scale, is refused."""
    notes = tuple(f"{repair.kind}: {repair.detail}" for repair in frame.repairs)
    bare = frame.replace(series={name: Series(name, s.step, s.value, s.line) for name, s in frame.items()})
    return Baseline(LogReference(label, bare), report.verdict, frame.records, _refusal(frame, report), settings, notes)


def stored_baseline(run: StoredRun, label: str) -> Baseline:
    return Baseline(StoredReference(label, run), Verdict(run.verdict), run.records, None, run.settings)


def _refusal(frame: Frame, report: RunReport) -> str | None:
    """Why no run can be measured by this one."""
    if report.verdict is Verdict.FAIL:
        worst = report.findings[0]
        return f"it fails by itself ({worst.rule} {worst.name}, step {worst.flagged_step})"
    if report.verdict is Verdict.SKIP:
        return f"nothing of it could be judged ({report.reason})"
    losses = [series for name, series in frame.items() if name == "loss" or name.startswith("loss/")]
    scales = [s.finite for s in losses if len(s.finite) >= LEAST_SCALE and not s.finite.constant]
    measured = any(name.startswith(("eval/", "test/")) or name == "reward" for name in frame)
    if losses and not scales:
        return f"it has no usable scale (fewer than {LEAST_SCALE} finite values of the loss, or all the same)"
    return None if scales or measured else "it has no usable scale (neither a loss nor an evaluation)"


def compare_run(
    frame: Frame,
    baselines: Sequence[Baseline],
    settings: Settings,
    *,
    own: RunReport | None = None,
    beside: Mapping[str, FactValue] | None = None,
    align: str | None = None,
) -> RunReport:
    """The report on a run beside its baselines. own: what the single-run rules said, when that is known.

    Raises UsageError when no baseline was given, or when `align` is an axis that one of them lacks.
    """
    if not baselines:
        raise UsageError("nothing to compare with; name a baseline")
    check_selectors(settings)
    own = own or judge_run(frame, settings)
    judged = [_for_objective(one, frame.objective) for one in baselines]
    usable = [one for one in judged if one.refused is None]
    if not usable:
        why = "; ".join(f"{one.reference.label}: {one.refused}" for one in judged)
        compared = _compared(judged, None, [], None)
        return _uncompared(replace(own, compared=compared), f"no baseline can be compared with: {why}")
    axis = choose_axis(LogReference("the run", frame), [one.reference for one in usable], align)
    mine = {**dict(frame.facts), **(beside or {})}
    theirs = [{**dict(one.reference.facts), **one.settings} for one in usable]
    seen = Comparison(frame, [one.reference for one in usable], axis, changes(mine, theirs))
    return _report(own, seen, judged, settings)


def _for_objective(one: Baseline, objective: str) -> Baseline:
    """Refused when the baseline is known to pursue something else."""
    theirs = one.reference.objective
    if one.refused is None and "unknown" not in (objective, theirs) and objective != theirs:
        return one._replace(refused=f"it is of another objective ({theirs}; the run is {objective})")
    return one


def _report(own: RunReport, seen: Comparison, judged: Sequence[Baseline], settings: Settings) -> RunReport:
    findings: list[Finding] = []
    figures: list[Figure] = []
    checked: list[str] = []
    skipped: dict[str, str] = {}
    rules = matching({code: rule for code, rule in all_rules().items() if rule.family == COMPARISON}, settings)
    for rule in rules:
        try:
            with np.errstate(all="ignore"):
                for said in _ask(rule, seen, settings):
                    if isinstance(said, Figure):
                        figures.append(said)
                    else:
                        findings.append(finding_of(rule, said, seen.frame))
            checked.append(rule.code)
        except CannotTell as reason:
            skipped[rule.code] = str(reason)
    divergence = next((f.first_step for f in findings if f.rule == "TP984"), None)
    folded = sorted([*_folded(findings), *own.findings], key=lambda f: -SEVERITY_RANK[f.severity])
    report = replace(
        own,
        verdict=fold_severities(f.severity for f in folded),
        reason=None,
        findings=tuple(folded),
        checked=(*own.checked, *checked),
        skipped={**own.skipped, **skipped},
        panels=comparison_panels(seen, own.panels, divergence),
        compared=_compared(judged, seen, figures, divergence),
    )
    if {rule.code for rule in rules} & LEVELS and not LEVELS & set(checked):
        first = next(skipped[rule.code] for rule in rules if rule.code in LEVELS)
        return _uncompared(report, f"the run could not be compared: {first}")
    return replace(report, verdict=own.verdict, reason=own.reason) if not rules else report


def _uncompared(report: RunReport, why: str) -> RunReport:
    """A run that fails by itself fails; any other that was not compared is SKIP, never PASS."""
    return report if report.verdict is Verdict.FAIL else replace(report, verdict=Verdict.SKIP, reason=why)


def _ask(rule: Rule, seen: Comparison, settings: Settings) -> Iterator[Sighting | Figure]:
    """What the rule says, of each part of a loss that both know only in parts. Raises CannotTell when it could run on none."""
    if seen.frame.objective not in rule.objectives:
        raise CannotTell(f"not for the objective {seen.frame.objective}")
    views = [seen]
    if "loss" in rule.needs and "loss" not in seen.frame:
        views = [seen.with_loss(name) for name in seen.frame if name.startswith("loss/")] or [seen]
    reasons: list[str] = []
    for view in views:
        needed = [view.loss if need == "loss" else need for need in rule.needs]
        lacking = next((need for need in needed if not view.usable(need)), None)
        if lacking:
            reasons.append(f"no matched records of {lacking}")
            continue
        try:
            yield from rule.check(view, settings.thresholds.comparison)
        except CannotTell as reason:
            reasons.append(str(reason))
    if len(reasons) == len(views):
        raise CannotTell(reasons[0])


def _folded(findings: list[Finding]) -> list[Finding]:
    """The findings on the loss under the worst of them; the others as they are."""
    on_loss = sorted(
        (f for f in findings if f.rule in LOSS_RULES),
        key=lambda f: (-SEVERITY_RANK[f.severity], LOSS_RULES.index(f.rule)),
    )
    others = [f for f in findings if f.rule not in LOSS_RULES]
    if not on_loss or on_loss[0].severity is Severity.INFO:
        return [*on_loss, *others]
    return [replace(on_loss[0], related=tuple(on_loss[1:])), *others]


def _compared(
    judged: Sequence[Baseline], seen: Comparison | None, figures: Sequence[Figure], divergence: int | None
) -> Compared:
    pairs = seen.matched(seen.loss) if seen else []
    matched = {one.label: p for one, p in zip(seen.baselines, pairs, strict=True)} if seen else {}
    some = [p for p in pairs if len(p)]
    axis = seen.axis if seen else Axis("step", "nothing could be compared")
    return Compared(
        axis=axis.kind,
        why=axis.why,
        first_step=min((int(p.step[0]) for p in some), default=None),
        last_step=max((int(p.step[-1]) for p in some), default=None),
        matched=max(map(len, some), default=0),
        how=some[0].how if some else "steps",
        seeds=_seeds(len(pairs)),
        first_divergence=divergence,
        baselines=tuple(_baseline_report(one, matched.get(one.reference.label)) for one in judged),
        figures=tuple(figures),
        changes=seen.changes if seen else (),
    )


def _seeds(count: int) -> str:
    if count == 1:
        return "one baseline: the spread of seeds is unknown, and the noise comes from the runs themselves"
    return f"the spread of seeds comes from {count} baselines" if count else "no baseline"


def _baseline_report(one: Baseline, pairs: Pairs | None) -> BaselineReport:
    source = one.reference.source
    return BaselineReport(
        label=one.reference.label,
        source=source.path,
        format=source.format,
        name=source.name,
        verdict=one.verdict,
        records=one.records,
        matched=len(pairs) if pairs is not None else 0,
        refused=one.refused,
        notes=one.notes,
    )
