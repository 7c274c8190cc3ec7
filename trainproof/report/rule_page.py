"""A rule's page, from its docstring and its thresholds: for `trainproof rule CODE` and for the files under rules/."""

from __future__ import annotations

import inspect
import re
import textwrap
from typing import get_type_hints

from trainproof import thresholds as threshold_module
from trainproof.rules import all_rules
from trainproof.rules.registry import EVERY, Rule

SECTIONS = ("What it does", "Why it matters", "Formula", "False positives", "What to try")


def rule_text(rule: Rule) -> str:
    """The page as plain text."""
    return page(rule).replace("`", "")


def rules_table() -> str:
    """One line a rule: code, name, highest severity, what it says."""
    rows = [(rule.code, rule.name, rule.severity.value, summary(rule)) for rule in all_rules().values()]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    return "".join(f"{c:<{widths[0]}}  {n:<{widths[1]}}  {s:<{widths[2]}}  {told}\n" for c, n, s, told in rows)


def summary(rule: Rule) -> str:
    return (rule.check.__doc__ or "").strip().split("\n", 1)[0]


def page(rule: Rule) -> str:
    """The page as Markdown. Raises ValueError when the docstring lacks a section."""
    told = sections(rule)
    lines = [f"# {rule.code} {rule.name}", "", summary(rule), ""]
    lines += [f"- Severity: at most {rule.severity.value}", f"- Needs: {_needs(rule)}"]
    lines += [f"- Objectives: {'all' if rule.objectives == EVERY else ', '.join(sorted(rule.objectives))}"]
    lines += [f"- A live guardian may stop a run on it: {'yes' if rule.stops else 'no'}", ""]
    for title in SECTIONS:
        lines += [f"## {title}", "", *textwrap.wrap(told[title], 120), ""]
    lines += ["## Thresholds", "", *_thresholds(rule), ""]
    return "\n".join(lines)


def sections(rule: Rule) -> dict[str, str]:
    """The docstring's sections by title. Raises ValueError when one is missing or empty."""
    text = inspect.cleandoc(rule.check.__doc__ or "")
    parts = re.split(rf"^({'|'.join(SECTIONS)})\n", text, flags=re.MULTILINE)
    told = {title: " ".join(body.split()) for title, body in zip(parts[1::2], parts[2::2], strict=True)}
    missing = [title for title in SECTIONS if not told.get(title)]
    if missing:
        raise ValueError(f"{rule.code}: its docstring lacks {', '.join(missing)}")
    return told


def _needs(rule: Rule) -> str:
    needs = [f"`{name}`" for name in rule.needs] + [f"the fact `{name}`" for name in rule.facts]
    return f"{', '.join(needs) or 'nothing'}; at least {rule.min_records} record{'s' if rule.min_records != 1 else ''}"


def _thresholds(rule: Rule) -> list[str]:
    """The threshold lines of the rule: those that stand under a comment with its code in `thresholds.py`."""
    group = get_type_hints(threshold_module.Thresholds)[rule.family]
    lines, mine = [], False
    for line in inspect.getsource(group).splitlines():
        text = line.strip()
        if text.startswith("#"):
            mine = rule.code in text if re.search(r"TP[DTOE]?\d{3}", text) else mine
            lines += [text.lstrip("# ").replace(f"{rule.code} {rule.name}.", "").strip()] if mine else []
        elif mine and (match := re.match(r"(\w+): [\w\[\], .]+ = (.+?)(?:\s{2}# (.+))?$", text)):
            lines.append(f"- `{rule.family}.{match[1]}` = {match[2]}{f': {match[3]}' if match[3] else ''}")
    return [line for line in lines if line] or ["None beside the definition itself."]
