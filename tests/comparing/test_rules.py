"""Each comparison rule: what it sees, what it leaves alone, and when it says that it cannot tell."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from tests.comparing.helpers import COMPARED, compared, falling, findings, noise, run_of, severities, trusted
from tests.rules.helpers import learning_rate, make_frame
from trainproof.comparing.compare import compare_run
from trainproof.facts import FactValue
from trainproof.frame import Frame
from trainproof.judge import Settings
from trainproof.rules import own_rules
from trainproof.rules.registry import COMPARISON
from trainproof.verdict import Figure, RunReport, Severity, Verdict

FAIL, WARN, INFO = Severity.FAIL, Severity.WARN, Severity.INFO
CODES = [code for code, rule in own_rules().items() if rule.family == COMPARISON]


def figure(report: RunReport, code: str) -> Figure:
    assert report.compared is not None
    (found,) = [f for f in report.compared.figures if f.rule == code]
    return found


@pytest.mark.parametrize("code", CODES)
def test_a_run_of_another_seed_is_not_told(code: str) -> None:
    everything = {
        "lr": learning_rate(400),
        "memory": np.full(400, 8e9),
        "eval/loss": (range(20, 401, 20), falling(400, 9)[19::20]),
        "eval/accuracy": (range(20, 401, 20), 0.8 * noise(20, 3, 0.003)),
    }

    def one(seed: int) -> Frame:
        return make_frame(
            {**everything, "eval/loss": (range(20, 401, 20), falling(400, 50 + seed, sigma=0.002)[19::20])},
            loss=falling(400, seed),
            grad_norm=noise(400, 100 + seed, 0.3),
            throughput=1000 * noise(400, 200 + seed, 0.05),
        )

    for baselines in ([one(1)], [one(1), one(2), one(3)]):
        report = compared(one(0), *baselines)
        assert code in report.checked
        assert code not in findings(report)
        assert report.verdict is Verdict.PASS


# --- TP971, TP972, TP977: levels of the loss


@pytest.mark.parametrize(("times", "severity"), [(1.035, WARN), (1.10, FAIL)])
def test_tp971_a_loss_that_is_higher_all_along(times: float, severity: Severity) -> None:
    report = compared(run_of(1, 1000, times=times), run_of(2, 1000))
    assert severities(report)["TP971"] is severity
    seen = findings(report)["TP971"]
    assert (seen.first_step, seen.last_step, seen.flagged_step) == (801, 1000, 1000)
    assert {point.metric for point in seen.evidence} == {"loss", "baseline loss"}
    assert figure(report, "TP971").change == pytest.approx(times - 1, abs=0.01)


def test_tp971_a_better_run_is_not_told() -> None:
    assert severities(compared(run_of(1, times=0.7), run_of(2))) == {}


def test_tp971_several_baselines_see_what_one_leaves_alone() -> None:
    run = run_of(1, 2000, times=1.018)
    baselines = [run_of(seed, 2000) for seed in range(2, 7)]
    assert "TP971" not in severities(compared(run, baselines[0]))
    report = compared(run, *baselines)
    assert severities(report)["TP971"] is WARN
    assert "the middle of 5 baselines" in findings(report)["TP971"].message
    assert float(figure(report, "TP971").low) < float(figure(report, "TP971").high)


def test_tp971_seeds_that_differ_widely_allow_more() -> None:
    apart = [run_of(seed, 1000, times=times) for seed, times in ((2, 0.9), (3, 1.0), (4, 1.1), (5, 0.95))]
    run = run_of(1, 1000, times=1.08)
    assert "TP971" in severities(compared(run, apart[1]))
    assert severities(compared(run, *apart)) == {}


def test_tp971_noise_that_hides_too_much_is_no_pass() -> None:
    report = compared(run_of(1, 100, sigma=1.2), run_of(2, 100, sigma=1.2))
    assert report.skipped["TP971"].startswith("too noisy to tell: a difference of")
    assert report.verdict is Verdict.SKIP
    assert report.reason is not None
    assert "could not be compared: too noisy" in report.reason


def test_tp972_a_floor_that_is_too_high() -> None:
    loss = falling(400, 1)
    stuck = np.maximum(loss, 1.4 * noise(400, 5))
    stuck[-40:] = falling(400, 3)[-40:] * 1.12
    report = compared(make_frame(loss=stuck), make_frame(loss=falling(400, 2)))
    assert severities(report)["TP972"] is FAIL
    assert float(figure(report, "TP972").run) > 1.2


def test_tp977_what_goes_wrong_at_the_very_end() -> None:
    loss = falling(400, 1)
    loss[-20:] *= 1.25
    report = compared(make_frame(loss=loss), make_frame(loss=falling(400, 2)))
    assert severities(report)["TP977"] is FAIL
    assert "TP971" not in severities(report), "the median of a fifth does not see a twentieth"


# --- TP973: whole-number ratios


@pytest.mark.parametrize(("times", "what"), [(8.0, "8 within"), (0.25, "1/4 within")])
def test_tp973_a_sum_in_the_place_of_a_mean(times: float, what: str) -> None:
    run = run_of(1, times=times, grad_norm=times * noise(200, 3, 0.1))
    report = compared(run, run_of(2, grad_norm=noise(200, 4, 0.1)))
    seen = findings(report)["TP973"]
    assert seen.severity is FAIL
    assert what in seen.message
    assert "The gradient norm is" in seen.message


@pytest.mark.parametrize("times", [1.0, 1.5, 2.2, 1 / 2.3])
def test_tp973_other_ratios_are_none(times: float) -> None:
    assert "TP973" not in findings(compared(run_of(1, times=times), run_of(2)))


def test_tp973_a_ratio_that_moves_is_none() -> None:
    moving = make_frame(loss=falling(200, 1) * np.linspace(1, 3, 200))
    assert "TP973" not in findings(compared(moving, run_of(2)))


def test_tp973_five_records_are_enough() -> None:
    assert "TP973" in findings(compared(make_frame(loss=[10.0] * 5), make_frame(loss=[2.0] * 5)))


# --- TP975, TP976, TP983, TP984: the course


def slower(n: int = 400, seed: int = 1, factor: float = 3.0) -> Frame:
    """A run that learns `factor` times slower."""
    return make_frame(loss=(1.15 + 0.65 * np.exp(-np.arange(n) / (n / 5 * factor))) * noise(n, seed))


def test_tp975_a_run_that_falls_behind() -> None:
    loss = falling(400, 1) * np.linspace(1, 1.15, 400)
    report = compared(make_frame(loss=loss), run_of(2, 400))
    assert severities(report)["TP975"] is WARN
    assert figure(report, "TP975").change == pytest.approx(0.15, abs=0.03)
    assert "TP975" not in findings(compared(run_of(1, 400, times=1.1), run_of(2, 400))), "apart, but not going apart"


def test_tp976_a_run_that_does_not_learn() -> None:
    flat = make_frame(loss=1.8 * noise(400, 1))
    report = compared(flat, run_of(2, 400))
    assert severities(report)["TP976"] is FAIL
    shifted = compared(run_of(1, 400, times=1.5), run_of(2, 400))
    assert "TP976" not in findings(shifted), "it learned as much from another start"


def test_tp983_a_run_that_needs_longer() -> None:
    report = compared(slower(), run_of(2, 400))
    seen = findings(report)["TP983"]
    assert seen.severity is WARN
    assert "times as long" in seen.message or "nowhere" in seen.message
    assert float(figure(report, "TP983").change) > 0.25
    never = findings(compared(make_frame(loss=1.8 * noise(400, 1)), run_of(2, 400)))["TP983"]
    assert "nowhere in the shared range" in never.message


def test_tp983_a_baseline_that_stands_still_sets_no_target() -> None:
    flat = make_frame(loss=1.2 * noise(400, 1))
    report = compared(run_of(2, 400), flat)
    assert report.skipped["TP983"] == "no baseline improves enough to give a target"


def test_tp984_tells_since_when() -> None:
    loss = falling(400, 2).copy()
    base = loss.copy()
    loss[150:] *= 1.2
    report = compared(make_frame(loss=loss), make_frame(loss=base))
    seen = findings(report)["TP984"]
    assert seen.severity is INFO
    assert seen.first_step == pytest.approx(151, abs=10)
    assert "above the baseline" in seen.message
    assert "equal up to step 150" in seen.message
    assert report.compared is not None
    assert report.compared.first_divergence == seen.first_step
    assert any(panel.marks == ((seen.first_step, "apart since here"),) for panel in report.panels)


def test_tp984_a_gap_that_closes_is_no_divergence() -> None:
    loss = falling(400, 1)
    loss[100:200] *= 1.3
    report = compared(make_frame(loss=loss), run_of(2, 400))
    assert "TP984" not in findings(report)


# --- TP978: evaluations


def evaluated(seed: int, *, loss: float = 1.5, accuracy: float = 0.8, evals: int = 20) -> Frame:
    steps = range(10, 10 * evals + 1, 10)
    named = {
        "eval/loss": (steps, loss * noise(evals, seed, 0.002)),
        "eval/accuracy": (steps, accuracy * noise(evals, seed + 50, 0.003)),
    }
    return make_frame(named, loss=falling(10 * evals, seed))


@pytest.mark.parametrize(
    ("loss", "accuracy", "severity", "metric"),
    [
        (1.6, 0.8, FAIL, "eval/loss"),
        (1.55, 0.8, WARN, "eval/loss"),
        (1.5, 0.74, WARN, "eval/accuracy"),
        (1.5, 0.6, FAIL, "eval/accuracy"),
    ],
)
def test_tp978_a_metric_that_is_worse_in_its_own_direction(
    loss: float, accuracy: float, severity: Severity, metric: str
) -> None:
    report = compared(evaluated(1, loss=loss, accuracy=accuracy), evaluated(2))
    seen = [f for f in report.findings if f.rule == "TP978"]
    assert [(f.severity, f.evidence[0].metric) for f in seen] == [(severity, metric)]
    assert ("below" if metric == "eval/accuracy" else "above") in seen[0].message


@pytest.mark.parametrize(("loss", "accuracy"), [(1.2, 0.8), (1.5, 0.9)])
def test_tp978_a_better_metric_is_not_told(loss: float, accuracy: float) -> None:
    assert severities(compared(evaluated(1, loss=loss, accuracy=accuracy), evaluated(2))) == {}


def test_tp978_small_shares_need_a_difference_that_counts() -> None:
    assert severities(compared(evaluated(1, accuracy=0.012), evaluated(2, accuracy=0.02))) == {}


def test_tp978_one_evaluation_needs_several_baselines() -> None:
    run = evaluated(1, accuracy=0.5, evals=1)
    one = compared(run, evaluated(2, evals=1))
    assert "their noise is unknown" in one.skipped["TP978"]
    several = compared(run, *(evaluated(seed, evals=1) for seed in (2, 3, 4)))
    assert severities(several)["TP978"] is FAIL
    assert severities(compared(evaluated(9, evals=1), *(evaluated(s, evals=1) for s in (2, 3, 4)))) == {}


def test_tp978_the_reward_of_reinforcement_learning() -> None:
    def trained(seed: int, top: float) -> Frame:
        reward = np.linspace(0.1, top, 200) + np.random.default_rng(seed).normal(0, 0.02, 200)
        return make_frame(reward=reward, loss=np.random.default_rng(seed).normal(0, 1, 200), objective="rl")

    report = compared(trained(1, 0.6), trained(2, 0.9))
    assert severities(report) == {"TP978": FAIL}
    assert report.skipped["TP971"] == "not for the objective rl"
    assert severities(compared(trained(1, 0.9), trained(2, 0.9))) == {}


# --- TP974, TP979 to TP982: settings, rates and costs


def test_tp974_names_what_changed_in_the_environment() -> None:
    run, base = run_of(1), trusted(run_of(2), settings={"metadata.versions.torch": "2.4", "metadata.lr": 0.1})
    report = compare_run(run, [base], COMPARED, beside={"metadata.versions.torch": "2.5", "metadata.lr": 0.2})
    seen = findings(report)["TP974"]
    assert seen.severity is INFO
    assert "metadata.versions.torch 2.4 -> 2.5" in seen.message
    assert "metadata.lr" not in seen.message
    assert report.compared is not None
    assert {change.name for change in report.compared.changes} == {"metadata.versions.torch", "metadata.lr"}


def rated(seed: int, peak: float, facts: dict[str, FactValue] | None = None) -> Frame:
    return run_of(seed, lr=learning_rate(200, peak=peak), facts=facts)


def test_tp979_another_rate_is_told_and_an_undeclared_one_is_a_fault() -> None:
    seen = findings(compared(rated(1, 1e-3), rated(2, 1e-4)))["TP979"]
    assert (seen.severity, seen.flagged_step) == (INFO, 1)
    declared: dict[str, FactValue] = {"learning_rate": 1e-3, "schedule": "linear"}
    assert severities(compared(rated(1, 5e-4, declared), rated(2, 1e-3, declared)))["TP979"] is WARN
    assert severities(compared(rated(1, 5e-4, {"learning_rate": 5e-4}), rated(2, 1e-3, {"learning_rate": 1e-3}))) == {}


def test_tp979_a_schedule_that_is_logged_a_step_later_is_the_same() -> None:
    rate = learning_rate(400)
    later = np.append(rate[0], rate[:-1])
    report = compared(run_of(1, 400, lr=later), run_of(2, 400, lr=rate))
    assert "TP979" in report.checked
    assert "TP979" not in findings(report)


@pytest.mark.parametrize(("times", "word"), [(3.0, r"\b2\d\d\.\d% above"), (1 / 3, r"\b6\d\.\d% below")])
def test_tp980_a_norm_of_another_size(times: float, word: str) -> None:
    run = run_of(1, grad_norm=times * noise(200, 3, 0.2))
    report = compared(run, run_of(2, grad_norm=noise(200, 4, 0.2)))
    assert severities(report) == {"TP980": WARN}
    assert float(figure(report, "TP980").change) == pytest.approx(times - 1, rel=0.1)
    assert re.search(word, findings(report)["TP980"].message)


def test_tp980_norms_of_zero_are_no_level() -> None:
    report = compared(run_of(1, grad_norm=np.zeros(200)), run_of(2, grad_norm=noise(200, 4)))
    assert report.skipped["TP980"] == "too few gradient norms above 0"


@pytest.mark.parametrize(("metric", "times"), [("throughput", 0.7), ("step_time", 1.5)])
def test_tp981_a_slower_run(metric: str, times: float) -> None:
    run = make_frame({"loss": falling(200, 1), metric: times * noise(200, 3, 0.1)})
    fast = make_frame({"loss": falling(200, 2), metric: noise(200, 4, 0.1)})
    assert severities(compared(run, fast)) == {"TP981": WARN}
    assert severities(compared(fast, run)) == {}


def test_tp981_metrics_of_another_name_may_have_another_unit() -> None:
    run = run_of(1, throughput=0.5 * noise(200, 3)).replace(original_names={"throughput": "steps_per_second"})
    base = run_of(2, throughput=noise(200, 4)).replace(original_names={"throughput": "tokens_per_second"})
    assert compared(run, base).skipped["TP981"].startswith("throughput has another name in a baseline")


def test_tp982_a_tenth_more_memory() -> None:
    assert severities(compared(run_of(1, memory=[9.0] * 200), run_of(2, memory=[8.0] * 200))) == {"TP982": WARN}
    assert severities(compared(run_of(1, memory=[8.4] * 200), run_of(2, memory=[8.0] * 200))) == {}


# --- what holds for all of them


def test_losses_known_only_in_parts_are_compared_by_part() -> None:
    def parts(seed: int, second: float) -> Frame:
        return make_frame({"loss/a": falling(200, seed), "loss/b": second * falling(200, seed + 20)})

    report = compared(parts(1, 1.3), parts(2, 1.0))
    assert severities(report)["TP971"] is FAIL
    assert findings(report)["TP971"].evidence[0].metric == "loss/b"


def test_a_density_whose_loss_is_negative_is_compared_by_differences() -> None:
    def density(seed: int, top: float) -> Frame:
        loss = np.linspace(1, top, 300) + np.random.default_rng(seed).normal(0, 0.02, 300)
        return make_frame(loss=loss, objective="density")

    report = compared(density(1, -1.5), density(2, -2.0))
    assert severities(report)["TP971"] is FAIL
    assert "of its range" in findings(report)["TP971"].message
    assert severities(compared(density(1, -2.0), density(2, -2.0))) == {}


def test_what_the_baseline_lacks_is_skipped_by_name() -> None:
    report = compared(run_of(1, lr=learning_rate(200), grad_norm=noise(200, 2)), run_of(2))
    assert report.skipped["TP979"] == "no matched records of lr"
    assert report.skipped["TP980"] == "no matched records of grad_norm"
    assert report.verdict is Verdict.PASS


def test_thresholds_and_selection_apply() -> None:
    worse, base = run_of(1, 1000, times=1.1), run_of(2, 1000)
    thresholds = Settings().thresholds.with_overrides({"comparison.loss_warn": 0.3})
    assert severities(compared(worse, base, settings=Settings(("TP97",), (), thresholds))) == {}
    assert compared(worse, base, settings=Settings(("TP972",))).checked == ("TP972",)
    without = compared(worse, base, settings=Settings(("TP97",), ("TP971",)))
    assert "TP971" not in findings(without)


def test_related_findings_fold_under_the_worst() -> None:
    report = compared(run_of(1, 1000, times=1.5), run_of(2, 1000))
    chief = report.findings[0]
    assert chief.rule == "TP971"
    assert {"TP972", "TP977"} <= {f.rule for f in chief.related}


def test_infinite_and_absurd_values_cost_no_crash() -> None:
    loss = falling(200, 1)
    loss[50], loss[60], loss[70] = math.inf, 1e308, 5e-324
    report = compared(make_frame(loss=loss), run_of(2))
    assert report.verdict is Verdict.PASS
