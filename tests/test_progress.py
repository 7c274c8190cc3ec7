"""The bar over many logs: on a terminal only, and on standard error only."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from trainproof.progress import FEW
from trainproof.readers.discover import files_named, read_logs


def write_runs(folder: Path, count: int) -> None:
    for i in range(count):
        path = folder / f"run-{i:02}" / "log.jsonl"
        path.parent.mkdir(parents=True)
        path.write_text("".join(json.dumps({"step": s, "loss": 3 / s}) + "\n" for s in range(1, 40)))


def judged(folder: Path, stderr: int) -> str:
    """What `trainproof epoch` prints on standard output, with its standard error given to `stderr`."""
    command = [sys.executable, "-m", "trainproof", "epoch", str(folder), "--no-html", "--quiet"]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=stderr, text=True, check=True).stdout


def on_terminal(folder: Path) -> tuple[str, str]:
    """Standard output, and what a terminal shows."""
    terminal, inner = pty.openpty()
    out = judged(folder, inner)
    os.close(inner)
    shown = b""
    try:
        while piece := os.read(terminal, 4096):
            shown += piece
    except OSError:  # how Linux ends it
        pass
    os.close(terminal)
    return out, shown.decode()


@pytest.mark.parametrize("more", [0, 1])
def test_a_terminal_sees_a_bar_over_many_logs(tmp_path: Path, more: int) -> None:
    write_runs(tmp_path, FEW + more)
    out, shown = on_terminal(tmp_path)
    assert len(out.splitlines()) >= FEW + more
    assert out == judged(tmp_path, subprocess.DEVNULL)
    assert ("judging" in shown and "100%" in shown) is bool(more)


def test_nothing_but_a_terminal_does(tmp_path: Path) -> None:
    write_runs(tmp_path, FEW + 1)
    command = [sys.executable, "-m", "trainproof", "epoch", str(tmp_path), "--no-html", "--quiet"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stderr == ""


def test_files_are_counted_in_the_order_in_which_they_are_judged(tmp_path: Path) -> None:
    write_runs(tmp_path / "b", 3)
    write_runs(tmp_path / "a", 3)
    (tmp_path / "notes.txt").write_text("nothing")
    inputs = [str(tmp_path), str(tmp_path / "b" / "*" / "*.jsonl"), "-"]
    files = files_named(inputs)
    assert files[0] == str(tmp_path / "notes.txt")
    assert files[-4:] == [*(str(tmp_path / "b" / f"run-{i:02}" / "log.jsonl") for i in range(3)), "-"]
    assert [log.path for log in read_logs([str(tmp_path)])] == files[1:7]
