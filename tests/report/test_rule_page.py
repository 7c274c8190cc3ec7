from __future__ import annotations

import re

import pytest

from trainproof import thresholds
from trainproof.report.rule_page import PREFLIGHT_SECTIONS, SECTIONS, page, rule_text, rules_table, summary
from trainproof.rules import all_rules
from trainproof.rules.registry import APART, PREFLIGHT

RULES = list(all_rules().values())


@pytest.mark.parametrize("code", sorted(all_rules()))
def test_every_rule_has_a_whole_page(code: str) -> None:
    rule = all_rules()[code]
    told = page(rule)
    assert told.startswith(f"# {code} {rule.name}\n\n{summary(rule)}\n")
    titles = re.findall(r"^## (.*)$", told, re.MULTILINE)
    if rule.family in PREFLIGHT:
        assert [title for title in titles if title != "What it does"] == [
            *PREFLIGHT_SECTIONS,
            "What to try",
            "Thresholds",
        ]
    else:
        assert titles == [*SECTIONS, "Thresholds", *(["Evidence"] if rule.family not in APART else [])]
    assert not re.search(r"\n\n\n| \n", told)
    assert max(map(len, told.splitlines())) < 220
    assert summary(rule).endswith(".")


def test_page_of_a_rule_tells_its_needs_and_its_numbers() -> None:
    told = page(all_rules()["TP203"])
    assert "- Severity: at most FAIL" in told
    assert "- Needs: `loss`; at least 9 records" in told
    assert "- A live guardian may stop a run on it: yes" in told
    ratio = thresholds.LossThresholds().diverged_ratio
    assert f"- `loss.diverged_ratio` = {ratio}: level over best level, FAIL" in told
    assert "spike_" not in told, "a threshold of another rule"


def test_page_of_a_rule_shows_the_run_that_it_catches() -> None:
    told = page(all_rules()["TP301"])
    assert "Gallery run `lr_zero` (learning rate 0): seed 42 FAIL, seed 43 FAIL, seed 44 FAIL." in told
    assert "    lr  step 65  0\n" in told
    assert re.search(r"It ran on (\d+) healthy runs of the gallery, and neither warned nor failed on \1 of them", told)


def test_defaults_on_pages_are_those_in_force() -> None:
    in_force = thresholds.Thresholds()
    for rule in RULES:
        for family, name, default in re.findall(r"^- `(\w+)\.(\w+)` = ([^:\n]+)", page(rule), re.MULTILINE):
            value = getattr(getattr(in_force, family), name)
            assert default == (", ".join(map(repr, value)) if isinstance(value, tuple) else repr(value)), name


def test_text_is_the_page_without_markup() -> None:
    text = rule_text(all_rules()["TP203"])
    assert text.startswith("TP203 loss-diverged\n\n  The loss left its best level")
    assert "\nWhat to try\n\n  Resume" in text
    assert not re.search(r"^#|`", text, re.MULTILINE)


def test_a_docstring_without_a_section_is_refused() -> None:
    rule = all_rules()["TP203"]

    def check(*_: object) -> None:
        """Only a summary."""

    with pytest.raises(ValueError, match="TP203: its docstring lacks What it does, Why it matters"):
        page(rule._replace(check=check))  # type: ignore[arg-type]  # only its docstring is read


def test_table_lists_every_rule_once() -> None:
    lines = rules_table().splitlines()
    assert [line.split()[0] for line in lines] == list(all_rules())
    assert lines[0].split()[:2] == ["TP001", "no-usable-records"]
