"""TP108, TP109 and TP707 on what experiments found."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rules.helpers import make_frame
from trainproof.apart import Subject, judge_apart
from trainproof.experiments import Cause, Collapse, Experiment, Mismatch, Outcome, Scenario
from trainproof.frame import Frame
from trainproof.judge import Settings
from trainproof.verdict import RunReport

LOSS = [3.0 / i**0.3 for i in range(1, 41)]
RATE = [1e-3 * (1 - i / 50) for i in range(40)]
NORM = [1.0 + 0.01 * i for i in range(40)]


def judged(seen: Experiment, code: str = "TP707") -> RunReport:
    return judge_apart(
        "experiment", seen, Subject("job.py:make", "job", "resumed", 10), Settings(), (code,).__contains__
    )


def logs(**changed: Any) -> RunReport:
    """An uninterrupted log of 40 steps beside a resumed one of the steps from 21 on, with some of its values changed."""
    whole = make_frame(loss=LOSS, lr=RATE, grad_norm=NORM)
    values = {"loss": LOSS[20:], "lr": RATE[20:], "grad_norm": NORM[20:]}
    for name, (at, factor) in changed.items():
        values[name] = [v * (factor if i >= at else 1.0) for i, v in enumerate(values[name])]
    resumed: Frame = make_frame(values, steps=range(21, 41))
    return judged(Experiment(logs=(whole, resumed)))


def test_equal_logs_pass() -> None:
    assert logs().verdict.value == "PASS"
    assert logs(loss=(0, 1 + 1e-5)).verdict.value == "PASS"
    assert logs(loss=(10, 2.0)).verdict.value == "PASS"  # later steps are not compared


@pytest.mark.parametrize(
    ("metric", "at", "step", "cause"),
    [
        ("lr", 0, 21, "the scheduler's state"),
        ("loss", 0, 21, "the data, the random state or the weights"),
        ("loss", 1, 22, "the optimizer's state"),
        ("grad_norm", 0, 21, "the data or the random state"),
    ],
)
def test_the_first_metric_that_differs_points_to_the_part(metric: str, at: int, step: int, cause: str) -> None:
    (finding,) = logs(**{metric: (at, 1.1)}).findings
    assert (finding.rule, finding.severity.value, finding.first_step) == ("TP707", "FAIL", step)
    assert finding.message.endswith(f"points to {cause}.")


def test_logs_that_share_no_step_are_skipped() -> None:
    apart = make_frame({"loss": LOSS}, steps=range(101, 141))
    report = judged(Experiment(logs=(make_frame(loss=LOSS), apart)))
    assert (report.verdict.value, report.reason) == ("SKIP", "the two logs share no step with a loss")


def test_an_inexact_resume_names_what_is_missing() -> None:
    bad = Outcome(
        Scenario("boundary"), False, 6, ("scheduler", "rng.torch"), ("scheduler", "rng"), True, 0.25, 0.5, True, False
    )
    report = judged(Experiment(5, (bad, bad._replace(exact=True))))
    (finding,) = report.findings
    assert (
        "from step 6 on; first differs scheduler, rng.torch; missing: scheduler, rng (putting it back makes the resume exact)"
        in finding.message
    )
    assert report.checked == ("TP707",)


def test_a_mismatch_fails_at_its_step_and_tensor() -> None:
    assert judged(Experiment(again="the job", last=9), "TP109").verdict.value == "PASS"
    (finding,) = judged(
        Experiment(again="the job", last=9, mismatch=Mismatch(4, "state", "model.w", "a clock")), "TP109"
    ).findings
    assert (finding.rule, finding.first_step, finding.evidence[0].metric) == ("TP109", 4, "model.w")


def test_a_collapse_names_what_was_proved() -> None:
    cause = Cause("DATA", (40, 60), "shard-5", (50,), (339,), "it is necessary and sufficient")
    report = judged(Experiment(bisected=True, collapse=Collapse(60, 5.67, 0.4, cause, 17, 340)), "TP108")
    (finding,) = report.findings
    assert (
        "by step 60 (5.67); cause: DATA, shard shard-5, batch 50, sample 339, in steps 41 to 60; it is necessary"
        in finding.message
    )
    assert (finding.first_step, finding.last_step, finding.severity.value) == (41, 60, "FAIL")
    healthy = judged(Experiment(bisected=True), "TP108")
    assert healthy.verdict.value == "PASS"
    assert list(healthy.findings) == []
    assert judged(Experiment(), "TP108").verdict.value == "SKIP"
