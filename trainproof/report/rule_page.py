"""A rule's page, from its docstring and its thresholds: for `trainproof rule CODE` and for the files under rules/."""

from __future__ import annotations

import ast
import inspect
import json
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

from trainproof import thresholds as threshold_module
from trainproof.rules import all_rules
from trainproof.rules.registry import APART, COMPARISON, EVERY, PREFLIGHT, Rule
from trainproof.verdict import Severity

#: what the gallery shows of each rule; made by make write-generated
EVIDENCE = Path(__file__).with_name("evidence.json")
SECTIONS = ("What it does", "Why it matters", "Formula", "False positives", "What to try")


#: ... of a check before training; what it does is said before them, and what to try is its registered fix
PREFLIGHT_SECTIONS = ("Why it matters", "False positives")


def rule_text(rule: Rule) -> str:
    """The page as plain text: titles at the margin, what stands under them indented."""
    lines = page(rule).replace("`", "").splitlines()
    told = (line.lstrip("# ") if line.startswith("#") else f"  {line}".rstrip() for line in lines)
    return "\n".join(told) + "\n"


def rules_table() -> str:
    """One line a rule: code, name, highest severity, what it says."""
    rows = [(rule.code, rule.name, rule.severity.value, summary(rule)) for rule in all_rules().values()]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    return "".join(f"{c:<{widths[0]}}  {n:<{widths[1]}}  {s:<{widths[2]}}  {told}\n" for c, n, s, told in rows)


def summary(rule: Rule) -> str:
    return (rule.check.__doc__ or "").strip().split("\n", 1)[0]


def page(rule: Rule) -> str:
    """The page as Markdown. Raises ValueError when the docstring of a rule of ours lacks a section."""
    told = sections(rule)
    lines = [f"# {rule.code} {rule.name}", "", summary(rule), ""]
    if rule.family in PREFLIGHT:
        return "\n".join([*lines, *_preflight(rule, told)])
    lines += [
        f"- Severity: {'' if rule.severity is Severity.INFO else 'at most '}{rule.severity.value}",
        f"- Needs: {_needs(rule)}",
    ]
    lines += [f"- Objectives: {'all' if rule.objectives == EVERY else ', '.join(sorted(rule.objectives))}"]
    lines += [f"- A live guardian may stop a run on it: {'yes' if rule.stops else 'no'}", ""]
    for title, body in told.items():
        lines += [f"## {title}", "", *_paragraph(body), ""]
    lines += ["## Thresholds", "", *_thresholds(rule), ""]
    lines += _evidence(rule)
    return "\n".join(lines)


def _preflight(rule: Rule, told: dict[str, str]) -> Iterator[str]:
    """The page of a check before training, below its summary: it has no steps, objectives or guardian."""
    yield from (f"- Severity: {'' if rule.severity is Severity.INFO else 'at most '}{rule.severity.value}", "")
    more = inspect.cleandoc(rule.check.__doc__ or "").partition("Why it matters\n")[0].partition("\n")[2]
    if more.strip():
        yield from ("## What it does", "", *_paragraph(" ".join(more.split())), "")
    for title, body in {**told, "What to try": rule.fix}.items():
        yield from (f"## {title}", "", *_paragraph(body), "")
    yield from ("## Thresholds", "", *_thresholds(rule), "")


def sections(rule: Rule) -> dict[str, str]:
    """The docstring's sections by title. Raises ValueError when a rule of ours lacks one."""
    text = inspect.cleandoc(rule.check.__doc__ or "")
    parts = re.split(rf"^({'|'.join(SECTIONS)})\n", text, flags=re.MULTILINE)
    told = {title: " ".join(body.split()) for title, body in zip(parts[1::2], parts[2::2], strict=True)}
    missing = [title for title in (PREFLIGHT_SECTIONS if rule.family in PREFLIGHT else SECTIONS) if not told.get(title)]
    if missing and not rule.plugin:
        raise ValueError(f"{rule.code}: its docstring lacks {', '.join(missing)}")
    return told


def _needs(rule: Rule) -> str:
    needs = [f"`{name}`" for name in rule.needs] + [f"the fact `{name}`" for name in rule.facts]
    records = f"at least {rule.min_records} record{'s' if rule.min_records != 1 else ''}"
    if rule.family in APART and rule.family != COMPARISON:
        return APART[rule.family]
    if rule.family == COMPARISON:
        return f"{', '.join([*needs, 'a baseline'])}; {records} matched with it"
    return f"{', '.join(needs) or 'nothing'}; {records}"


def _paragraph(text: str) -> list[str]:
    return textwrap.wrap(text, 118, break_on_hyphens=False, break_long_words=False)


def _evidence(rule: Rule) -> list[str]:
    """What the gallery shows of the rule: the run that shows it best, with an excerpt, and its silence on healthy runs."""
    known: dict[str, Any] = json.loads(EVIDENCE.read_text(encoding="utf-8")) if EVIDENCE.exists() else {}
    if rule.plugin or rule.code not in known:
        return []
    seen = known[rule.code]
    lines = ["## Evidence", ""]
    for shown in seen["shown"]:
        seeds = ", ".join(f"seed {seed} {severity}" for seed, severity in shown["seeds"].items())
        lines += [*_paragraph(f"Gallery run `{shown['run']}` ({shown['fault']}): {seeds}. Of the first it says:"), ""]
        lines += [f"    {line}" for line in (*_paragraph(shown["said"]), *shown["cited"])]
        lines.append("")
    if seen.get("others"):
        lines += [*_paragraph(f"Told of too: {', '.join(f'`{run}`' for run in seen['others'])}."), ""]
    if not seen["shown"]:
        lines += ["No run of the gallery shows it; made logs in `tests/rules` do.", ""]
    ran = f"It ran on {seen['of']} healthy runs of the gallery, and neither warned nor failed on {seen['silent']} of them."
    return [*lines, *_paragraph(ran if seen["of"] else "No healthy run of the gallery has what it needs."), ""]


def _thresholds(rule: Rule) -> list[str]:
    """The thresholds of the rule, with their defaults and what stands beside them in `thresholds.py`, each group below its source."""
    group = get_type_hints(threshold_module.Thresholds).get(rule.family, rule.thresholds and type(rule.thresholds))
    prefix = "" if rule.plugin else f"{rule.family}."
    lines: list[str] = []
    heading: list[str] = []
    for codes, told in _threshold_lines(inspect.getsource(group)) if group else ():
        if not told or not (rule.code in codes or rule.plugin):
            continue
        if not told.startswith("- "):
            heading.append(told)
            continue
        if heading:
            lines += [*([""] if lines else []), *_paragraph(" ".join(heading)), ""]
            heading = []
        lines.append(told.replace("- `", f"- `{prefix}", 1))
    return lines or ["None beside the definition itself."]


def _threshold_lines(source: str) -> Iterator[tuple[set[str], str]]:
    """(codes, line) of each threshold, and of each sentence on where it comes from, under the comment that names the codes."""
    lines = source.splitlines()
    stop = {node.lineno: node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.AnnAssign)}
    codes: set[str] = set()
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if number in stop:
            yield codes, _field(stop[number], lines)
        elif text.startswith("#"):
            named = set(re.findall(r"TP[DTOE]?\d{3}", text.partition(". ")[0] + "."))
            codes = named or codes
            yield codes, re.sub(r"^# (TP[DTOE]?\d{3} [\w-]+[.,;]?\s*)*", "", text)


#: end of a threshold's name -> what it is, where nothing stands beside it
PLAIN = {
    "_min_records": "records that the rule needs",
    "_min_evals": "evaluations that the rule needs",
    "_records": "records",
    "_evals": "evaluations",
    "_warn": "the same for a WARN",
    "_fail": "the same for a FAIL",
    "_scratch": "the same for training from scratch",
    "_ratio": "times the level before",
}


def _field(node: ast.AnnAssign, lines: list[str]) -> str:
    """A threshold as a list item: its name, its default, and the comment beside it."""
    own = lines[node.lineno - 1 : node.end_lineno]
    said = " ".join(line.partition("# ")[2] for line in own if "# " in line)
    said = said or next((what for end, what in PLAIN.items() if ast.unparse(node.target).endswith(end)), "")
    default = ast.unparse(node.value) if node.value else ""
    return f"- `{ast.unparse(node.target)}` = {default.strip('()')}{f': {said}' if said else ''}"
