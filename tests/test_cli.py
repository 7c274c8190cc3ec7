"""The command line as a shell, a script and a CI job see it."""

from __future__ import annotations

import io
import json
import math
import os
import signal
import stat
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

import trainproof
from tests.commands import Ran, Run, runner
from trainproof import cli, output
from trainproof.report import html

HEALTHY = [3.0 / i**0.3 + 0.01 * ((i * 7919) % 13) for i in range(1, 101)]
DEAD = [*HEALTHY[:60], *[math.nan] * 40]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """`run("epoch", ...)`, in a working directory with a healthy log and one whose loss is lost."""
    monkeypatch.chdir(tmp_path)
    for variable in ("NO_COLOR", "FORCE_COLOR", "TRAINPROOF_DEBUG"):
        monkeypatch.delenv(variable, raising=False)
    write_log(tmp_path / "good.jsonl", HEALTHY)
    write_log(tmp_path / "bad.jsonl", DEAD)

    return runner(monkeypatch, capfd)


def write_log(path: Path, losses: list[float], name: str = "loss") -> None:
    path.write_text("".join(json.dumps({"step": i, name: loss}) + "\n" for i, loss in enumerate(losses, 1)))


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "trainproof", *arguments]


def json_of(run: Run, *arguments: str) -> Ran:
    return run("epoch", *arguments, "--output-format", "json", "--no-html")


# --- verdicts and exit codes


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["good.jsonl"], 0),
        (["bad.jsonl"], 1),
        (["good.jsonl", "bad.jsonl"], 1),
        (["bad.jsonl", "--exit-zero"], 0),
        (["bad.jsonl", "--select", "TP3"], 2),  # no rule could run
        (["bad.jsonl", "--ignore", "TP1,TP2"], 2),
        (["missing.jsonl"], 2),
        (["missing.jsonl", "--exit-zero"], 2),
        (["good.jsonl", "missing.jsonl"], 2),
        (["bad.jsonl", "missing.jsonl"], 1),
        (["."], 1),
        (["*.jsonl"], 1),
        (["g*.jsonl", "good.jsonl"], 0),
        (["nothing-*.jsonl"], 2),
    ],
)
def test_exit_codes(run: Run, arguments: list[str], code: int) -> None:
    assert run("epoch", *arguments, "--no-html").code == code


def test_fail_on_warn_widens(run: Run) -> None:
    write_log(Path("flat.jsonl"), [2.0 + 0.001 * math.sin(i) for i in range(200)])
    verdict = json_of(run, "flat.jsonl").report["verdict"]
    assert verdict == "WARN"
    assert run("epoch", "flat.jsonl", "--no-html").code == 0
    assert run("epoch", "flat.jsonl", "--no-html", "--fail-on", "warn").code == 1


def test_a_file_in_a_directory_that_cannot_be_judged_is_listed_only(run: Run) -> None:
    Path("bad.jsonl").unlink()
    Path("short.jsonl").write_text('{"step": 1, "train_runtime": 1.0}\n{"step": 2, "train_runtime": 0.9}\n')
    Path("notes.txt").write_text("nothing")
    ran = json_of(run, ".")
    assert [(r["source"], r["verdict"]) for r in ran.report["runs"]] == [
        ("./good.jsonl", "PASS"),
        ("./short.jsonl", "SKIP"),
    ]
    assert (ran.code, ran.err) == (0, "")
    assert json_of(run, "good.jsonl", "short.jsonl").code == 2  # named, this time


def test_an_unreadable_input_is_a_run_that_was_skipped_and_one_line(run: Run) -> None:
    ran = json_of(run, "missing.jsonl", "good.jsonl")
    first, second = ran.report["runs"]
    assert (first["source"], first["verdict"], second["verdict"]) == ("missing.jsonl", "SKIP", "PASS")
    assert first["reason"].startswith("missing.jsonl: no such file or directory")
    assert ran.err == f"trainproof: {first['reason']}\n"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 5000,
        bytes(range(256)) * 40,
        b"[1,2]\n[3,4]\n",
        b'{"step": 1, "memory": 1.0}\n',
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
        b"\x1f\x8b\x08 broken",
        b"[" * 200_000,
        b'{"a": ' * 200_000,
    ],
    ids=["empty", "zeros", "binary", "lists", "no loss", "LFS pointer", "broken gzip", "deep list", "deep object"],
)
def test_bad_input_is_one_clear_line(run: Run, content: bytes) -> None:
    Path("x.log").write_bytes(content)
    ran = json_of(run, "x.log")
    assert ran.code == 2
    assert ran.report["verdict"] == "SKIP"
    assert ran.report["runs"][0]["reason"]
    assert ran.err.count("\n") <= 1


def test_odd_values_cost_one_record_and_are_counted(run: Run) -> None:
    lines = Path("good.jsonl").read_text().splitlines()
    lines[10], lines[20], lines[30] = "[1, 2]", "not json", '{"step": ' + "9" * 400 + ', "loss": 1.0}'
    Path("odd.jsonl").write_text("\n".join(lines))
    (judged,) = json_of(run, "odd.jsonl").report["runs"]
    assert (judged["verdict"], judged["records"], judged["dropped"]) == ("PASS", 97, 3)
    assert [line["line"] for line in judged["dropped_lines"]] == [11, 21, 31]


# --- options


def test_maps_facts_and_formats(run: Run) -> None:
    write_log(Path("elbow.jsonl"), DEAD, name="elbow")
    ran = json_of(run, "elbow.jsonl", "--map", "loss=elbow", "--fact", "max_steps=500", "--format", "jsonl")
    (judged,) = ran.report["runs"]
    assert (ran.code, judged["format"], judged["facts"]["total_steps"]) == (1, "jsonl", 500)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no command; try `trainproof epoch LOG`"),
        (["epoch"], "Missing argument 'LOG...'"),
        (["epok", "x"], "No such command 'epok'"),
        (["epoch", "good.jsonl", "--nothing"], "No such option '--nothing'"),
        (["epoch", "good.jsonl", "--output-format", "xml"], "is not one of 'text', 'json'"),
        (["epoch", "good.jsonl", "--fail-on", "never"], "is not one of 'fail', 'warn'"),
        (["epoch", "good.jsonl", "--format", "excel"], "unknown format 'excel'; known: hf"),
        (["epoch", "good.jsonl", "--select", "TP2,XX"], "no rule matches 'XX'"),
        (["epoch", "good.jsonl", "--ignore", "XX"], "no rule matches 'XX'"),
        (["record", "job.py:make", "--out", "runs", "--steps", "-3"], "-3 is not in the range x>=1"),
        (["record-check", "job.py:make", "--steps", "0"], "0 is not in the range x>=1"),
        (["resume", "job.py:make", "--at", "0"], "0 is not in the range x>=1"),
        (["epoch", "good.jsonl", "--map", "loss"], "expected OURS=THEIRS, for example --map loss=my_loss"),
        (["epoch", "good.jsonl", "--map", "loss=elbow"], "the log has no 'elbow'; it has loss"),
        (["epoch", "good.jsonl", "--fact", "5"], "expected KEY=VALUE"),
        (["epoch", "good.jsonl", "--fact", "colour=red"], "'colour' is not a known fact; known: total_steps"),
        (["epoch", "good.jsonl", "--html", "x.html", "--no-html"], "--html and --no-html: expected one of them"),
        (["epoch", "good.jsonl", "-o", "./good.jsonl"], "would overwrite the log"),
        (["epoch", "good.jsonl", "-o", "no/such/folder/x"], "no/such/folder/x: cannot be written"),
        (["rule", "TP999"], "no rule 'TP999'; `trainproof rules` lists them"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_2(run: Run, arguments: list[str], message: str) -> None:
    before = Path("good.jsonl").read_bytes()
    ran = run(*arguments)
    assert ran.code == 2
    assert message in ran.err
    assert ran.err.startswith("trainproof: ")
    assert ran.err.count("\n") == 1
    assert Path("good.jsonl").read_bytes() == before


def test_version_rules_and_rule(run: Run) -> None:
    assert run("--version").out == f"trainproof {trainproof.__version__}\n"
    table = run("rules")
    assert table.code == 0
    assert "TP203" in table.out
    page = run("rule", "tp203")
    assert page.code == 0
    assert "loss-diverged" in page.out
    assert run("rule", "loss-diverged") == page


def test_help_names_every_option_and_the_exit_codes(run: Run) -> None:
    assert "2 wrong usage, unreadable input" in " ".join(run("--help").out.split())
    text = run("epoch", "--help").out
    assert all(f"{option}" in text for option in ("--format", "--map", "--fact", "--select", "--ignore", "--no-html"))


@pytest.mark.parametrize(
    ("arguments", "environment", "colored"),
    [
        ([], {}, False),
        (["--color", "always"], {}, True),
        (["--color", "always"], {"NO_COLOR": "1"}, True),
        ([], {"FORCE_COLOR": "1"}, True),
        ([], {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ([], {"FORCE_COLOR": ""}, False),
        (["--color", "never"], {"FORCE_COLOR": "1"}, False),
        (["--color", "always", "-o", "/dev/stdout/none"], {}, False),
    ],
)
def test_colour(
    run: Run, monkeypatch: pytest.MonkeyPatch, arguments: list[str], environment: dict[str, str], colored: bool
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert ("\x1b[" in run("epoch", "bad.jsonl", "--no-html", *arguments).out) is colored


def test_quiet_is_one_line_a_run_and_no_hints(run: Run) -> None:
    ran = run("epoch", "bad.jsonl", "good.jsonl", "-q")
    assert (ran.code, ran.out.count("\n"), ran.err) == (1, 2, "")


# --- what is written


def test_the_report_lies_in_a_folder_that_git_ignores(run: Run) -> None:
    ran = run("epoch", "good.jsonl")
    page = Path(".trainproof/epoch-good.html")
    assert ran.err == f"trainproof: HTML report: {page}\n"
    assert page.read_text().startswith("<!doctype html>")
    assert Path(".trainproof/.gitignore").read_text() == "*\n"
    first = page.read_bytes()
    page.write_text("old")
    run("epoch", "good.jsonl")
    assert page.read_bytes() == first


def test_one_report_holds_all_runs_of_a_command(run: Run) -> None:
    Path("a").mkdir()
    Path("b").mkdir()
    write_log(Path("a/log.jsonl"), HEALTHY)
    write_log(Path("b/log.jsonl"), DEAD)
    run("epoch", "a/log.jsonl", "b/log.jsonl")
    page = Path(".trainproof/epoch-log-and-1-more.html").read_text()
    assert "a/log.jsonl" in page
    assert "b/log.jsonl" in page


def test_html_where_it_was_asked_for(run: Run) -> None:
    assert run("epoch", "good.jsonl", "--html", "page.html").code == 0
    assert Path("page.html").exists()
    assert not Path(".trainproof").exists()


def test_no_report_on_nothing(run: Run) -> None:
    assert run("epoch", "missing.jsonl").code == 2
    assert not Path(".trainproof").exists()


@pytest.mark.parametrize("arguments", [[], ["--html", "no/such/folder/page.html"]])
def test_a_page_that_cannot_be_written_costs_one_line_never_the_verdict(run: Run, arguments: list[str]) -> None:
    Path(".trainproof").write_text("a file in the way")
    ran = run("epoch", "bad.jsonl", *arguments)
    assert ran.code == 1
    assert ran.out.startswith("FAIL")
    assert ran.err.count("\n") == 1
    assert "no HTML report: " in ran.err


def test_the_result_in_a_file(run: Run) -> None:
    ran = run("epoch", "bad.jsonl", "--no-html", "--output-format", "json", "-o", "report.json")
    assert (ran.code, ran.out) == (1, "")
    assert json.loads(Path("report.json").read_text())["verdict"] == "FAIL"


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "report.json"
    target.write_text("old")

    def no_space(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(
        trainproof.TrainproofError, match=r"report\.json: cannot be written \(No space left on device\)"
    ):
        output.write_whole(target, "new")
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_written_file_has_the_usual_permissions(tmp_path: Path) -> None:
    output.write_whole(tmp_path / "ours", "x")
    (tmp_path / "usual").write_text("x")
    assert stat.S_IMODE((tmp_path / "ours").stat().st_mode) == stat.S_IMODE((tmp_path / "usual").stat().st_mode)


@pytest.mark.parametrize(
    ("paths", "stem"),
    [
        (("trainer_state.json",), "trainer_state"),
        (("runs/v1.2/log.jsonl.gz",), "log"),
        (("run.v2.jsonl",), "run.v2"),
        (("-",), "stdin"),
        (("runs/*.jsonl",), "logs"),
        (("a b<script>.csv",), "a-b-script"),
        (("/",), "logs"),
        (("a.csv", "b.csv", "c.csv"), "a-and-2-more"),
    ],
)
def test_the_name_of_the_report(paths: tuple[str, ...], stem: str) -> None:
    assert output.report_stem(paths) == stem


# --- the process


def test_standard_input(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(Path("bad.jsonl").read_bytes())))
    ran = json_of(run, "-")
    assert (ran.code, ran.report["runs"][0]["source"]) == (1, "-")


@pytest.mark.usefixtures("run")
def test_a_reader_that_goes_away_is_no_error_and_the_verdict_stands() -> None:
    process = subprocess.Popen(
        command("epoch", "bad.jsonl", "--no-html"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 1


@pytest.mark.usefixtures("run")
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux only")
def test_a_full_disk_is_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            command("epoch", "good.jsonl", "--no-html"), stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (ran.returncode, ran.stderr) == (2, "trainproof: standard output: No space left on device\n")


@pytest.mark.usefixtures("run")
def test_an_interrupt_is_quiet() -> None:
    process = subprocess.Popen(
        command("epoch", "-"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # a suite in the background ignores it
    )
    assert process.stdin is not None
    process.stdin.write(bytes(512 * 1024))  # more than a pipe holds: it returns once the other side is reading
    process.send_signal(signal.SIGINT)
    assert process.communicate() == (b"", b"")
    assert process.returncode == 130


def test_a_bug_is_one_line_and_can_be_looked_at(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: object) -> str:
        raise ZeroDivisionError("a\nb")

    monkeypatch.setattr(html, "render_html", broken)
    ran = run("epoch", "good.jsonl")
    assert ran.code == 2
    assert ran.err == (
        "trainproof: internal error (ZeroDivisionError: a\\x0ab); please report it; "
        "run with TRAINPROOF_DEBUG=1 to see it\n"
    )
    monkeypatch.setenv("TRAINPROOF_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        cli.main()


def test_names_cannot_steer_a_terminal(run: Run) -> None:
    name = "evil\x1b[2J\n.jsonl"
    ran = run("epoch", name)
    assert "\x1b" not in ran.err + ran.out
    assert ran.err.count("\n") == 1


# --- checkpoints


def test_a_checkpoint_is_judged(run: Run) -> None:
    import numpy as np

    from tests.checkpoint.archives import save_safetensors

    good = {"a.weight": np.ones((4, 4), np.float32)}
    save_safetensors(Path("good.safetensors"), good)
    save_safetensors(Path("bad.safetensors"), {"a.weight": np.full((4, 4), np.nan, np.float32)})
    Path("cut.safetensors").write_bytes(Path("good.safetensors").read_bytes()[:-4])
    assert run("checkpoint", "good.safetensors", "--no-html").code == 0
    ran = run("checkpoint", "bad.safetensors", "--output-format", "json", "--html", "report.html")
    assert (ran.code, ran.report["runs"][0]["kind"]) == (1, "checkpoint")
    assert "a.weight" in Path("report.html").read_text()
    assert run("checkpoint", "bad.safetensors", "--select", "TP992", "--no-html").code == 0
    cut = run("checkpoint", "cut.safetensors", "--no-html")
    assert (cut.code, cut.out, cut.err.count("\n")) == (2, "", 1)
    assert "cut.safetensors: a cut safetensors file" in cut.err
