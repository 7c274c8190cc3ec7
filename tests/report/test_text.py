from __future__ import annotations

import re

import pytest

from tests.report.corpus import (
    HOSTILE,
    REPORTS,
    crowded,
    dead,
    diverged,
    falling,
    finding,
    healthy,
    report,
    run,
    several,
    thirty,
)
from tests.report.goldens import FOLDER, GOLDENS, path
from trainproof.report.spark import ASCII_BLOCKS, BLOCKS, sparkline
from trainproof.report.text import render_text
from trainproof.verdict import Evidence, Panel, Severity, Verdict

ANSI = re.compile(r"\x1b\[[0-9;]*m")


@pytest.mark.parametrize("name", sorted(GOLDENS))
def test_golden(name: str) -> None:
    assert GOLDENS[name]() == path(name).read_text(encoding="utf-8"), "rebuild with: make goldens, and review the diff"


def test_no_golden_is_left_over() -> None:
    assert {file.stem for file in FOLDER.glob("*.txt")} == set(GOLDENS)


@pytest.mark.parametrize("name", sorted(REPORTS))
def test_no_control_character_reaches_the_terminal(name: str) -> None:
    seen = REPORTS[name]()
    plain = render_text(seen)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2028\ud800-\udfff]", plain)
    assert ANSI.sub("", render_text(seen, color=True)) == plain


@pytest.mark.parametrize("width", [1, 40, 72, 100, 1000])
def test_lines_fit_the_width(width: int) -> None:
    for line in render_text(diverged(), width=width).splitlines():
        assert len(line) <= max(60, min(width, 110)), line


def test_verdict_comes_first_and_every_part_of_a_finding_is_told() -> None:
    text = render_text(diverged())
    assert text.startswith("FAIL  trainer_state.json\n")
    last = re.escape(repr(diverged().runs[0].findings[0].evidence[1].value))
    for part in (
        r"FAIL  TP203 loss-diverged, steps 60 to 100",
        rf"loss  step 100  {last}\s+line 100",
        r"limits    ratio 1\.5, regained 0\.25, crossed at step 74",
        r"try       Lower the learning rate",
        r"with it   WARN TP401 grad-explosion, steps 56 to 100",
        r"page      rules/TP203\.md, or: trainproof rule TP203",
        r"INFO  TP003 step-overlap",
        r"checked   3 rules",
        r"skipped   3: no eval/loss in the log \(TP501, TP502\); no loss_scale in the log \(TP106\)",
        r"dropped   2 lines or cells: line 17: not a JSON object; line 18: cut off",
        r"masked    this logger may hide non-finite values of loss",
        r"changed   thresholds loss\.diverged_ratio = 1\.5",
    ):
        assert re.search(part, text), part


def test_quiet_is_one_line_a_run() -> None:
    assert render_text(diverged(), quiet=True) == "FAIL  trainer_state.json: TP203 loss-diverged at steps 60 to 100\n"
    assert len(render_text(thirty(), quiet=True).splitlines()) == 30


def test_of_many_runs_only_those_with_findings_get_a_block() -> None:
    lines = render_text(several()).splitlines()
    assert lines[0] == "PASS  runs/a.json: 3 rules ran on 100 records and found nothing to warn of"
    assert "SKIP  notes.jsonl: the log has no numeric records" in lines
    assert lines[-1] == "FAIL  5 runs: 1 FAIL, 1 WARN, 1 SKIP, 2 PASS"
    assert sum(line.startswith("      try ") for line in lines) == 2


def test_points_of_logs_without_lines_are_records() -> None:
    text = render_text(report(run({"loss": falling()}, [finding()], format="tensorboard")))
    assert "record 100" in text
    assert "line 100" not in text


def test_long_evidence_is_cut_and_counted() -> None:
    points = tuple(Evidence("loss", i, 1.0, i) for i in range(1, 21))
    text = render_text(report(run({"loss": falling()}, [finding(evidence=points)])))
    assert "step 8" in text
    assert "step 9 " not in text
    assert "and 12 more points" in text


def test_200_findings_are_all_told() -> None:
    text = render_text(crowded())
    assert len(re.findall(r"^(FAIL|WARN)  TP203", text, re.MULTILINE)) == 200


def test_a_run_with_notes_only_passes_in_one_line_among_others() -> None:
    noted = run({"loss": falling()}, [finding(Severity.INFO)], source="b")
    assert noted.verdict is Verdict.PASS
    assert render_text(report(noted, noted)).splitlines()[0].startswith("PASS  b: ")


def test_sparkline_shows_the_spike_the_fall_and_the_gap() -> None:
    panel = Panel("Loss", "", (("loss", tuple(range(8)), (4.0, 3.0, 2.0, 1.0, 4.5, 1.0, float("nan"), 1.0)),), (6,))
    assert sparkline(panel, 8) == "▇▅▃▁█▁x▁"
    assert sparkline(panel, 4) == "▇▃█x"
    assert sparkline(panel, 8, ASCII_BLOCKS) == "#+-_@_x_"


def test_sparkline_of_ugly_values() -> None:
    steps = tuple(range(4))
    for values in ((0.0,) * 4, (1e300, -1e300, 1.7e308, 5e-324), (float("nan"),) * 4, (float("inf"),) * 4):
        drawn = sparkline(Panel("Loss", "", (("loss", steps, values),)), 40)
        assert len(drawn) == 40
        assert set(drawn) <= {*BLOCKS, "x"}


def test_the_finding_is_marked_under_the_curve() -> None:
    lines = render_text(dead()).splitlines()
    curve = next(i for i, line in enumerate(lines) if "█" in line)
    at = lines[curve].index("x")
    assert lines[curve + 1].index("^") == at
    assert lines[curve + 1].strip() == "^ TP101, step 71"


def test_ascii_where_the_encoding_has_no_blocks() -> None:
    for encoding in ("ascii", "latin-1", "cp1252", "no-such-encoding"):
        render_text(healthy(), encoding=encoding).encode("ascii")
    assert "█" in render_text(healthy(), encoding="utf-8")


def test_hostile_names_are_told_as_they_are_spelled() -> None:
    text = render_text(report(run({"loss": falling()}, source=HOSTILE)))
    assert text.startswith("PASS  <script>alert(1)</script>\"'&\\x1b[31mred\\x1b]0;t\\x07\\x0d\\x0a\\u202egnp.exe")
