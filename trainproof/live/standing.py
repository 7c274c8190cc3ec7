"""What a guardian has said and what of it stands; and how often a state that lasts is asked about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from trainproof import stats
from trainproof.verdict import SEVERITY_RANK, Finding

#: records without a rule's being asked for that end a state
PAUSE = 4

#: rule, metric and flagged step of a finding
Key = tuple[str, str, int]


class Severities(Protocol):
    """How severe what each rule says is: 1 WARN, 2 FAIL."""

    def get(self, rule: str, default: int, /) -> int: ...


class Standing:
    """The findings that stand, and all that were told. `severity` says how severe what each rule says is: 1 WARN, 2 FAIL."""

    def __init__(self, told: Mapping[Key, int] | None = None) -> None:
        self.severity: dict[str, int] = {}
        self.told: dict[Key, int] = dict(told or {})  # -> the severity that was told
        self._standing: dict[str, list[Finding]] = {}

    @property
    def rules(self) -> set[str]:
        """The rules whose findings stand."""
        return set(self._standing)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What stands, the worst and then the earliest first."""
        found = [finding for findings in self._standing.values() for finding in findings]
        return tuple(sorted(found, key=lambda f: (-SEVERITY_RANK[f.severity], f.flagged_step, f.rule)))

    def of(self, rule: str) -> list[Finding]:
        return self._standing.get(rule, [])

    def has_told(self, rule: str) -> bool:
        """Whether the rule has ever said anything."""
        return any(code == rule for code, _, _ in self.told)

    def take(self, rule: str, found: list[Finding]) -> tuple[list[Finding], list[Finding]]:
        """What the rule says now; what of it is news, and what it said before if it says nothing any more.

        A finding is told once, and again when it has become worse; one that was cleared stands again without a word.
        """
        cleared = self._standing.pop(rule, []) if not found else []
        self.severity.pop(rule, None)
        if found:
            self._standing[rule] = found
            self.severity[rule] = max(SEVERITY_RANK[finding.severity] for finding in found)
        return [finding for finding in found if self._is_news(finding)], cleared

    def _is_news(self, finding: Finding) -> bool:
        key = (finding.rule, finding.evidence[0].metric if finding.evidence else "", finding.flagged_step)
        rank = SEVERITY_RANK[finding.severity]
        before = self.told.get(key, 0)
        self.told[key] = max(rank, before)
        return rank > before

    def clear(self) -> None:
        """Another run has begun."""
        self._standing.clear()
        self.severity.clear()
        self.told.clear()


class _State(NamedTuple):
    asks: int
    last: int


class Often:
    """Thins what is asked for at record after record: the first ones of a state all, then those of the common schedule."""

    def __init__(self) -> None:
        self._states: dict[str, _State] = {}
        self._scheduled = stats.scheduled_counts()

    def due(self, rules: Iterable[str], count: int, first: Mapping[str, int]) -> set[str]:
        """Which of the rules that are asked for at record `count` are due; `first`: of how many records of a state all are asked."""
        found = set()
        for rule in rules:
            before = self._states.get(rule)
            asks = before.asks + 1 if before is not None and count - before.last <= PAUSE else 1
            self._states[rule] = _State(asks, count)
            if asks <= first.get(rule, stats.SCHEDULE_START) or asks in self._scheduled:
                found.add(rule)
        return found


class PartStanding:
    """How severe what stands of one part of the loss is, rule by rule, and what is asked of it often: other parts have states of their own."""

    def __init__(self, standing: Standing, part: str) -> None:
        self.often = Often()
        self._standing, self._part = standing, part

    def get(self, rule: str, default: int, /) -> int:
        found = (f for f in self._standing.of(rule) if f.evidence and f.evidence[0].metric == self._part)
        return max((SEVERITY_RANK[finding.severity] for finding in found), default=default)
