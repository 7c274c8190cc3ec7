"""judge_run(frame, settings) -> RunReport: select rules, run them or skip them with a reason, fold into a verdict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from trainproof import __version__, stats
from trainproof.errors import UsageError
from trainproof.folding import fold_related
from trainproof.frame import Frame, Source
from trainproof.plugins import described
from trainproof.rules import all_rules, log_rules
from trainproof.rules.registry import CannotTell, Rule, Sighting
from trainproof.thresholds import Thresholds
from trainproof.verdict import (
    SCHEMA_VERSION,
    DroppedLine,
    Finding,
    Report,
    RunReport,
    SegmentReport,
    Severity,
    Verdict,
    fold_severities,
    fold_verdicts,
)

#: Families whose rules say something of the training itself: a run on which none of them could run is SKIP, never PASS.
JUDGING_FAMILIES = frozenset({"loss", "learning_rate", "gradients", "evaluation", "preference"})
#: ... and rules outside these families that judge the loss itself.
JUDGING_RULES = frozenset({"TP101", "TP110"})
#: ... and what is left to judge of a log that leaves the losses to another file, and says to which.
LOSSLESS_FAMILY = "throughput"


#: Families whose rules ask of the loss where it stands and where it goes: not of one that is summed up over the records.
LEVEL_FAMILIES = frozenset({"loss", "data_order", "evaluation", "gradients"})


class Settings(NamedTuple):
    """What to judge by: rule selectors (codes or prefixes; "ALL") and thresholds."""

    select: tuple[str, ...] = ("ALL",)
    ignore: tuple[str, ...] = ()
    thresholds: Thresholds = Thresholds()


DEFAULTS = Settings()


def selected_rules(settings: Settings) -> tuple[Rule, ...]:
    """The rules of one log that `settings` asks for, by code. Raises UsageError for a selector that names no rule."""
    return _selected(settings.select, settings.ignore)


@lru_cache(maxsize=8)
def _selected(select: tuple[str, ...], ignore: tuple[str, ...]) -> tuple[Rule, ...]:
    settings = Settings(select, ignore)
    check_selectors(settings)
    return tuple(matching(log_rules(), settings))


def check_selectors(settings: Settings) -> None:
    """Raises UsageError for a selector that names no rule, neither of one log nor of a comparison."""
    for selector in (*settings.select, *settings.ignore):
        if selector != "ALL" and not any(
            _matches(code, (selector,)) for rules in (log_rules, all_rules) for code in rules()
        ):
            raise UsageError(
                f"no rule matches {selector!r}; `trainproof rules` lists them (a code, a prefix such as TP2, or ALL)"
            )


def matching(rules: Mapping[str, Rule], settings: Settings) -> list[Rule]:
    """Those of the rules that `settings` asks for."""
    return [
        rule for code, rule in rules.items() if _matches(code, settings.select) and not _matches(code, settings.ignore)
    ]


def _matches(code: str, selectors: Sequence[str]) -> bool:
    return any(selector == "ALL" or code.startswith(selector) for selector in selectors)


def judge_frames(frames: Sequence[Frame], settings: Settings = DEFAULTS, command: str = "epoch") -> Report:
    """The report over several runs."""
    return report_of([judge_run(frame, settings) for frame in frames], command)


def report_of(runs: Sequence[RunReport], command: str = "epoch") -> Report:
    """The report that `command` makes of judged runs."""
    return Report(SCHEMA_VERSION, __version__, command, fold_verdicts(run.verdict for run in runs), tuple(runs))


def judge_run(frame: Frame, settings: Settings = DEFAULTS) -> RunReport:
    """Judge one run by the selected rules."""
    findings: list[Finding] = []
    checked: list[str] = []
    skipped: dict[str, str] = {}
    judged = False
    with np.errstate(all="ignore"):  # a log may hold the largest floats there are; rules compare, they do not warn
        for rule in selected_rules(settings):
            found, reason = ask_rule(rule, frame, settings)
            if reason is not None:
                skipped[rule.code] = reason
                continue
            checked.append(rule.code)
            judged = judged or judges(rule, frame, settings)
            findings += found
    return _report(frame, settings, findings, checked, skipped, judged)


def judges(rule: Rule, frame: Frame, settings: Settings) -> bool:
    """Whether that this rule ran says something of the training."""
    if _too_short(frame, settings):
        return False
    lossless = rule.family == LOSSLESS_FAMILY and "loss" not in frame and "losses_in" in frame.facts
    return lossless or rule.family in JUDGING_FAMILIES or rule.code in JUDGING_RULES


def ask_rule(rule: Rule, frame: Frame, settings: Settings) -> tuple[list[Finding], str | None]:
    """What one rule says of a run; and why it was skipped, if it was. To be called where numpy's errors are ignored."""
    try:
        return [finding_of(rule, seen, frame) for seen in _run_rule(rule, frame, settings)], None
    except CannotTell as reason:
        return [], str(reason)
    except Exception as error:
        if not rule.plugin:
            raise
        return [], f"{rule.plugin} failed: {described(error)}"


def unjudged_run(path: str, why: str) -> RunReport:
    """The report on an input that could not be read."""
    return _report(Frame({}, Source(path, "unknown")), DEFAULTS, [], [], {}, False, why)


def _run_rule(rule: Rule, frame: Frame, settings: Settings) -> Iterator[Sighting]:
    """The rule's sightings over each part of the loss and each segment. Raises CannotTell when it could run on none."""
    if frame.objective not in rule.objectives:
        raise CannotTell(f"not for the objective {frame.objective}")
    missing = [name for name in rule.facts if name not in frame.facts]
    if missing:
        raise CannotTell(f"not declared: {', '.join(missing)} (give it with --fact)")
    thresholds = getattr(settings.thresholds, rule.family, rule.thresholds)
    reasons: list[str] = []
    ran = False
    for view in _views(rule, frame):
        unmet = _unmet_need(rule, view)
        if unmet:
            reasons.append(unmet)
            continue
        try:
            for seen in rule.check(view, thresholds):
                earliest = _earliest(rule, view)
                yield seen if seen.flagged_step >= earliest else seen._replace(flagged_step=earliest)
            ran = True
        except CannotTell as reason:
            reasons.append(str(reason))
    if not ran:
        raise CannotTell(reasons[0])


def _earliest(rule: Rule, view: Frame) -> int:
    """The step before which the rule had too few records to say anything."""
    series = view[rule.needs[0]] if rule.needs and rule.needs[0] in view else view.main
    return int(series.step[rule.min_records - 1]) if series is not None and rule.min_records > 1 else -(2**62)


def _views(rule: Rule, frame: Frame) -> Iterator[Frame]:
    """The frames that the rule is asked about: each part of a loss known only in parts, each segment of a run."""
    whole = frame.by_loss if "loss" in rule.needs and "loss" not in frame else ()
    for view in whole or (frame,):
        if rule.whole_run or len(frame.segments) < 2:
            yield view
        else:
            yield from view.by_segment


def _unmet_need(rule: Rule, frame: Frame) -> str | None:
    for need in rule.needs:
        if need.endswith("*"):
            if not any(name.startswith(need[:-1]) for name in frame):
                return f"no {need} metric in the log"
        elif need not in frame:
            return f"no {need} in the log"
    first = rule.needs[0] if rule.needs else ""
    records = len(frame[first]) if first in frame else frame.records
    if records < rule.min_records:
        return f"{records} records, needs {rule.min_records}"
    if rule.family in LEVEL_FAMILIES and "loss" in rule.needs and frame["loss"].finite.memo(stats.is_running_sum):
        return "the loss is a sum since the start; log its mean"
    return None


def _capped(seen: Sighting) -> Sighting:
    """At most a warning, unless a value that is not finite is cited: the format, and so the meaning of the values, was guessed."""
    certain = any(isinstance(point.value, str) for point in seen.evidence)
    return seen if certain or seen.severity is not Severity.FAIL else seen._replace(severity=Severity.WARN)


def finding_of(rule: Rule, seen: Sighting, frame: Frame) -> Finding:
    """A sighting under the name of its rule."""
    seen = _capped(seen) if frame.guessed else seen
    return Finding(
        rule=rule.code,
        name=rule.name,
        severity=seen.severity,
        message=seen.message,
        first_step=seen.first_step,
        last_step=seen.last_step,
        flagged_step=seen.flagged_step,
        evidence=seen.evidence,
        threshold=dict(seen.threshold),
        fix=seen.fix or rule.fix,
        page=rule.page,
    )


def _report(
    frame: Frame,
    settings: Settings,
    findings: list[Finding],
    checked: list[str],
    skipped: dict[str, str],
    judged: bool,
    why: str | None = None,
) -> RunReport:
    from trainproof.panels import panels_of

    verdict = fold_severities(finding.severity for finding in findings)
    reason = None
    if verdict is Verdict.PASS and not judged:
        verdict, reason = Verdict.SKIP, why or _why_nothing_was_judged(frame, settings)
    elif "loss" not in frame and "losses_in" in frame.facts:
        reason = f"this log has no loss: judge {frame.facts.text('losses_in')} beside it, too"
    folded = fold_related(findings, frame)
    return RunReport(
        source=frame.source.path,
        format=frame.source.format,
        name=frame.source.name,
        verdict=verdict,
        reason=reason,
        objective=frame.objective,
        records=frame.records,
        first_step=frame.first_step,
        last_step=frame.last_step,
        segments=tuple(SegmentReport(*segment) for segment in frame.segments),
        facts=dict(frame.facts),
        dropped=frame.dropped_count,
        dropped_lines=tuple(DroppedLine(*line) for line in frame.dropped),
        masked=tuple(sorted(frame.masked)),
        overrides=dict(settings.thresholds.overrides()),
        findings=folded,
        checked=tuple(checked),
        skipped=skipped,
        panels=panels_of(frame, findings),
    )


def _too_short(frame: Frame, settings: Settings) -> bool:
    """Whether there are too few records for a curve: that nothing is wrong with them says nothing of the run."""
    return max(map(len, frame.values()), default=0) < settings.thresholds.log_quality.curve_records


def _why_nothing_was_judged(frame: Frame, settings: Settings) -> str:
    if not len(frame):
        return "the log has no numeric records"
    if _too_short(frame, settings):
        return f"too few records to judge: {frame.records}, and a curve needs {settings.thresholds.log_quality.curve_records}"
    known = ", ".join(list(frame)[:6])
    return f"no rule could judge it: {frame.records} records of {known}; is one the loss? Say --map loss=COLUMN"
