"""`trainproof compare` and `trainproof baseline` as a shell, a script and a CI job see them."""

from __future__ import annotations

import csv
import json
import os
import random
from pathlib import Path

import numpy as np
import pytest

from tests.commands import Ran, Run, runner
from tests.comparing.helpers import falling
from trainproof.comparing import load

RECORDS = 400


def records(seed: int, times: float = 1.0, n: int = RECORDS) -> list[dict[str, float]]:
    loss = falling(n, seed, sigma=0.05, times=times)
    rows: list[dict[str, float]] = []
    for step, value in enumerate(loss.tolist(), 1):
        rows.append({"step": step, "loss": value, "learning_rate": 1e-3 * (1 - step / n)})
        if step % 20 == 0:
            rows[-1]["eval_loss"] = float(np.median(loss[step - 20 : step])) * 1.05
    return rows


def write(path: str, rows: list[dict[str, float]]) -> str:
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """`run("compare", ...)` in a working directory with healthy seeds, a worse run and one that is lost."""
    monkeypatch.chdir(tmp_path)
    for seed in (1, 2, 3, 4):
        write(f"good{seed}.jsonl", records(seed))
    write("worse.jsonl", records(5, times=1.3))
    write("lost.jsonl", [*records(6)[:200], *({"step": i, "loss": float("nan")} for i in range(201, 301))])

    return runner(monkeypatch, capfd)


def compare(run: Run, *arguments: str) -> Ran:
    return run("compare", *arguments, "--no-html", "--output-format", "json")


@pytest.mark.parametrize(
    ("arguments", "code", "verdict"),
    [
        (["good1.jsonl", "good2.jsonl"], 0, "PASS"),
        (["worse.jsonl", "good2.jsonl"], 1, "FAIL"),
        (["worse.jsonl", "good2.jsonl", "--exit-zero"], 0, "FAIL"),
        (["worse.jsonl", "good1.jsonl", "good2.jsonl", "good3.jsonl"], 1, "FAIL"),
        (["lost.jsonl", "good2.jsonl"], 1, "FAIL"),
        (["good1.jsonl", "lost.jsonl"], 2, "SKIP"),
        (["good1.jsonl", "lost.jsonl", "good2.jsonl"], 2, "PASS"),  # a named baseline was refused
        (["worse.jsonl", "lost.jsonl", "good2.jsonl"], 1, "FAIL"),
        (["good1.jsonl", "."], 0, "PASS"),  # what is found in a folder and cannot be one is listed only
        (["worse.jsonl", "good2.jsonl", "--select", "TP3"], 0, "PASS"),
        (["worse.jsonl", "good2.jsonl", "--ignore", "TP97,TP98"], 0, "PASS"),
    ],
)
def test_verdicts_and_exit_codes(run: Run, arguments: list[str], code: int, verdict: str) -> None:
    ran = compare(run, *arguments)
    assert (ran.code, ran.run["verdict"]) == (code, verdict)


def test_a_warning_fails_on_demand(run: Run) -> None:
    write("slow.jsonl", records(7, times=1.035, n=4000))
    write("base.jsonl", records(8, n=4000))
    assert compare(run, "slow.jsonl", "base.jsonl").run["verdict"] == "WARN"
    assert compare(run, "slow.jsonl", "base.jsonl", "--fail-on", "warn").code == 1


def test_a_refused_baseline_is_told_with_the_reason(run: Run) -> None:
    ran = compare(run, "good1.jsonl", "lost.jsonl")
    assert "trainproof: lost.jsonl: refused as a baseline: it fails by itself (TP101" in ran.err
    assert ran.run["compared"]["baselines"][0]["refused"].startswith("it fails by itself (TP101")
    assert ran.run["reason"].startswith("no baseline can be compared with: lost.jsonl: it fails by itself")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["good1.jsonl"], "nothing to compare with; name a BASELINE"),
        (["nowhere.jsonl", "good1.jsonl"], "nowhere.jsonl: no such file"),
        (["good1.jsonl", "nowhere.jsonl"], "nowhere.jsonl: no such file"),
        (
            ["good1.jsonl", "good2.jsonl", "--align", "tokens"],
            "--align tokens: the run has no tokens; expected one of step",
        ),
        (["good1.jsonl", "good2.jsonl", "--align", "hours"], "is not one of 'step', 'tokens'"),
        (["good1.jsonl", "good2.jsonl", "--select", "XX"], "no rule matches 'XX'"),
        (["good1.jsonl", "good2.jsonl", "-o", "good2.jsonl"], "would overwrite the log"),
        (["good1.jsonl", "--baseline", "main"], "make it with `trainproof baseline add RUN --name main`"),
        (["good1.jsonl", "--baseline", "../x"], "--name '../x'"),
        (["good1.jsonl", "--against", "worst", "."], "is not 'best'"),
        ([".", "good2.jsonl"], "holds 6 runs, expected one to compare"),
        (["good1.jsonl", "empty"], "empty: no training log to compare with"),
        (["baseline", "add", "good1.jsonl"], "Missing option '--name'"),
        (["baseline", "add", "lost.jsonl", "--name", "main"], "refused as a baseline: it fails by itself"),
        (["baseline", "show", "main"], "make it with `trainproof baseline add RUN --name main`"),
        (["baseline", "remove", "main"], "no baseline of that name"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_2(run: Run, arguments: list[str], message: str) -> None:
    Path("empty").mkdir()
    ran = run(*arguments) if arguments[0] == "baseline" else compare(run, *arguments)
    assert ran.code == 2
    assert message in ran.err
    assert ran.err.count("\n") == 1
    assert not Path("trainproof-baselines").exists()


@pytest.mark.parametrize(
    "content", [b"", bytes(range(256)) * 40, b'{"step": 1, "memory": 1.0}\n', b'{\n  "trainproof_baseline": 1}']
)
def test_bad_baselines_are_one_clear_line(run: Run, content: bytes) -> None:
    Path("x.json").write_bytes(content)
    ran = compare(run, "good1.jsonl", "x.json")
    assert ran.code == 2
    assert ran.err.count("\n") == 1


# --- a log against itself in another shape


def shape(name: str, rows: list[dict[str, float]]) -> str:
    if name == "prefix":
        return write("prefix.jsonl", rows[: int(0.03 * len(rows))])
    if name == "thinned":
        return write("thinned.jsonl", rows[9::10])
    if name == "shuffled":
        return write("shuffled.jsonl", random.Random(3).sample(rows, len(rows)))
    if name == "csv":
        with Path("same.csv").open("w", newline="") as file:
            table = csv.DictWriter(file, ["step", "loss", "learning_rate", "eval_loss"])
            table.writeheader()
            table.writerows(rows)
        return "same.csv"
    return write("same.jsonl", rows)


@pytest.mark.parametrize("n", [400, 3000])
@pytest.mark.parametrize("name", ["same", "prefix", "thinned", "csv", "shuffled"])
def test_a_log_passes_against_itself_in_every_shape_with_ratios_of_one(run: Run, name: str, n: int) -> None:
    rows = records(1, n=n)
    write("whole.jsonl", rows)
    for pair in ((shape(name, rows), "whole.jsonl"), ("whole.jsonl", shape(name, rows))):
        ran = compare(run, *pair)
        compared = ran.run["compared"]
        assert (ran.code, ran.run["verdict"], compared["how"]) == (0, "PASS", "steps")
        assert {figure["change"] for figure in compared["figures"]} == {0.0}
        assert {figure["rule"] for figure in compared["figures"]} >= {"TP972", "TP977"}
        assert max(figure["matched"] for figure in compared["figures"]) <= compared["matched"]
        matched = {"prefix": int(0.03 * n), "thinned": n // 10}.get(name, n)
        assert compared["matched"] == matched


def test_disorder_is_named_on_either_side(run: Run) -> None:
    rows = records(1)
    write("whole.jsonl", rows)
    shape("shuffled", rows)
    mine = compare(run, "shuffled.jsonl", "whole.jsonl").run
    assert [(f["rule"], f["severity"]) for f in mine["findings"]] == [("TP003", "INFO")]
    assert "out of order" in mine["findings"][0]["message"]
    theirs = compare(run, "whole.jsonl", "shuffled.jsonl").run["compared"]["baselines"][0]
    assert theirs["notes"] == ["disorder: the lines are out of order; they were sorted by step"]


def test_two_records_that_are_equal_are_enough_to_pass(run: Run) -> None:
    write("two.jsonl", records(1)[:2])
    ran = compare(run, "two.jsonl", "good1.jsonl")
    assert (ran.code, ran.run["verdict"]) == (0, "PASS")
    write("two.jsonl", records(2)[:2])
    assert compare(run, "two.jsonl", "good1.jsonl").run["verdict"] == "SKIP"


def test_a_restart_is_compared_like_the_run_without_it(run: Run) -> None:
    rows = records(1)
    write("restarted.jsonl", [*rows[:250], *rows[230:]])
    ran = compare(run, "restarted.jsonl", "good1.jsonl")
    assert ran.run["verdict"] == "PASS"
    assert {figure["change"] for figure in ran.run["compared"]["figures"]} == {0.0}


# --- which baselines


def test_each_baseline_counts_once_and_the_run_itself_not_at_all(run: Run) -> None:
    ran = compare(run, "good1.jsonl", "good1.jsonl", "good2.jsonl", "./good2.jsonl", "good3.jsonl")
    labels = [one["label"] for one in ran.run["compared"]["baselines"]]
    assert labels == ["good2.jsonl", "good3.jsonl"]


def test_the_best_run_of_a_folder(run: Run) -> None:
    for name, seed, times in (("a", 2, 1.02), ("b", 3, 0.95), ("c", 4, 1.2)):
        write(f"runs/{name}/log.jsonl", records(seed, times))
    write("runs/d/log.jsonl", [*records(6)[:200], {"step": 201, "loss": float("nan")}])
    ran = compare(run, "runs/a/log.jsonl", "--against", "best", "runs")
    (best,) = ran.run["compared"]["baselines"]
    assert best["label"] == "runs/b/log.jsonl"
    assert best["notes"] == ["the lowest eval/loss of 2 runs in runs"]
    itself = compare(run, "runs/b/log.jsonl", "--against", "best", "runs")
    assert itself.run["compared"]["baselines"][0]["label"] == "runs/a/log.jsonl"
    Path("one").mkdir()
    write("one/log.jsonl", records(2))
    assert "the run itself is alone in it" in compare(run, "one/log.jsonl", "--against", "best", "one").err


def test_a_file_in_a_folder_that_is_no_log_is_passed_over(run: Run) -> None:
    write("runs/a.jsonl", records(2))
    Path("runs/notes.txt").write_text("nothing")
    Path("runs/empty.jsonl").write_text("")
    assert compare(run, "good1.jsonl", "runs").code == 0


# --- the store


def test_the_store_from_adding_to_removing(run: Run) -> None:
    added = run("baseline", "add", "good1.jsonl", "good2.jsonl", "--name", "main")
    path = Path("trainproof-baselines/main.json")
    assert (added.code, added.out) == (0, "")
    assert added.err == f"trainproof: {path}: 2 runs; commit it beside the code\n"
    assert compare(run, "good3.jsonl", "--baseline", "main").code == 0
    assert compare(run, "worse.jsonl", "--baseline", "main").code == 1
    assert compare(run, "worse.jsonl", str(path)).code == 1, "by its path too"
    assert (
        compare(run, "good3.jsonl", "good4.jsonl", "--baseline", "main")
        .run["compared"]["seeds"]
        .endswith("3 baselines")
    )

    assert run("baseline", "add", "good3.jsonl", "--name", "main").err.startswith(f"trainproof: {path}: 3 runs")
    again = run("baseline", "add", "good3.jsonl", "--name", "main")
    assert (again.code, "the same numbers are in baseline main already" in again.err) == (2, True)
    assert run("baseline", "list").out == "main: good1.jsonl, good2.jsonl, good3.jsonl\n"
    shown = run("baseline", "show", "main").out
    assert "good2.jsonl (jsonl, unknown, PASS)" in shown
    assert "400 records, steps 1 to 400, SHA-256 " in shown
    assert run("baseline", "add", "good4.jsonl", "--name", "main", "--replace").code == 0
    assert run("baseline", "list").out == "main: good4.jsonl\n"
    assert run("baseline", "remove", "main").code == 0
    assert not path.exists()
    assert "no baselines in trainproof-baselines" in run("baseline", "list").err


def test_a_baseline_is_not_written_when_one_of_its_runs_fails(run: Run) -> None:
    assert run("baseline", "add", "good1.jsonl", "lost.jsonl", "--name", "main").code == 2
    assert not Path("trainproof-baselines").exists()


def test_the_same_runs_make_the_same_bytes(run: Run) -> None:
    for folder in ("a", "b"):
        assert run("baseline", "add", "good1.jsonl", "--name", "main", "--store", folder).code == 0
    assert Path("a/main.json").read_bytes() == Path("b/main.json").read_bytes()


def test_a_store_that_cannot_be_written_is_one_line(run: Run) -> None:
    Path("file").write_text("")
    ran = run("baseline", "add", "good1.jsonl", "--name", "main", "--store", "file")
    assert (ran.code, ran.err.count("\n")) == (2, 1)


# --- reports and settings


def test_the_page_is_written_under_its_own_name(run: Run) -> None:
    ran = run("compare", "worse.jsonl", "good1.jsonl")
    assert ran.err == "trainproof: HTML report: .trainproof/compare-worse.html\n"
    page = Path(".trainproof/compare-worse.html").read_text()
    assert "Matched ratio" in page
    assert "TP971" in page
    assert run("compare", "worse.jsonl", "good1.jsonl", "--html", "x.html").err.endswith("x.html\n")
    assert Path("x.html").exists()


def test_settings_beside_the_logs_are_compared(run: Run) -> None:
    write("a/log.jsonl", records(1))
    write("b/log.jsonl", records(2))
    Path("a/metadata.json").write_text(json.dumps({"versions": {"torch": "2.5"}, "text": {"sha256": "aa"}, "seed": 1}))
    Path("b/metadata.json").write_text(json.dumps({"versions": {"torch": "2.4"}, "text": {"sha256": "bb"}, "seed": 1}))
    ran = compare(run, "a/log.jsonl", "b/log.jsonl")
    assert [(c["name"], c["baselines"], c["run"]) for c in ran.run["compared"]["changes"]] == [
        ("metadata.versions.torch", "2.4", "2.5"),
        ("metadata.text.sha256", "bb", "aa"),
    ]
    assert [f["rule"] for f in ran.run["findings"]] == ["TP974"]
    text = run("compare", "a/log.jsonl", "b/log.jsonl", "--no-html").out
    assert "changed   metadata.versions.torch: 2.4 -> 2.5" in text


def test_names_formats_and_facts_apply(run: Run) -> None:
    rows = [{"step": row["step"], "elbow": row["loss"]} for row in records(1)]
    write("elbow.jsonl", rows)
    write("elbow2.jsonl", [{"step": row["step"], "elbow": row["loss"]} for row in records(2)])
    ran = compare(run, "elbow.jsonl", "elbow2.jsonl", "--map", "loss=elbow", "--fact", "seed=3", "--format", "jsonl")
    assert ran.code == 0
    assert ran.run["facts"] == {"seed": 3}
    assert [change["name"] for change in ran.run["compared"]["changes"]] == ["seed"]


def test_large_logs_are_read_by_two_processes_with_the_same_result(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    one = compare(run, "worse.jsonl", "good1.jsonl", "good2.jsonl")
    monkeypatch.setattr(load, "LARGE", 1000)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    assert load._worth_a_process("worse.jsonl", ["good1.jsonl"])
    assert not load._worth_a_process("worse.jsonl", ["."]), "the size of a folder is not known"
    assert compare(run, "worse.jsonl", "good1.jsonl", "good2.jsonl") == one
    write("broken.jsonl", [{"memory": 1.0}] * 200)
    broken = compare(run, "good1.jsonl", "broken.jsonl")
    assert (broken.code, broken.err.count("\n")) == (2, 1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)
    assert not load._worth_a_process("worse.jsonl", ["good1.jsonl"])


def test_quiet_is_one_line(run: Run) -> None:
    ran = run("compare", "worse.jsonl", "good1.jsonl", "--quiet", "--no-html")
    assert ran.out.startswith("FAIL  worse.jsonl: TP971 worse-than-baseline at steps")
    assert ran.out.count("\n") == 1
