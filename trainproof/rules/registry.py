"""What a rule is, how it is registered, and what it yields. A rule is a function over a Frame; its docstring is its page."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from trainproof.frame import Series
from trainproof.verdict import Evidence, Severity, number

INFO, WARN, FAIL = Severity.INFO, Severity.WARN, Severity.FAIL

#: Objectives whose loss is meant to fall. Reinforcement and adversarial losses rise, and sit at zero, in healthy runs.
SUPERVISED = frozenset({"lm", "classification", "regression", "density", "preference", "unknown"})
#: Objectives whose loss is a cross-entropy over a known number of classes.
CROSS_ENTROPY = frozenset({"lm", "classification"})
EVERY = frozenset({*SUPERVISED, "rl", "adversarial"})

#: code or its prefix -> family: its module, and the field of Thresholds that its rules are given; the longest wins
FAMILIES = {
    "TP0": "log_quality",
    "TP1": "numerics",
    "TP2": "loss",
    "TP3": "learning_rate",
    "TP4": "gradients",
    "TP5": "evaluation",
    "TP6": "data_order",
    "TP7": "resume",
    "TP8": "preference",
    "TP90": "throughput",
    "TP92": "pipeline",
    "TP95": "architecture",
    "TP97": "comparison",
    "TP98": "comparison",
    "TP99": "checkpoint",
    "TPD": "data",
    "TPO": "objective",
    "TPT": "tokenizer",
    "TPE": "environment",
    "TP108": "experiment",
    "TP109": "experiment",
    "TP707": "experiment",
}
#: the family whose rules look at a Comparison with baselines, not at one log
COMPARISON = "comparison"
#: families whose rules look at something else than one log -> at what
APART = {
    COMPARISON: "a baseline",
    "checkpoint": "a checkpoint",
    "data": "data",
    "objective": "a batch",
    "tokenizer": "a tokenizer",
    "environment": "a machine",
    "experiment": "a job that was run again, or two logs of one job",
}
#: those of them that look at what there is before training -> the modules of their checks
PREFLIGHT = {
    "data": tuple(
        f"preflight.checks.{name}"
        for name in ("files", "text", "chat", "pairs", "sameness", "audio", "edges", "transcripts", "trainer")
    ),
    "objective": ("preflight.checks.objective",),
    "tokenizer": tuple(f"preflight.checks.{name}" for name in ("tokenizer", "fertility", "special", "template")),
    "environment": ("preflight.checks.environment",),
}


#: the family of the rules of other packages, whose codes begin otherwise
PLUGIN_FAMILY = "plugin"
_CODE = re.compile(r"[A-Z]{2,8}\d{3}")


class CannotTell(Exception):
    """Raised by a rule that ran but can neither pass nor warn; the text is the reason that the report gives for the SKIP."""


class Sighting(NamedTuple):
    """What a rule yields: the judge adds the rule's name, fix and page and makes it a Finding."""

    severity: Severity
    message: str
    evidence: tuple[Evidence, ...]
    threshold: dict[str, float]
    first_step: int
    last_step: int
    flagged_step: int
    fix: str | None = None


#: (Frame, thresholds of the family) -> what it saw; a rule of the family `comparison` is given a Comparison instead of a Frame
Check = Callable[[Any, Any], Iterator[Any]]


class Rule(NamedTuple):
    """A registered rule. `needs` names metrics; a trailing `*` matches any metric with that prefix."""

    code: str
    name: str
    family: str
    severity: Severity
    needs: tuple[str, ...]
    facts: tuple[str, ...]
    objectives: frozenset[str]
    min_records: int
    stops: bool
    whole_run: bool
    fix: str
    check: Check
    page: str
    thresholds: Any = None  # those of a rule of another package; the others have their family's
    plugin: str = ""  # which plug-in it is of


RULES: dict[str, Rule] = {}


def family_of(code: str) -> str:
    """The family of a rule's code; PLUGIN_FAMILY for the code of another package."""
    return FAMILIES.get(code) or FAMILIES.get(code[:4]) or FAMILIES.get(code[:3], PLUGIN_FAMILY)


def rule(
    code: str,
    name: str,
    *,
    severity: Severity,
    needs: Sequence[str] = (),
    facts: Sequence[str] = (),
    objectives: frozenset[str] = EVERY,
    min_records: int = 1,
    stops: bool = False,
    whole_run: bool = False,
    fix: str,
    thresholds: Any = None,
) -> Callable[[Check], Check]:
    """Register a rule.

    severity: the highest it may give. needs, facts: metrics and declared facts without which it is skipped. min_records: of the
    first metric it needs (of the run, when it needs none). stops: the guardian may stop a run on its FAIL. whole_run: it looks
    across restarts; every other rule is asked about each segment by itself. fix: what to try, one sentence or two. thresholds: what
    the rule of another package is given; its code has a prefix of its own (two to eight capitals and three digits). Raises ValueError
    for a code that is taken or malformed.
    """

    def register(check: Check) -> Check:
        if code in RULES or not _CODE.fullmatch(code):
            raise ValueError(f"{code} is {'registered twice' if code in RULES else 'no code such as ACME101'}")
        RULES[code] = Rule(
            code,
            name,
            family_of(code),
            severity,
            tuple(needs),
            tuple(facts),
            objectives,
            min_records,
            stops,
            whole_run,
            fix,
            check,
            "" if family_of(code) == PLUGIN_FAMILY else f"rules/{code}.md",
            thresholds,
        )
        return check

    return register


def evidence(series: Series, indices: Iterable[int]) -> tuple[Evidence, ...]:
    """The points of `series` at `indices`, as a finding cites them."""
    return tuple(
        Evidence(series.name, int(series.step[i]), number(float(series.value[i])), int(series.line[i])) for i in indices
    )


def sighting(
    severity: Severity,
    message: str,
    series: Series,
    *,
    first: int,
    last: int,
    flagged: int | None = None,
    cite: Iterable[int] | None = None,
    threshold: dict[str, float],
    more: tuple[Evidence, ...] = (),
    fix: str | None = None,
) -> Sighting:
    """A Sighting over the points first..last (inclusive indices) of `series`, flagged at index `flagged` (default: `last`).

    Cites the points `cite` (default: first, flagged, last) and then `more`, evidence of other series.
    """
    flagged = last if flagged is None else flagged
    cited = sorted({first, flagged, last}) if cite is None else list(cite)
    return Sighting(
        severity,
        message,
        evidence(series, cited) + more,
        threshold,
        int(series.step[first]),
        int(series.step[last]),
        int(series.step[flagged]),
        fix,
    )
