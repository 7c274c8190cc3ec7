from __future__ import annotations

import numpy as np

from tests.report.corpus import finding, frame
from trainproof.panels import MOST_CITED, MOST_POINTS, panels_of
from trainproof.verdict import Evidence


def titles(columns: dict[str, list[float]]) -> list[tuple[str, list[str]]]:
    return [(p.title, [name for name, _, _ in p.series]) for p in panels_of(frame(columns), [])]


def test_usual_metrics_in_the_usual_order() -> None:
    one = [1.0, 2.0]
    columns = {"throughput": one, "lr": one, "eval/loss": one, "loss": one, "grad_norm": one, "accuracy": one}
    assert titles(columns) == [
        ("Loss", ["loss", "eval/loss"]),
        ("Learning rate", ["lr"]),
        ("Gradient norm", ["grad_norm"]),
        ("Throughput", ["throughput"]),
    ]


def test_parts_stand_in_for_a_whole_that_was_not_logged() -> None:
    one = [1.0, 2.0]
    parts = {f"loss/{i}": one for i in range(9)} | {"lr/a": one, "lr/b": one}
    assert titles(parts) == [("Loss", [f"loss/{i}" for i in range(4)]), ("Learning rate", ["lr/a", "lr/b"])]
    assert titles({"loss": one, "loss/ce": one}) == [("Loss", ["loss"])]


def test_other_metrics_are_drawn_when_a_finding_cites_them() -> None:
    columns = {"loss": [1.0, 2.0], **{f"odd{i}": [3.0, 4.0] for i in range(9)}}
    findings = [finding(evidence=(Evidence(f"odd{i}", 1, 3.0, 1), Evidence("gone", 1, 0.0, 1))) for i in range(9)]
    drawn = [p.title for p in panels_of(frame(columns), findings)]
    assert drawn == ["Loss", *(f"odd{i}" for i in range(MOST_CITED))]


def test_a_spike_and_every_cited_point_survive_in_a_long_run() -> None:
    rng = np.random.default_rng(5)
    loss = 2 + rng.normal(0, 0.01, 100_000)
    loss[61_803] = 9.0
    cited = [7, 50_000, 99_999]
    points = tuple(Evidence("loss", i, float(loss[i - 1]), i) for i in cited)
    panel = panels_of(frame({"loss": loss}), [finding(evidence=points)])[0]
    _, steps, values = panel.series[0]
    assert len(steps) <= MOST_POINTS
    assert dict(zip(steps, values, strict=True))[61_804] == 9.0
    assert set(cited) <= set(steps)


def test_steps_of_nonfinite_records_are_told() -> None:
    nan, inf = float("nan"), float("inf")
    panel = panels_of(frame({"loss": [1.0, nan, 2.0, inf], "eval/loss": [nan, nan, 1.0, 1.0]}), [])[0]
    assert panel.nonfinite == (1, 2, 4)


def test_of_a_million_nonfinite_records_the_first_and_the_last_are_told() -> None:
    loss = np.full(100_000, np.nan)
    loss[:10] = 1.0
    panel = panels_of(frame({"loss": loss}), [])[0]
    assert len(panel.nonfinite) <= MOST_POINTS
    assert (panel.nonfinite[0], panel.nonfinite[-1]) == (11, 100_000)


def log_scale(values: np.ndarray) -> bool:
    return panels_of(frame({"loss": values}), [])[0].log_scale


def test_log_scale_where_a_linear_one_would_hide_the_curve() -> None:
    falling = np.logspace(1, -3, 200)
    spiked = np.full(200, 2.0)
    spiked[100] = 900.0
    assert log_scale(falling)
    assert log_scale(spiked)


def test_linear_scale_for_ordinary_curves_and_where_logarithms_end() -> None:
    assert not log_scale(np.linspace(5, 1, 200))
    assert not log_scale(np.linspace(1e-3, 1e-9, 200)), "a linear decay to nothing"
    assert not log_scale(np.append(np.logspace(1, -3, 200), 0.0))
    assert not log_scale(np.append(np.logspace(1, -3, 5000), -1.0)), "one negative value among many"
    assert not log_scale(np.full(10, np.nan))


def test_an_empty_frame_has_no_panels() -> None:
    assert panels_of(frame({}), [finding()]) == ()
    assert panels_of(frame({"loss": []}), [finding()]) == ()
