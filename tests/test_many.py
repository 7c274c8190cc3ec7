"""Many logs are judged by several processes, with the same report as by one."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path

import pytest

from trainproof.api import judge_logs
from trainproof.errors import UsageError
from trainproof.judge import Settings
from trainproof.many import BATCH, MANY, Asked, judged_logs
from trainproof.verdict import Verdict

LINE = "step:{}/400 train_loss:{:.4f} train_time:{}ms step_avg:163.40ms\n"


def write_log(path: Path, seed: int, records: int = 30) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = ({"step": i, "loss": 2.0 + 1 / (i + seed % 7), "lr": 1e-3} for i in range(1, records + 1))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def many(tmp_path: Path) -> list[str]:
    """More logs than one process judges alone: in a folder, by name, and one that is none."""
    for i in range(MANY):
        write_log(tmp_path / "runs" / f"run-{i:02}" / "log.jsonl", i)
    for node in range(BATCH + 1):  # what each node printed of one run
        text = "".join(LINE.format(i, 3 + 1 / i, i) for i in range(1, 41 - node % 3))
        path = tmp_path / "runs" / "printed" / f"node-{node:02}.log"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    write_log(tmp_path / "last.jsonl", 3)
    (tmp_path / "empty.jsonl").write_text("")
    return [str(tmp_path / name) for name in ("empty.jsonl", "runs", "last.jsonl")]


def test_the_report_is_that_of_one_process(many: list[str]) -> None:
    seen: dict[int, list[str]] = {1: [], 2: []}
    alone, shared = (judge_logs(many, Settings(), processes=n, seen=seen[n].append) for n in (1, 2))
    assert len(alone.report.runs) == MANY + 3  # the nodes' texts are one run
    assert shared.report == alone.report
    assert seen[1] == seen[2]
    assert [str(problem) for problem in shared.problems] == [str(problem) for problem in alone.problems]
    assert [run.verdict for run in shared.report.runs].count(Verdict.SKIP) == 1
    assert shared.unjudged


def test_an_unknown_format_is_told_before_anything_is_read(many: list[str]) -> None:
    with pytest.raises(UsageError, match="unknown format"):
        list(judged_logs(many, Asked(Settings(), "no-such-format"), 2))


def test_who_stops_looking_leaves_no_process_behind(many: list[str]) -> None:
    logs = judged_logs(many, Asked(Settings()), 2)
    assert next(logs).problem is not None
    assert next(logs).path.endswith("node-00.log")
    logs.close()  # type: ignore[attr-defined]  # a generator
    assert not multiprocessing.active_children()
