"""The baseline store: what is kept of a run, and how it is read back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.comparing.helpers import COMPARED, compared, falling, noise, run_of, severities
from tests.rules.helpers import make_frame
from trainproof.comparing import store
from trainproof.comparing.compare import compare_run, stored_baseline
from trainproof.comparing.reference import StoredReference
from trainproof.comparing.summary import MOST_ROWS, StoredRun, digest, summarise
from trainproof.errors import FormatError, InputError, UsageError
from trainproof.frame import Frame
from trainproof.verdict import RunReport, Verdict


def kept(frame: Frame) -> StoredRun:
    return summarise(frame, "PASS", {"config.lr": 0.1})


def beside_store(run: Frame, *frames: Frame) -> RunReport:
    return compare_run(run, [stored_baseline(kept(one), f"main {i}") for i, one in enumerate(frames)], COMPARED)


def test_a_short_run_is_kept_record_by_record() -> None:
    frame = make_frame(loss=falling(60, 1), lr=np.full(60, 1e-3))
    rows = kept(frame).curves["loss"].rows
    assert [row.first for row in rows] == list(range(1, 61))
    assert [row.median for row in rows] == [float(f"{x:.6g}") for x in falling(60, 1)]
    assert {(row.low == row.median == row.high, row.records) for row in rows} == {(True, 1)}


def test_a_long_run_is_kept_as_quantiles_of_equal_stretches() -> None:
    frame = run_of(1, 10_000, sigma=0.2)
    rows = kept(frame).curves["loss"].rows
    assert len(rows) == MOST_ROWS
    assert [(row.first, row.last, row.records) for row in rows[:2]] == [(1, 100, 100), (101, 200, 100)]
    value = frame["loss"].value[:100]
    assert rows[0].low == pytest.approx(float(np.quantile(value, 0.1)), rel=1e-5)
    assert rows[0].median == pytest.approx(float(np.median(value)), rel=1e-5)
    assert rows[0].high == pytest.approx(float(np.quantile(value, 0.9)), rel=1e-5)


def test_it_is_said_what_it_was_made_from() -> None:
    run = kept(run_of(1, facts={"seed": 3}))
    assert (run.source, run.format, run.verdict, run.records, run.first_step, run.last_step) == (
        *("<memory>", "dict", "PASS"),
        *(200, 1, 200),
    )
    assert (run.facts, run.settings) == ({"seed": 3}, {"config.lr": 0.1})


def test_the_digest_is_that_of_the_numbers() -> None:
    assert digest(run_of(1)) == digest(run_of(1).replace())
    assert digest(run_of(1)) != digest(run_of(2))
    assert digest(make_frame({"a": [1.0], "b": [2.0]})) == digest(make_frame({"b": [2.0], "a": [1.0]}))


@pytest.mark.parametrize("n", [60, 200, 5000])
def test_a_run_passes_against_its_own_summary_and_its_prefix_too(n: int) -> None:
    frame = run_of(1, n, sigma=0.2)
    report = beside_store(frame, frame)
    assert report.verdict is Verdict.PASS
    assert report.compared is not None
    assert all(abs(float(f.change)) < 1e-5 for f in report.compared.figures if f.rule != "TP983")
    assert beside_store(frame.between(1, n // 3), frame).verdict is Verdict.PASS


def test_a_thinned_run_passes_against_the_summary_of_the_whole() -> None:
    frame = run_of(1, 5000, sigma=0.1)
    thin = frame.replace(series={"loss": frame["loss"].take(slice(9, None, 10))})
    assert beside_store(thin, frame).verdict is Verdict.PASS


@pytest.mark.parametrize("n", [200, 5000])
def test_the_summary_sees_what_the_log_sees(n: int) -> None:
    worse, base = run_of(1, n, times=1.1, grad_norm=4 * noise(n, 3)), run_of(2, n, grad_norm=noise(n, 4))
    whole, short = severities(compared(worse, base)), severities(beside_store(worse, base))
    assert whole["TP971"] == short["TP971"] == "FAIL"
    assert whole["TP980"] == short["TP980"] == "WARN"
    assert severities(beside_store(run_of(5, n), base, run_of(3, n))) == {}


def test_a_summary_can_be_matched_by_tokens() -> None:
    base = run_of(2, 500, tokens=4096.0 * np.arange(1, 501))
    run = run_of(1, 250, tokens=8192.0 * np.arange(1, 251))
    report = beside_store(run, base)
    assert report.compared is not None
    assert (report.compared.axis, report.verdict) == ("tokens", Verdict.PASS)
    assert report.compared.matched > 90


def stored(*frames: Frame) -> store.StoredBaseline:
    return store.with_runs(None, "main", [kept(frame) for frame in frames])


def test_what_is_written_reads_back_equal(tmp_path: Path) -> None:
    path = store.path_of("main", tmp_path)
    written = stored(run_of(1, 3000), run_of(2, 60, lr=np.zeros(60)))
    path.write_text(store.text_of(written))
    assert store.load(path) == written
    assert store.is_stored(path)
    assert list(store.stored_names(tmp_path)) == ["main"]


def test_the_file_is_small_and_has_a_row_a_line() -> None:
    text = store.text_of(stored(run_of(1, 100_000)))
    assert len(text) < 12_000
    rows = [line for line in text.splitlines() if line.strip().startswith("[") and "," in line]
    assert len(rows) == MOST_ROWS
    assert json.loads(rows[0].strip().rstrip(","))[:3] == [1, 1000, 1000]


def test_the_same_numbers_twice_are_refused() -> None:
    with pytest.raises(UsageError, match="the same numbers are in baseline main already"):
        store.with_runs(stored(run_of(1)), "main", [kept(run_of(1))])
    with pytest.raises(UsageError, match="the same numbers"):
        stored(run_of(1), run_of(1))


@pytest.mark.parametrize("name", ["../main", "", ".hidden", "a/b", "x" * 200, "a\0b", "main\n"])
def test_a_name_is_a_file_name(name: str) -> None:
    with pytest.raises(UsageError, match="--name"):
        store.path_of(name)


def edited(**changes: Any) -> str:
    document = json.loads(store.text_of(stored(run_of(1, 20))))
    document.update(changes)
    return json.dumps(document)


def broken_rows(rows: list[list[float]]) -> str:
    document = json.loads(store.text_of(stored(run_of(1, 20))))
    document["runs"][0]["curves"]["loss"]["rows"] = rows
    return json.dumps(document)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no stored baseline"),
        ("[1]", "no stored baseline"),
        ("{" * 100_000, "no stored baseline"),
        ('{"trainproof_baseline": 9}', "a baseline of version 9, expected 1"),
        (edited(runs=[{"source": 5}]), "no stored baseline"),
        (broken_rows([[5, 4, 1, 1, 1, 1]]), "rows of loss are not in order at step 5"),
        (broken_rows([[1, 4, 1, 1, 1, 1], [4, 9, 1, 1, 1, 1]]), "rows of loss are not in order at step 4"),
        (broken_rows([[1, 2**63, 1, 1, 1, 1]]), "rows of loss are not in order at step 1"),
    ],
)
def test_a_broken_file_is_one_clear_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "main.json"
    path.write_text(text)
    with pytest.raises(FormatError, match=message):
        store.load(path)


def test_a_failed_verdict_that_was_written_by_hand_is_refused(tmp_path: Path) -> None:
    document = json.loads(store.text_of(stored(run_of(1, 20))))
    document["runs"][0]["verdict"] = "FAIL"
    (tmp_path / "main.json").write_text(json.dumps(document))
    with pytest.raises(FormatError, match="with the verdict 'FAIL', expected PASS or WARN"):
        store.load(tmp_path / "main.json")


def test_a_missing_file_says_what_to_type(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="trainproof baseline add RUN --name main"):
        store.load(tmp_path / "main.json")


def test_a_metric_without_rows_is_none() -> None:
    reference = StoredReference("main", kept(make_frame(loss=[1.0, 2.0])))
    assert reference.curve("lr") is None
    assert reference.original_name("lr") is None
    assert list(reference.metrics()) == ["loss"]
