"""The report on a run beside its baselines: verdict, refusals, what is told of the comparison."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

import jsonschema
import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import trainproof
from tests.comparing.helpers import COMPARED, compared, falling, findings, noise, run_of, trusted
from tests.rules.helpers import make_frame
from trainproof.comparing.compare import baseline_of, compare_run, stored_baseline
from trainproof.comparing.summary import summarise
from trainproof.errors import UsageError
from trainproof.facts import FactValue
from trainproof.frame import Frame, Repair
from trainproof.judge import DEFAULTS, judge_run, report_of
from trainproof.report.html import render_html
from trainproof.report.json import json_schema, render_json
from trainproof.report.text import render_text
from trainproof.verdict import Compared, RunReport, Severity, Verdict


def judged(run: Frame, *baselines: Frame) -> RunReport:
    """The whole report: all rules, on the run and on the baselines."""
    found = [baseline_of(one, f"baseline {i}", judge_run(one), {}) for i, one in enumerate(baselines, 1)]
    return compare_run(run, found, DEFAULTS)


def comparison(report: RunReport) -> Compared:
    assert report.compared is not None
    return report.compared


def test_the_single_run_rules_are_part_of_the_verdict() -> None:
    lost = falling(200, 1)
    lost[150:] = math.nan
    report = judged(make_frame(loss=lost), run_of(2))
    assert report.verdict is Verdict.FAIL
    assert findings(report)["TP101"].severity is Severity.FAIL
    assert {"TP101", "TP203", "TP971", "TP984"} <= set(report.checked)
    assert comparison(report).matched == 150


def test_a_run_that_no_rule_of_its_own_tells_is_told_by_its_baseline() -> None:
    """The blind spot of a single curve: it falls by 62 % and looks healthy."""
    run = run_of(1, times=1.5)
    assert judge_run(run).verdict is Verdict.PASS
    assert judged(run, run_of(2)).verdict is Verdict.FAIL


def test_findings_are_told_worst_first() -> None:
    report = judged(run_of(1, times=1.5, grad_norm=5 * noise(200, 3)), run_of(2, grad_norm=noise(200, 4)))
    ranks = [f.severity for f in report.findings]
    assert ranks == sorted(ranks, key=[Severity.FAIL, Severity.WARN, Severity.INFO].index)


# --- baselines that are refused


def lost(seed: int) -> Frame:
    return make_frame(loss=np.append(falling(200, seed)[:150], [math.nan] * 50))


def test_a_baseline_that_fails_is_refused_with_the_reason() -> None:
    report = judged(run_of(1), lost(2))
    assert report.verdict is Verdict.SKIP
    assert report.reason is not None
    assert report.reason.startswith(
        "no baseline can be compared with: baseline 1: it fails by itself (TP101 nonfinite-loss"
    )
    (refused,) = comparison(report).baselines
    assert (refused.verdict, refused.matched) == (Verdict.FAIL, 0)


def test_a_run_that_fails_by_itself_fails_without_a_baseline_too() -> None:
    report = judged(lost(1), lost(2))
    assert report.verdict is Verdict.FAIL
    assert comparison(report).figures == ()


def test_the_others_are_compared_with_when_one_is_refused() -> None:
    report = judged(run_of(1), lost(2), run_of(3))
    assert report.verdict is Verdict.PASS
    assert [one.refused is None for one in comparison(report).baselines] == [False, True]
    assert [one.matched for one in comparison(report).baselines] == [0, 200]


@pytest.mark.parametrize(
    ("baseline", "reason"),
    [
        (make_frame(loss=[2.0] * 60), "no usable scale (fewer than 5 finite values of the loss, or all the same)"),
        (
            make_frame(loss=falling(200, 2), objective="classification"),
            "another objective (classification; the run is lm)",
        ),
        (make_frame(grad_norm=noise(200, 1)), "no usable scale (neither a loss nor an evaluation)"),
        (make_frame(time=[1.0, 2.0]), "nothing of it could be judged"),
    ],
)
def test_a_baseline_without_a_scale_or_of_another_objective_is_refused(baseline: Frame, reason: str) -> None:
    report = judged(run_of(1, objective="lm"), baseline)
    assert report.verdict is Verdict.SKIP
    assert reason in (comparison(report).baselines[0].refused or "")


def test_an_unknown_objective_is_compatible() -> None:
    assert judged(run_of(1, objective="lm"), run_of(2)).verdict is Verdict.PASS


def test_nothing_in_common_is_no_pass() -> None:
    report = compared(make_frame(loss=falling(50)), make_frame(loss=falling(50), steps=range(1000, 1050)))
    assert report.verdict is Verdict.SKIP
    assert report.reason == "the run could not be compared: no matched records of loss"


def test_without_a_baseline_there_is_nothing_to_do() -> None:
    with pytest.raises(UsageError, match="nothing to compare with"):
        compare_run(run_of(1), [], COMPARED)


# --- what is told


def test_the_report_says_with_what_and_over_what() -> None:
    told = comparison(compared(make_frame(loss=falling(120, 1)), run_of(2)))
    assert (told.axis, told.how, told.matched, told.first_step, told.last_step) == ("step", "steps", 120, 1, 120)
    assert told.seeds.startswith("one baseline: the spread of seeds is unknown")
    assert comparison(compared(run_of(1), run_of(2), run_of(3))).seeds == "the spread of seeds comes from 2 baselines"


def test_figures_say_what_noise_would_have_hidden() -> None:
    def resolves(sigma: float) -> float:
        told = comparison(compared(run_of(1, 600, sigma), run_of(2, 600, sigma)))
        (figure,) = [f for f in told.figures if f.rule == "TP971"]
        return float(figure.resolves or 0)

    assert 0.02 < resolves(0.02) < 0.04 < resolves(0.2)


def test_disorder_of_a_baseline_is_named() -> None:
    repair = Repair("disorder", 1, 200, 7, 90, 200, "the lines are out of order; they were sorted by step")
    base = run_of(2).replace(repairs=(repair,))
    report = compare_run(run_of(1), [baseline_of(base, "b", judge_run(base), {})], DEFAULTS)
    assert comparison(report).baselines[0].notes == ("disorder: the lines are out of order; they were sorted by step",)
    assert "out of order" in render_text(report_of([report], "compare"))


def test_changed_facts_and_settings_are_listed_once() -> None:
    run = run_of(1, facts={"learning_rate": 0.2, "seed": 1, "optimizer": "adamw"})
    bases = [
        trusted(
            run_of(seed, facts={"learning_rate": 0.1, "seed": seed, "optimizer": "adamw"}), f"b{seed}", {"config.x": 3}
        )
        for seed in (2, 3)
    ]
    beside: Mapping[str, FactValue] = {"config.y": True}
    told = comparison(compare_run(run, bases, COMPARED, beside=beside)).changes
    assert [(one.name, one.baselines, one.run) for one in told] == [
        ("learning_rate", "0.1", "0.2"),
        ("seed", "2, 3", "1"),
        ("config.y", None, "True"),
        ("config.x", "3", None),
    ]


# --- pictures and files


def test_one_baseline_is_drawn_and_several_are_a_band() -> None:
    one, several = compared(run_of(1), run_of(2)), compared(run_of(1), run_of(2), run_of(3), run_of(4, times=1.1))
    assert [name for name, _, _ in one.panels[0].series] == ["loss", "baseline loss"]
    assert one.panels[0].band is None
    assert [name for name, _, _ in several.panels[0].series] == ["loss"]
    band = several.panels[0].band
    assert band is not None
    name, steps, low, high = band
    assert name == "3 baselines"
    assert len(steps) == len(low) == len(high) == 200
    assert all(a <= b for a, b in zip(low, high, strict=True))
    at = steps.index(100)
    values = [falling(200, 2)[99], falling(200, 3)[99], falling(200, 4, times=1.1)[99]]
    assert [low[at], high[at]] == pytest.approx([min(values), max(values)])


def test_the_matched_ratio_is_drawn_around_one() -> None:
    panel = compared(run_of(1, times=1.5), run_of(2)).panels[1]
    assert (panel.title, panel.level, [name for name, _, _ in panel.series]) == ("Matched ratio", 1.0, ["ratio"])
    assert float(np.median(panel.series[0][2])) == pytest.approx(1.5, abs=0.01)
    several = compared(run_of(1), *(run_of(seed) for seed in range(2, 9))).panels[1]
    assert len(several.series) == 4


def test_a_million_records_are_drawn_with_a_thousand_points() -> None:
    report = compared(run_of(1, 20_000), run_of(2, 20_000))
    assert all(len(steps) <= 1000 for panel in report.panels for _, steps, _ in panel.series)


def test_the_page_shows_band_level_divergence_figures_and_changes() -> None:
    bases = [trusted(run_of(seed), f"<b>{seed}", {"config.x": "<script>"}) for seed in (2, 3)]
    page = render_html(report_of([compare_run(run_of(1, times=1.5), bases, COMPARED)], "compare"))
    for part in (
        'class="area"',
        'class="level"',
        'class="vertical"',
        "apart since here, step",
        "matched loss",
        "2 baselines",
    ):
        assert part in page
    assert "&lt;b&gt;2" in page
    assert "<script>" not in page


def test_the_text_shows_figures_and_baselines() -> None:
    text = render_text(report_of([judged(run_of(1), run_of(2))], "compare"))
    for part in (
        "compared  with 1 baseline, matched by step",
        "would have told",
        "matched loss",
        "baseline 1 (PASS, 200 of 200",
    ):
        assert part in text


def test_the_json_is_valid_by_its_schema_and_only_comparisons_say_compared() -> None:
    for report in (judged(run_of(1, times=1.5), run_of(2)), judged(run_of(1), lost(2))):
        document = json.loads(render_json(report_of([report], "compare")))
        jsonschema.Draft202012Validator(json_schema()).validate(document)
        assert document["command"] == "compare"
        assert document["runs"][0]["compared"]["axis"] == "step"
    assert "compared" not in json.loads(render_json(report_of([judge_run(run_of(1))])))["runs"][0]


# --- from Python


def test_compare_takes_tables_frames_and_paths(tmp_path: object) -> None:
    table = {"step": list(range(1, 201)), "loss": falling(200, 1).tolist()}
    base = {"step": list(range(1, 201)), "loss": falling(200, 2).tolist()}
    reports = [
        trainproof.compare(table, base),
        trainproof.compare(pd.DataFrame(table), [pd.DataFrame(base)]),
        trainproof.compare(trainproof.Frame.from_pandas(pd.DataFrame(table)), [pd.DataFrame(base)]),
    ]
    assert {report.command for report in reports} == {"compare"}
    assert {report.verdict for report in reports} == {Verdict.PASS}
    figures = [[f.change for f in comparison(report.runs[0]).figures] for report in reports]
    assert figures == [figures[0]] * 3
    assert trainproof.compare(table, [base, base, base]).runs[0].compared is not None


def test_facts_are_those_of_the_run() -> None:
    base = {"loss": falling(200, 2).tolist()}
    report = trainproof.compare({"loss": falling(200, 1).tolist()}, base, facts={"seed": 7})
    assert [(c.name, c.run, c.baselines) for c in comparison(report.runs[0]).changes] == [("seed", "7", None)]
    with pytest.raises(UsageError, match="not a known fact"):
        trainproof.compare(base, base, facts={"colour": 1})
    with pytest.raises(UsageError, match="no rule matches"):
        trainproof.compare(base, base, select=["XX9"])
    with pytest.raises(UsageError, match="unknown profile 'physics'"):
        trainproof.compare(base, base, profile="physics")
    assert (
        trainproof.compare(base, base, profile="rl").runs[0].overrides
        == trainproof.judge(base, profile="rl").runs[0].overrides
    )
    with pytest.raises(UsageError, match="--align tokens"):
        trainproof.compare(base, base, align="tokens")


# --- hostile input

VALUES = st.lists(
    st.one_of(st.floats(), st.sampled_from([0.0, 1.0, 2.0, math.nan, math.inf, 1e308, 5e-324])), max_size=70
)


@settings(max_examples=30)
@example([1.0, 1.5e95], [], [1.0, 8.6e-214], [], "lm")  # a ratio that no float holds
@given(
    mine=VALUES,
    theirs=VALUES,
    third=VALUES,
    counter=VALUES,
    objective=st.sampled_from(["lm", "rl", "density", "unknown"]),
)
def test_no_curve_crashes_a_comparison(
    mine: list[float], theirs: list[float], third: list[float], counter: list[float], objective: str
) -> None:
    def frame(loss: list[float], other: list[float]) -> Frame:
        named = {"eval/loss": other, "tokens": other, "lr": loss, "memory": other, "throughput": loss, "reward": other}
        kept = {name: values for name, values in {"loss": loss, "grad_norm": other, **named}.items() if values}
        return make_frame(kept, objective=objective)

    report = compared(frame(mine, counter), frame(theirs, counter), frame(third, mine))
    assert report.verdict in Verdict
    whole = report_of([report], "compare")
    jsonschema.Draft202012Validator(json_schema()).validate(json.loads(render_json(whole)))
    assert render_text(whole)
    assert render_html(whole)
    for one in (frame(theirs, counter), frame(third, mine)):
        if one.records:
            beside = compare_run(
                frame(mine, counter), [stored_baseline(summarise(one, "PASS", {}), "stored")], COMPARED
            )
            assert beside.verdict in Verdict
