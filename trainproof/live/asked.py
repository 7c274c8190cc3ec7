"""What asks for rules, by the names of the metrics and of the rules alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from trainproof.live.schedule import TREND_RULES
from trainproof.rules.log_quality import WATCHED
from trainproof.rules.registry import Rule

#: asks for every rule; for every rule that no screen knows
ALL, OTHERS = "ALL", "OTHERS"
EVALUATION = frozenset("TP103 TP110 TP402 TP501 TP502 TP503 TP504 TP505 TP507 TP509".split())
REWARD = frozenset("TP801 TP802 TP803 TP804 TP805 TP806 TP807 TP808 TP809 TP810 TP811 TP813 TP814".split())
SCALER = frozenset({"TP102", "TP105", "TP106", "TP201"})
MISSING = frozenset({"TP005", "TP110"})
PROGRESS = frozenset({"TP206", "TP301", "TP302", "TP303", "TP305"})
#: rules on steps that were logged again: until a resumed run is beyond them, nobody can tell repeats from a resume
REPEATS = frozenset({"TP003", "TP004"})
#: rules on resumes: a first record by itself, after steps that went back, may be a line out of place
RESUMES = frozenset({"TP003", "TP004", "TP701", "TP702", "TP703", "TP708"})
#: rules that a screen of values or levels knows
VALUES = frozenset(
    "TP002 TP101 TP107 TP202 TP203 TP207 TP208 TP209 TP210 TP211 TP401 TP403 TP406 TP506 TP604 TP901 TP906 TP908 TP951 TP952".split()
)
SCREENED = TREND_RULES | EVALUATION | REWARD | SCALER | MISSING | PROGRESS | VALUES | REPEATS

EVAL_SPLITS = ("eval/", "test/")
CLOCKS = frozenset({"epoch", "time", "tokens"})
#: how metrics begin that only reward, preference and adversarial objectives log
REWARDS = ("reward", "kl", "entropy", "frac_reward", "zero_std", "truncated_ratio", "completion_length", "loss/disc")


class Asked(NamedTuple):
    """Rules to ask now; `often` are those whose state may last, and who need not be asked at each of its records."""

    now: set[str]
    often: set[str]


NOTHING = Asked(set(), set())
#: sees one more value of a metric, with its step
See = Callable[[int, float, Asked], None]
#: sees the values of one record
SeeTogether = Callable[[Mapping[str, float], Asked], None]


def first_asks(rules: Iterable[Rule]) -> dict[tuple[str, int], list[str]]:
    """(metric, or "" for the main one; its number of values) -> the rules that may speak from there on."""
    first: dict[tuple[str, int], list[str]] = {}
    for rule in rules:
        if rule.code not in TREND_RULES:
            metric = "" if not rule.needs or rule.needs[0].endswith("*") else rule.needs[0]
            first.setdefault((metric, rule.min_records), []).append(rule.code)
    return first


def asked_at_each(names: tuple[str, ...], known: Iterable[str]) -> frozenset[str]:
    """The rules that are asked at each record of these names: of evaluations, of rewards, and where others have a metric more."""
    asked = frozenset[str]()
    for held_out in (True, False):
        here = [name for name in names if name.startswith(EVAL_SPLITS) is held_out and name not in CLOCKS]
        if here and held_out:
            asked |= EVALUATION
        others = (name for name in known if name.startswith(EVAL_SPLITS) is held_out and _is_watched(name))
        if here and any(name not in here for name in others):
            asked |= MISSING
    return asked | REWARD if any(name.startswith(REWARDS) for name in names) else asked


def _is_watched(name: str) -> bool:
    """Whether the log would be the poorer without it: what TP005 and TP110 look for."""
    bare = name.partition("/")[2] if name.startswith(EVAL_SPLITS) else name
    return bare in WATCHED or bare == "loss" or bare.startswith(("lr/", "loss/"))
