"""Every rule of the catalogue: its code and name, its page, its needs, its thresholds, and evidence that it works."""

from __future__ import annotations

import inspect
import re
from functools import cache
from pathlib import Path

import msgspec
import pytest

from trainproof.facts import FACT_NAMES
from trainproof.names import ALIASES
from trainproof.objective import OBJECTIVES
from trainproof.report.rule_page import PREFLIGHT_SECTIONS, SECTIONS, sections
from trainproof.rules import own_rules
from trainproof.rules.registry import COMPARISON, FAMILIES, PREFLIGHT, Rule, family_of
from trainproof.thresholds import Thresholds
from trainproof.verdict import Severity

ROOT = Path(__file__).resolve().parent.parent
RULES = own_rules()
#: metrics that have a canonical name by pattern, not by the table
BY_PATTERN = re.compile(r"(?:eval/)?loss(?:/.+|\*)?|(?:loss|lr|expert_load)/\*|eval/\*")

each_rule = pytest.mark.parametrize("rule", RULES.values(), ids=list(RULES))


@cache
def package() -> str:
    """The source of the package, thresholds apart."""
    paths = sorted((ROOT / "trainproof").rglob("*.py"))
    return "\n".join(path.read_text(encoding="utf-8") for path in paths if path.name != "thresholds.py")


@cache
def sources_of_tests() -> dict[str, str]:
    found = [path for path in sorted((ROOT / "tests").rglob("test_*.py")) if path.name != Path(__file__).name]
    return {str(path): path.read_text(encoding="utf-8") for path in found}


@cache
def matrix() -> dict[str, str]:
    """Code -> the marks of the gallery runs in EVIDENCE_MATRIX.md."""
    rows = re.findall(
        r"^\| \[(TP\w+)\]\([^)]*\) [\w-]+ \|(.*)\|$", (ROOT / "EVIDENCE_MATRIX.md").read_text(encoding="utf-8"), re.M
    )
    return dict(rows)


@each_rule
def test_code_name_and_family(rule: Rule) -> None:
    assert re.fullmatch(r"TP[DTOE]?\d{3}", rule.code)
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.name)
    assert rule.family == family_of(rule.code)
    assert any(rule.code.startswith(prefix) for prefix in FAMILIES)
    assert hasattr(Thresholds(), rule.family)


def test_names_are_unique() -> None:
    names = [rule.name for rule in RULES.values()]
    assert len(set(names)) == len(names)


@each_rule
def test_the_page_is_there_and_says_everything(rule: Rule) -> None:
    assert rule.page == f"rules/{rule.code}.md"
    page = (ROOT / rule.page).read_text(encoding="utf-8")
    told = sections(rule)
    assert list(told) == list(PREFLIGHT_SECTIONS if rule.family in PREFLIGHT else SECTIONS)
    assert all(
        len(text) > 20 for title, text in told.items() if title != "What to try" and rule.family not in PREFLIGHT
    )
    assert page.startswith(f"# {rule.code} {rule.name}\n")
    assert len(rule.fix) > (10 if rule.family in PREFLIGHT else 20)


@each_rule
def test_the_page_promises_no_more_than_the_rule_may_say(rule: Rule) -> None:
    if rule.severity is not Severity.FAIL:
        assert not re.search(r": FAIL\b", sections(rule).get("Formula", ""))
    if rule.stops:
        assert rule.severity is Severity.FAIL


@each_rule
def test_needs_facts_and_objectives_are_known(rule: Rule) -> None:
    for need in rule.needs:
        assert need in ALIASES or BY_PATTERN.fullmatch(need), need
    assert set(rule.facts) <= FACT_NAMES.keys()
    assert rule.objectives
    assert rule.objectives <= set(OBJECTIVES)
    assert rule.min_records >= 0


@each_rule
def test_its_thresholds_are_told_on_its_page(rule: Rule) -> None:
    if not re.search(r"\bt\.\w", inspect.getsource(rule.check)):
        return
    page = (ROOT / rule.page).read_text(encoding="utf-8").partition("## Thresholds")[2]
    assert re.search(rf"`{rule.family}\.\w+` = ", page), "no threshold names this rule"


def test_every_threshold_is_used_by_a_rule() -> None:
    for family in msgspec.structs.fields(Thresholds):
        for field in msgspec.structs.fields(family.type):
            assert re.search(rf"\.{field.name}\b", package()), f"{family.name}.{field.name}"


@cache
def fault_sets() -> str:
    """The scripts that make data with every fault, and their clean twins; tests run them."""
    paths = [*(ROOT / "tools").glob("*_faults.py"), *(ROOT / "tests" / "preflight").glob("*.py")]
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted(paths))


@pytest.mark.parametrize("rule", [rule for rule in RULES.values() if rule.family in PREFLIGHT], ids=lambda r: r.code)
def test_a_fault_set_shows_the_check_at_work(rule: Rule) -> None:
    assert re.search(rf"\b{rule.code}\b", fault_sets())


@pytest.mark.parametrize(
    "rule", [rule for rule in RULES.values() if rule.family not in PREFLIGHT], ids=lambda r: r.code
)
def test_it_is_seen_at_work(rule: Rule) -> None:
    """A gallery run or a made log that it flags, and one that it lets pass where it moves the verdict."""
    naming = [text for text in sources_of_tests().values() if f'"{rule.code}"' in text]
    assert naming, "no test runs it"
    if rule.severity is not Severity.INFO and rule.family != COMPARISON:
        assert "-" in matrix().get(rule.code, "") or any("== []" in text for text in naming), "nothing shows it silent"
    if rule.severity is Severity.FAIL and "F" not in matrix().get(rule.code, ""):
        assert any("FAIL" in text for text in naming), "may FAIL, but nothing shows it"
