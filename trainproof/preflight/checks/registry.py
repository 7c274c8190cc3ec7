"""How a check before training is registered: as a rule whose function is given what was found, not a log."""

from __future__ import annotations

from collections.abc import Callable

from trainproof.rules.registry import Check, rule
from trainproof.verdict import Severity

INFO, WARN, FAIL = Severity.INFO, Severity.WARN, Severity.FAIL

#: code -> kinds of data (speech, text, chat, preference) that the check is for
KINDS: dict[str, frozenset[str]] = {}
TEXTUAL = ("text", "chat", "preference")
DIALOGUE = ("chat", "preference")


def check(code: str, name: str, severity: Severity, *kinds: str, fix: str) -> Callable[[Check], Check]:
    """Register a check. severity: the highest it may give; kinds: of data; fix: what to try."""
    KINDS[code] = frozenset(kinds)
    return rule(code, name, severity=severity, fix=fix)
