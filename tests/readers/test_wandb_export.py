"""A chart of W&B exported as CSV: several runs side by side."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from tests.readers.logs import points, pour
from trainproof.errors import FormatError
from trainproof.frame import Frame, Source
from trainproof.readers.base import sniff
from trainproof.readers.discover import read_logs

#: run -> metric -> values by row; None where the run has no point
Chart = dict[str, dict[str, list[float | str | None]]]
CHART: Chart = {
    "gpt2_char_1729.42 - v2.1": {"train/loss": [3.0, None, 2.0, "NaN"], "lr": [0.1, None, 0.1, 0.1]},
    "2024-10-22 14:05:33": {"train/loss": [9.0, 8.0, None, "Infinity"]},
}


def export(chart: Chart = CHART, axis: str = "Step", steps: tuple[float, ...] = (0, 5, 10, 15)) -> str:
    """The CSV as W&B writes it: every cell quoted, each column with its extremes."""
    columns = [(f"{run} - {metric}", values) for run, metrics in chart.items() for metric, values in metrics.items()]
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerow([axis, *(name + end for name, _ in columns for end in ("", "__MIN", "__MAX"))])
    for i, step in enumerate(steps):
        cells = [values[i] if values[i] is not None else "" for _, values in columns for _ in range(3)]
        writer.writerow([step, *cells])
    return text.getvalue()


def frames(text: str) -> list[Frame]:
    return pour("wandb-export", text.encode()).build(Source("x", "wandb-export"))


def test_it_is_known_by_its_header() -> None:
    reader = sniff(export().encode())
    assert reader is not None
    assert reader.name == "wandb-export"


def test_each_run_is_a_run_of_its_name() -> None:
    first, second = frames(export())
    assert [first.source.name, second.source.name] == ["gpt2_char_1729.42 - v2.1", "2024-10-22 14:05:33"]
    assert points(first, "loss") == [(0, 3.0, 2), (10, 2.0, 4), (15, "nan", 5)]
    assert points(first, "lr") == [(0, 0.1, 2), (10, 0.1, 4), (15, 0.1, 5)]
    assert points(second, "loss") == [(0, 9.0, 2), (5, 8.0, 3), (15, float("inf"), 5)]
    assert list(second) == ["loss"]


def test_a_run_that_logs_its_own_step_is_numbered_by_it() -> None:
    chart: Chart = {"a": {"loss": [3.0, 2.0, 1.0, 0.5], "global_step": [100, 200, 300, 400]}}
    (frame,) = frames(export(chart))
    assert points(frame, "loss") == [(100, 3.0, 2), (200, 2.0, 3), (300, 1.0, 4), (400, 0.5, 5)]


def test_over_an_axis_that_is_no_step_points_are_counted() -> None:
    (first, _) = frames(export(axis="Relative Time (Wall)", steps=(0.5, 1.25, 2.5, 3.75)))
    assert points(first, "loss") == [(1, 3.0, 2), (2, 2.0, 4), (3, "nan", 5)]


def test_a_bad_row_costs_itself_and_is_told_once() -> None:
    lines = export().splitlines()
    lines[2] = '"5","1"'
    first, second = frames("\n".join(lines))
    assert [(line.line, line.why) for line in first.dropped] == [(3, "2 cells, expected 10")]
    assert second.dropped_count == 0
    assert points(second, "loss") == [(0, 9.0, 2), (15, float("inf"), 5)]


def test_a_row_that_is_cut_at_the_end() -> None:
    first, second = frames(export()[:-30])
    assert len(second["loss"]) == 2
    assert first.dropped_count == 1


@pytest.mark.parametrize(
    "header",
    [
        '"Step","train - loss"',  # no extremes
        '"Step","loss","loss__MIN","loss__MAX"',  # no run
        "step,train - loss,val - loss",
    ],
)
def test_other_tables_are_left_to_the_reader_of_csv(header: str) -> None:
    text = header + "\n" + "".join(f"{i}" + ",1.5" * header.count(",") + "\n" for i in range(5))
    reader = sniff(text.encode())
    assert reader is not None
    assert reader.name == "csv"
    with pytest.raises(FormatError, match="expected a CSV that W&B exported"):
        frames(text)


def test_a_header_longer_than_what_is_sniffed(tmp_path: Path) -> None:
    chart: Chart = {f"run-{i:04}-{'x' * 60}": {"loss": [3.0, 2.0, 1.0, 0.5]} for i in range(500)}
    path = tmp_path / "wandb_export.csv"
    path.write_text(export(chart))
    (log,) = read_logs([str(path)])
    assert len(log.frames) == 500
    assert all(frame["loss"].value.tolist() == [3.0, 2.0, 1.0, 0.5] for frame in log.frames)
