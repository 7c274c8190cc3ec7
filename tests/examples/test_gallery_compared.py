"""The gallery beside its healthy runs: the blind spot of one curve is closed, and no healthy seed is told."""

from __future__ import annotations

from itertools import permutations

import pytest

import trainproof
from tests.examples.gallery import GALLERY, SEEDS, folder
from trainproof.report.text import render_text
from trainproof.verdict import RunReport, Severity, Verdict


def log(run: str, seed: int) -> str:
    return str(folder(run, seed) / "trainer_state.json")


def compared(run: str, seed: int, *baselines: int) -> RunReport:
    (report,) = trainproof.compare(log(run, seed), [log("healthy", other) for other in baselines]).runs
    return report


def rules(report: RunReport) -> set[str]:
    found = [f for finding in report.findings for f in (finding, *finding.related)]
    return {f.rule for f in found if f.severity is Severity.FAIL}


@pytest.mark.parametrize(("seed", "other"), list(permutations(SEEDS, 2)))
def test_every_healthy_seed_passes_against_every_other(seed: int, other: int) -> None:
    assert compared("healthy", seed, other).verdict is Verdict.PASS


@pytest.mark.parametrize("seed", SEEDS)
def test_every_healthy_seed_passes_against_the_band_of_the_others(seed: int) -> None:
    report = compared("healthy", seed, *(other for other in SEEDS if other != seed))
    assert report.verdict is Verdict.PASS
    assert {"TP971", "TP972", "TP976", "TP977", "TP978"} <= set(report.checked)


@pytest.mark.parametrize("baselines", [(42,), (43,), (44,), SEEDS])
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("run", "rule"),
    [("bad_labels", "TP971"), ("bad_labels", "TP972"), ("lr_hot", "TP971"), ("lr_zero", "TP971"), ("nan", "TP101")],
)
def test_a_faulty_run_fails_against_healthy_ones(run: str, rule: str, seed: int, baselines: tuple[int, ...]) -> None:
    report = compared(run, seed, *baselines)
    assert report.verdict is Verdict.FAIL
    assert rule in rules(report)


@pytest.mark.parametrize("seed", SEEDS)
def test_bad_labels_alone_does_not_fail(seed: int) -> None:
    assert trainproof.judge(log("bad_labels", seed)).verdict is Verdict.WARN


@pytest.mark.parametrize("run", ["nan", "lr_hot", "lr_zero"])
def test_a_run_that_fails_is_no_baseline(run: str) -> None:
    (report,) = trainproof.compare(log("healthy", 42), log(run, 43)).runs
    assert report.verdict is Verdict.SKIP
    assert report.compared is not None
    assert (report.compared.baselines[0].refused or "").startswith("it fails by itself")


def test_what_was_changed_stands_beside_the_verdict() -> None:
    report = compared("lr_hot", 43, 43)
    assert report.compared is not None
    changed = {change.name: (change.baselines, change.run) for change in report.compared.changes}
    assert changed["metadata.knobs.learning_rate"] == ("0.002", "0.2")
    assert not any("versions" in name for name in changed)


def test_the_readme_shows_what_is_said() -> None:
    text = render_text(trainproof.compare(log("bad_labels", 43), [log("healthy", seed) for seed in SEEDS]))
    readme = (GALLERY.parents[1] / "README.md").read_text(encoding="utf-8")
    shown = readme.partition("$ trainproof compare bad_labels")[2].partition("```")[0].splitlines()[1:]
    assert len(shown) == 8
    assert [line for line in shown if line.strip() not in text] == []
