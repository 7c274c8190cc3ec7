"""Selection, skipping, segments, parts and folding."""

from __future__ import annotations

import gc
import math
import weakref
from pathlib import Path

import numpy as np
import pytest

from tests.rules.helpers import make_frame, make_series
from trainproof import read
from trainproof.errors import UsageError
from trainproof.frame import Frame, Segment
from trainproof.judge import Settings, judge_frames, judge_run, selected_rules
from trainproof.rules import log_rules
from trainproof.thresholds import Thresholds
from trainproof.verdict import RunReport, Verdict


def noisy(level: list[float], seed: int = 0) -> list[float]:
    return list(np.array(level) * np.random.default_rng(seed).lognormal(0, 0.02, len(level)))


def healthy() -> Frame:
    return make_frame(loss=noisy(list(np.geomspace(3, 1, 120))))


def rules_of(run: RunReport) -> list[str]:
    return [finding.rule for finding in run.findings]


def test_every_rule_either_ran_or_says_why_not() -> None:
    run = judge_run(healthy())
    assert run.verdict is Verdict.PASS
    assert set(run.checked) | set(run.skipped) == set(log_rules())
    assert not set(run.checked) & set(run.skipped)
    assert run.skipped["TP301"] == "no lr in the log"


def test_a_resumed_run_has_learned_in_an_earlier_segment() -> None:
    """After a resume late in training the loss hardly falls any more."""
    loss = noisy([*np.geomspace(3, 1, 120), *[1.0] * 120])
    resumed = make_frame(loss=loss, segments=[Segment(1, 120, "start"), Segment(121, 240, "resume at step 121")])
    assert "TP205" in judge_run(resumed).checked
    assert "TP205" not in rules_of(judge_run(resumed))


def test_a_run_that_nothing_could_judge_is_skip_and_never_pass() -> None:
    run = judge_run(make_frame(time=[1.0, 2.0, 3.0]))
    assert run.verdict is Verdict.SKIP
    assert run.reason is not None
    assert "--map" in run.reason


def test_a_log_that_leaves_the_losses_to_another_file_is_judged_by_the_rest_and_says_so() -> None:
    run = judge_run(make_frame(memory=[6.0] * 30, facts={"losses_in": "stats.jsonl"}))
    assert (run.verdict, run.reason) == (Verdict.PASS, "this log has no loss: judge stats.jsonl beside it, too")
    assert judge_run(make_frame(memory=[6.0] * 30)).verdict is Verdict.SKIP


def test_an_empty_frame_is_skip() -> None:
    assert judge_run(Frame({})).verdict is Verdict.SKIP


def test_points_are_no_curve_unless_something_is_wrong_with_them() -> None:
    two = judge_run(make_frame(loss=[2.0, 1.9]))
    assert (two.verdict, two.reason) == (Verdict.SKIP, "too few records to judge: 2, and a curve needs 3")
    assert judge_run(make_frame(loss=[2.0, 1.9, 1.8])).verdict is Verdict.PASS
    assert judge_run(make_frame(loss=[2.0, math.nan])).verdict is Verdict.FAIL


def test_selection_by_code_prefix_and_exclusion() -> None:
    chosen = [rule.code for rule in selected_rules(Settings(select=("TP2", "TP101"), ignore=("TP204",)))]
    assert "TP101" in chosen
    assert "TP203" in chosen
    assert "TP204" not in chosen
    assert "TP301" not in chosen


@pytest.mark.parametrize("settings", [Settings(select=("TP9x",)), Settings(ignore=("nonsense",))])
def test_an_unknown_selector_is_a_usage_error(settings: Settings) -> None:
    with pytest.raises(UsageError, match="trainproof rules"):
        selected_rules(settings)


def test_the_worst_run_decides() -> None:
    bad = make_frame(loss=[1.0, math.nan, math.nan])
    report = judge_frames([healthy(), bad])
    assert [run.verdict for run in report.runs] == [Verdict.PASS, Verdict.FAIL]
    assert report.verdict is Verdict.FAIL


def test_a_changed_threshold_counts_and_is_named() -> None:
    frame = make_frame(loss=noisy([1.5] * 50 + [2.4] * 50))
    assert judge_run(frame).verdict is Verdict.FAIL
    eased = Settings(select=("TP203",), thresholds=Thresholds().with_overrides({"loss.diverged_ratio": 2.0}))
    run = judge_run(frame, eased)
    assert run.verdict is Verdict.WARN
    assert run.overrides == {"loss.diverged_ratio": 2.0}


def test_an_unknown_threshold_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match=r"loss\.nonsense"):
        Thresholds().with_overrides({"loss.nonsense": 1.0})


def test_statistics_do_not_cross_a_restart() -> None:
    loss = noisy([3.0] * 60 + [1.0] * 60) + noisy([3.0] * 60)
    jumped = make_frame(loss=loss)
    resumed = make_frame(loss=loss, segments=(Segment(1, 120, "start"), Segment(121, 180, "resume at step 121")))
    assert "TP203" in rules_of(judge_run(jumped, Settings(select=("TP203",))))
    assert rules_of(judge_run(resumed, Settings(select=("TP203",)))) == []


def test_a_loss_known_only_in_parts_is_judged_by_part() -> None:
    parts = {"loss/box": noisy([1.5] * 100), "loss/cls": noisy([1.5] * 50 + [4.5] * 50)}
    frame = Frame({name: make_series(name, values) for name, values in parts.items()})
    run = judge_run(frame, Settings(select=("TP203",)))
    assert [finding.evidence[0].metric for finding in run.findings] == ["loss/cls"]


def test_one_fault_is_told_once_with_what_came_with_it() -> None:
    run = judge_run(make_frame(loss=noisy([1.5] * 100 + [4.5] * 100)))
    assert rules_of(run) == ["TP203"]
    related = {finding.rule for finding in run.findings[0].related}
    assert "TP201" in related


def test_findings_far_apart_are_told_apart() -> None:
    level = [1.5] * 100 + [6.0] * 8 + [1.4] * 400 + [math.nan] * 5
    run = judge_run(make_frame(loss=noisy(level)))
    assert rules_of(run) == ["TP101", "TP201"]


def test_what_is_read_by_guess_is_a_warning_at_most_unless_a_value_is_not_finite() -> None:
    frame = make_frame(loss=noisy([1.5] * 100 + [4.5] * 100))
    assert judge_run(frame).verdict is Verdict.FAIL
    run = judge_run(frame.replace(guessed="read as lines of `key: value`, counted by step"))
    assert run.verdict is Verdict.WARN
    assert rules_of(run) == ["TP203", "TP006"]
    nan = make_frame(loss=[*noisy([1.5] * 100), math.nan]).replace(
        guessed="read as lines of `key: value`, counted by step"
    )
    assert judge_run(nan).verdict is Verdict.FAIL


def test_a_loss_that_is_summed_up_is_not_taken_for_one_that_diverges() -> None:
    losses = 1 + np.exp(-np.arange(200) / 60) + 0.05 * np.random.default_rng(0).normal(size=200)
    run = judge_run(make_frame(loss=np.cumsum(losses)))
    assert run.skipped["TP203"] == "the loss is a sum since the start; log its mean"
    assert run.findings == ()
    assert run.verdict is Verdict.PASS or run.reason
    diverging = judge_run(make_frame(loss=losses * np.exp(np.arange(200) / 60)))
    assert diverging.verdict is Verdict.FAIL


def test_a_log_that_was_judged_leaves_memory_at_once(tmp_path: Path) -> None:
    """Without waiting for the garbage collector: a folder may hold thousands of logs."""
    log = tmp_path / "log.jsonl"
    log.write_text("".join(f'{{"step": {i}, "loss": {3 / i}, "lr": 0.1}}\n' for i in range(1, 301)))
    gc.collect()
    gc.disable()
    try:
        frame = read(log)
        assert isinstance(frame, Frame)
        judge_run(frame)
        left = [weakref.ref(kept) for series in frame.values() for kept in (series, series.value)]
        del frame
        assert [kept() for kept in left] == [None] * len(left)
    finally:
        gc.enable()
