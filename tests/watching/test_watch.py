"""The verb: exit codes, stalls, commands, reports, many logs, and processes that really run."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.live import made
from tests.live.feeding import everything, said, watched
from tests.watching.logs import (
    Clock,
    append,
    chunks,
    frame,
    jsonl,
    line_of,
    only_run,
    points,
    standing,
    values_in,
    watch,
)
from trainproof.api import judge
from trainproof.errors import UsageError
from trainproof.verdict import Severity, Verdict
from trainproof.watch_command import WatchOptions, run_watch
from trainproof.watching.display import duration
from trainproof.watching.hooks import Commands
from trainproof.watching.process import is_running

BASH = shutil.which("bash")
NAN, HEALTHY = jsonl(frame("nan_loss", 200)), jsonl(frame("healthy", 200))


def once(*paths: Path, **options: object) -> int:
    return run_watch(WatchOptions(tuple(map(str, paths)), once=True, **options))  # type: ignore[arg-type]


class TestExitCodes:
    def test_once_is_0_on_a_healthy_log_1_on_a_failed_and_2_on_none(self, tmp_path: Path) -> None:
        healthy, lost, empty = tmp_path / "healthy", tmp_path / "lost", tmp_path / "empty"
        healthy.write_bytes(HEALTHY)
        lost.write_bytes(NAN)
        empty.write_bytes(b"")
        assert [once(path) for path in (healthy, lost, empty, tmp_path / "missing")] == [0, 1, 2, 2]
        assert once(healthy, lost) == 1
        assert once(healthy, empty) == 0

    def test_until_fail_is_1_at_the_first_fail_and_waits_till_then(self, tmp_path: Path) -> None:
        path = tmp_path / "log.jsonl"
        seen = watch(path, until_fail=True)
        codes = []
        for data in chunks(NAN, 0, 500):
            append(path, data)
            codes.append(seen.look())
        assert codes[0] is None
        assert 1 in codes
        assert only_run(seen).verdict is Verdict.FAIL
        seen.close()

    def test_a_failed_run_alone_ends_nothing(self, tmp_path: Path) -> None:
        path = tmp_path / "log.jsonl"
        path.write_bytes(NAN)
        seen = watch(path)
        assert seen.look() is None
        seen.close()

    def test_an_end_marker_ends_the_watch(self, tmp_path: Path) -> None:
        state = {
            "max_steps": 30,
            "log_history": [
                *({"step": i, "loss": 3 - i / 20, "learning_rate": 1e-4 * (1 - i / 31)} for i in range(1, 31)),
                {"step": 30, "train_runtime": 1.0, "train_loss": 2.0},
            ],
        }
        path = tmp_path / "trainer_state.json"
        path.write_text(json.dumps({**state, "log_history": state["log_history"][:20]}))  # type: ignore[index]
        seen = watch(path)
        assert seen.look() is None
        path.write_text(json.dumps(state))
        assert seen.look() == 0
        seen.close()

    @pytest.mark.parametrize(("log", "code"), [(HEALTHY, 0), (NAN, 1)])
    def test_with_the_process_that_writes_it_the_log_has_ended(self, log: bytes, code: int, tmp_path: Path) -> None:
        """Its last line has no end, and is read all the same; nobody has waited for the process yet."""
        path = tmp_path / "log.jsonl"
        with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as writer:
            seen = watch(path, pid=writer.pid)
            append(path, log[:-1])
            assert seen.look() is None
            assert seen.look() is None
            writer.communicate(b"\n")
            assert seen.look() == code
        assert points(only_run(seen)) == values_in(log)
        seen.close()

    def test_a_process_that_has_ended_and_is_not_waited_for_does_not_run(self) -> None:
        writer = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        assert is_running(writer.pid)
        writer.kill()
        if Path("/proc").is_dir():
            os.waitid(os.P_PID, writer.pid, os.WEXITED | os.WNOWAIT)
            assert not is_running(writer.pid)
        writer.communicate()
        assert not is_running(writer.pid)
        assert is_running(1)

    def test_standard_input_is_told_to_be_none_of_its_business(self) -> None:
        with pytest.raises(UsageError, match="epoch -"):
            run_watch(WatchOptions(("-",)))

    @pytest.mark.parametrize("wrong", [["--interval", "0"], ["--stall-timeout", "x"], ["--select", "XX9"], []])
    def test_wrong_usage_is_2_and_one_line(self, wrong: list[str], tmp_path: Path) -> None:
        log = [str(tmp_path / "log")] if wrong else []
        run = subprocess.run(
            [sys.executable, "-m", "trainproof", "watch", *log, *wrong], capture_output=True, text=True
        )
        assert run.returncode == 2
        assert run.stderr.count("\n") == 1


class TestWhatBecomesOfLogs:
    def test_a_log_that_is_not_there_yet(self, tmp_path: Path) -> None:
        seen = watch(tmp_path / "later.jsonl")
        assert seen.look() is None
        (tmp_path / "later.jsonl").write_bytes(b'{"st')
        assert seen.look() is None
        (tmp_path / "later.jsonl").write_bytes(HEALTHY)
        seen.look()
        assert only_run(seen).step == 200
        seen.close()

    def test_runs_that_join_a_folder(self, tmp_path: Path) -> None:
        seen = watch(tmp_path)
        seen.look()
        for i in range(3):
            (tmp_path / f"run{i}").mkdir()
            (tmp_path / f"run{i}" / "log.jsonl").write_bytes(NAN if i == 1 else HEALTHY)
            seen.look()
            assert len(seen.runs) == i + 1
        assert [run.verdict for run in seen.runs] == [Verdict.PASS, Verdict.FAIL, Verdict.PASS]
        seen.close()

    def test_a_rotated_log_is_one_run(self, tmp_path: Path) -> None:
        path = tmp_path / "log.jsonl"
        lines = NAN.splitlines(keepends=True)
        path.write_bytes(b"".join(lines[:90]))
        seen = watch(path)
        seen.look()
        with path.open("ab") as writer:
            writer.write(b"".join(lines[90:100]))
            path.rename(tmp_path / "log.jsonl.1")  # during the writing
            writer.write(b"".join(lines[100:110]))
        path.write_bytes(b"".join(lines[110:]))
        seen.look()
        run = only_run(seen)
        assert points(run) == values_in(NAN)
        (tmp_path / "whole.jsonl").write_bytes(NAN)
        whole = watch(tmp_path / "whole.jsonl")
        whole.look()
        assert standing(run) == standing(only_run(whole))
        seen.close()
        whole.close()

    @pytest.mark.parametrize("head", [b"", b"\n" * 70_000])
    def test_a_log_that_is_replaced_by_another_run_is_judged_by_itself(self, head: bytes, tmp_path: Path) -> None:
        path = tmp_path / "log.jsonl"
        path.write_bytes(NAN + head)
        seen = watch(path)
        seen.look()
        assert only_run(seen).verdict is Verdict.FAIL
        path.write_bytes(HEALTHY)
        seen.look()
        assert only_run(seen).verdict is Verdict.PASS
        seen.close()

    def test_fifty_logs_at_once_lose_nothing_and_say_nothing_twice(self, tmp_path: Path) -> None:
        told = tmp_path / "told"
        kinds = ("healthy", "nan_loss", "spike_and_recover", "zero_collapse", "late_divergence")
        logs = {tmp_path / f"{i}.jsonl": jsonl(frame(kinds[i % 5], 100, 0.1, i)) for i in range(50)}
        seen = watch(*logs, exec_command=f"cat >> {told}")
        pieces = [(path, list(chunks(data, i, 2500))) for i, (path, data) in enumerate(logs.items())]
        for turn in range(max(len(parts) for _, parts in pieces)):
            for path, parts in pieces:
                append(path, parts[turn] if turn < len(parts) else b"")
            seen.look()
        seen.close()
        assert [points(run) for run in seen.runs] == [values_in(data) for data in logs.values()]
        said = [json.loads(line) for line in told.read_text().splitlines()]
        keys = [(one["source"], one["rule"], one["severity"], one["flagged_step"]) for one in said]
        assert len(keys) == len(set(keys)) > 30


class TestStall:
    def test_a_run_that_stands_still_fails_once_and_is_cleared_by_its_next_record(self, tmp_path: Path) -> None:
        path, clock = tmp_path / "log.jsonl", Clock()
        told = tmp_path / "told"
        path.write_bytes(HEALTHY[:4000])
        seen = watch(path, clock=clock, exec_command=f"cat >> {told}")
        seen.look()
        clock.now = 590
        seen.look()
        assert only_run(seen).verdict is Verdict.PASS
        for clock.now in (601, 700, 800):
            assert seen.look() is None
            assert [f.rule for f in only_run(seen).findings] == ["TP907"]
            assert only_run(seen).verdict is Verdict.FAIL
        path.write_bytes(HEALTHY)
        seen.look()
        assert only_run(seen).verdict is Verdict.PASS
        seen.close()
        assert [json.loads(line)["rule"] for line in told.read_text().splitlines()] == ["TP907"]

    def test_a_run_that_is_slow_by_nature_is_given_its_time(self, tmp_path: Path) -> None:
        path, clock = tmp_path / "log.jsonl", Clock()
        seen = watch(path, clock=clock)
        for line in HEALTHY.splitlines(keepends=True)[:10]:
            append(path, line)
            seen.look()
            clock.now += 1000
        clock.now += 8000
        seen.look()
        assert only_run(seen).verdict is Verdict.PASS
        clock.now += 2000
        seen.look()
        assert only_run(seen).verdict is Verdict.FAIL
        seen.close()

    def test_the_time_of_day_may_jump(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path, clock = tmp_path / "log.jsonl", Clock()
        path.write_bytes(HEALTHY)
        seen = watch(path, clock=clock)
        monkeypatch.setattr(time, "time", lambda: 4e9)
        seen.look()
        os.utime(path, (0, 0))
        assert seen.look() is None
        assert only_run(seen).verdict is Verdict.PASS
        seen.close()

    def test_with_until_fail_a_stall_ends_the_watch(self, tmp_path: Path) -> None:
        path, clock = tmp_path / "log.jsonl", Clock()
        path.write_bytes(HEALTHY)
        seen = watch(path, clock=clock, until_fail=True, stall_timeout=60.0)
        assert seen.look() is None
        clock.now = 61
        assert seen.look() == 1
        seen.close()


class TestCommands:
    def test_the_finding_is_json_on_its_input_and_its_parts_are_in_the_environment(self, tmp_path: Path) -> None:
        path, out = tmp_path / "log.jsonl", tmp_path / "out"
        path.write_bytes(NAN)
        once(path, exec_command=f'cat >> {out}; echo "$TRAINPROOF_SEVERITY $TRAINPROOF_RULE $TRAINPROOF_STEP" >> {out}')
        text = out.read_text()
        assert "FAIL TP101 121" in text.splitlines()
        found = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        assert {"source", "rule", "name", "severity", "message", "first_step", "flagged_step", "evidence"} <= set(
            found[0]
        )
        assert {one["source"] for one in found} == {str(path)}

    def test_one_that_never_ends_is_killed_and_holds_nothing_up(self, capsys: pytest.CaptureFixture[str]) -> None:
        commands = Commands("exec sleep 600", timeout=0.2)
        finding = watched(frame("nan_loss", 60)).guardian.findings[0]
        begin = time.monotonic()
        commands.run("log", finding)
        assert time.monotonic() - begin < 60
        commands.wait()
        assert time.monotonic() - begin < 60
        assert "killed after 0.2 s" in capsys.readouterr().err

    def test_one_that_fails_costs_nothing(self, tmp_path: Path) -> None:
        path = tmp_path / "log.jsonl"
        path.write_bytes(NAN)
        assert once(path, exec_command="exit 7") == 1
        assert once(path, exec_command="/no/such/command 2>/dev/null") == 1


class TestOutput:
    def test_a_line_only_when_the_verdict_changes(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        path = tmp_path / "log.jsonl"
        seen = watch(path)
        for data in chunks(NAN, 0, 900):
            append(path, data)
            seen.look()
        seen.close()
        lines = capsys.readouterr().out.splitlines()
        assert [line.split("  ")[2].split(":")[0] for line in lines] == ["PASS", "FAIL"]
        assert "TP101 nonfinite-loss at step 121" in lines[1]

    def test_the_report_is_written_when_a_verdict_changes_and_reloads_itself(self, tmp_path: Path) -> None:
        path, page = tmp_path / "log.jsonl", tmp_path / "page.html"
        path.write_bytes(HEALTHY[:9000])
        seen = watch(path, html=str(page))
        seen.look()
        first = page.read_text()
        assert '<meta http-equiv="refresh" content="10">' in first
        path.write_bytes(NAN)
        seen.look()
        assert "TP101" in page.read_text()
        seen.close()

    def test_a_report_that_cannot_be_written_costs_one_line(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = tmp_path / "log.jsonl"
        path.write_bytes(HEALTHY)
        assert once(path, html=str(tmp_path / "no" / "page.html")) == 0
        assert "no HTML report" in capsys.readouterr().err

    def test_names_from_outside_cannot_write_to_the_terminal(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = tmp_path / "a\x1b[31mb.jsonl"
        path.write_bytes(HEALTHY)
        once(path)
        assert "\x1b" not in capsys.readouterr().out

    @pytest.mark.parametrize(
        ("seconds", "text"), [(5, "5s"), (600, "10m"), (3 * 3600 + 300, "3h05"), (2 * 86400 + 4 * 3600, "2d04h")]
    )
    def test_durations(self, seconds: float, text: str) -> None:
        assert duration(seconds) == text


WRITER = """
import random, sys, time
data = open(sys.argv[1], "rb").read()
sizes, at = random.Random(0), 0
with open(sys.argv[2], "ab", buffering=0) as log:
    while at < len(data):
        size = sizes.randint(1, 400)
        log.write(data[at : at + size])
        at += size
        time.sleep(0.002)
    log.write(b'{"step": 99')
    time.sleep(600)
"""


@pytest.mark.parametrize("until", [0.7, 1.0])
def test_a_writer_that_is_killed_loses_nothing_of_what_it_wrote(until: float, tmp_path: Path) -> None:
    """A process appends pieces of random sizes; it is killed in the middle of it, or when it has written a part of a last line."""
    source, path = tmp_path / "source", tmp_path / "log.jsonl"
    source.write_bytes(NAN)
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(source), str(path)])
    seen = watch(path)
    try:
        while not path.exists() or path.stat().st_size < until * len(NAN) + (until == 1):
            seen.look()
    finally:
        writer.send_signal(signal.SIGKILL)
        writer.wait()
    seen.look()
    whole = path.read_bytes()
    whole = whole[: whole.rfind(b"\n") + 1]
    assert points(only_run(seen)) == values_in(whole)
    path.write_bytes(whole)
    finished = [finding for finding in everything(judge(path).runs[0]) if finding.severity is not Severity.INFO]
    assert standing(only_run(seen)) == sorted(map(said, finished))
    assert [one.flagged_step for one in standing(only_run(seen)) if one.rule == "TP101"] == [121]
    seen.close()


@pytest.mark.parametrize("kind", ["resumed, its scheduler lost", "resumed, its data begun anew", "restart loop"])
def test_a_run_that_crashes_and_goes_on_in_its_log_is_told_as_the_finished_log_is(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    log, _ = made.KINDS[kind](0)
    seen = watch(path)
    for data in chunks(b"".join(map(line_of, log)), 0, 2000):
        append(path, data)
        seen.look()
    only_run(seen).guardian.ask()
    finished = [finding for finding in everything(judge(path).runs[0]) if finding.severity is not Severity.INFO]
    assert standing(only_run(seen)) == sorted(map(said, finished)) != []
    seen.close()


TRAINING = """
import json, sys, time
loss, step = 2.0, 0
while step < 300 or loss != loss:
    step += 1
    loss = loss * 0.99 if step < 60 else float("nan")
    print(json.dumps({"step": step, "loss": loss}), file=open(sys.argv[1], "a"), flush=True)
    time.sleep(0.005)
"""


@pytest.mark.skipif(BASH is None, reason="needs bash")
@pytest.mark.parametrize(("fault", "ending"), [('float("nan")', 143), ("loss * 0.99", 0)])  # 128 + SIGTERM
def test_a_shell_script_stops_a_training_process_with_it(fault: str, ending: int, tmp_path: Path) -> None:
    """As the README shows it; a healthy run goes to its end, and the script with it."""
    (tmp_path / "train.py").write_text(TRAINING.replace('float("nan")', fault))
    script = f"""
    {sys.executable} train.py log.jsonl &
    trainer=$!
    {sys.executable} -m trainproof watch log.jsonl --until-fail --pid $trainer --interval 0.1
    [ $? -ne 1 ] || kill $trainer
    wait $trainer
    echo "the training ended with $?"
    """
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    run = subprocess.run([BASH or "", "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300)
    assert ("FAIL: TP101" in run.stdout) is (ending != 0)
    assert f"the training ended with {ending}\n" in run.stdout
