"""`watch` over a log that grows says what `epoch` says of the finished one, whatever the format and the pieces."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.live.feeding import everything, finished, said
from tests.watching.logs import append, chunks, csv, frame, jsonl, only_run, points, standing, values_in, watch
from trainproof.api import judge, read
from trainproof.readers.source import HEAD_BYTES
from trainproof.verdict import Severity

GALLERY = Path(__file__).parents[2] / "examples" / "gallery"
KINDS = ("healthy", "late_divergence", "spike_and_recover", "nan_loss", "zero_collapse", "eval_rise", "plateau")


def judged(path: Path) -> list[tuple[str, str, int]]:
    """What `epoch` says of the finished log."""
    [run] = judge(path).runs
    return sorted(said(finding) for finding in everything(run) if finding.severity is not Severity.INFO)


@pytest.mark.parametrize("write", [jsonl, csv])
@pytest.mark.parametrize("kind", KINDS)
def test_random_pieces(kind: str, write, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    for n, most in ((60, 200), (400, 5000), (1200, 40_000)):  # the last two outgrow the head
        path = tmp_path / f"{n}.log"
        seen = watch(path)
        for data in chunks(write(frame(kind, n)), n, most):
            append(path, data)
            seen.look()
        seen.look()
        run = only_run(seen)
        for finding in run.guardian.ask():
            assert finding.flagged_step == run.step
        assert standing(run) == judged(path)
        seen.close()


def test_it_says_so_at_the_look_that_brings_the_record(tmp_path: Path) -> None:
    run = frame("nan_loss", 400)
    lines = jsonl(run).splitlines(keepends=True)
    path = tmp_path / "log.jsonl"
    seen = watch(path, until_fail=True)
    for line in lines:
        append(path, line)
        if seen.look() == 1:
            break
    assert json.loads(line)["step"] == finished(run)[0].flagged_step
    seen.close()


def test_each_byte_is_read_once(tmp_path: Path) -> None:
    """However often it is looked at (benchmarks/live.py counts a million records)."""
    path = tmp_path / "log.jsonl"
    seen = watch(path)
    for data in chunks(jsonl(frame("healthy", 8000)), 3, 30_000):
        append(path, data)
        seen.look()
    assert seen.bytes_read == path.stat().st_size > 10 * HEAD_BYTES
    assert points(only_run(seen)) == values_in(path.read_bytes())
    seen.close()


def test_a_state_that_is_written_again_and_again(tmp_path: Path) -> None:
    """trainer_state.json is a document: each time it has changed it is read again, and only what is new is judged."""
    whole = json.loads((GALLERY / "lr_zero" / "trainer_state.json").read_text())
    path = tmp_path / "trainer_state.json"
    seen = watch(path)
    said_at: dict[tuple[str, str], int] = {}
    for count in range(1, len(whole["log_history"]) + 1):
        text = json.dumps({**whole, "log_history": whole["log_history"][:count]}, indent=2)
        path.write_text(text[: len(text) // 2])  # it is being written
        seen.look()
        path.write_text(text)
        seen.look()
        for finding in only_run(seen).findings if seen.runs else ():
            said_at.setdefault((finding.rule, finding.severity.value), whole["log_history"][count - 1]["step"])
    run = only_run(seen)
    assert run.guardian.records == len(whole["log_history"]) - ("train_runtime" in whole["log_history"][-1])
    assert said_at["TP301", "FAIL"] == 65
    seen.close()


def test_the_checkpoints_of_an_output_folder_are_one_run(tmp_path: Path) -> None:
    whole = json.loads((GALLERY / "overfit" / "trainer_state.json").read_text())
    seen = watch(tmp_path)
    for step in (50, 100, 150, 200):
        history = [record for record in whole["log_history"] if record["step"] <= step]
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        text = json.dumps({**whole, "global_step": step, "log_history": history}, indent=2)
        (folder / "trainer_state.json").write_text(text)
        seen.look()
        assert only_run(seen).step == step
    seen.close()


def test_a_compressed_log_is_read_again_when_it_has_changed(tmp_path: Path) -> None:
    data = jsonl(frame("nan_loss", 200))
    path = tmp_path / "log.jsonl.gz"
    seen = watch(path)
    for part in (len(data) // 3, len(data)):
        path.write_bytes(gzip.compress(data[: data.rfind(b"\n", 0, part) + 1]))
        seen.look()
    assert [f.rule for f in only_run(seen).findings if f.severity is Severity.FAIL] == ["TP101", "TP102"]
    assert points(only_run(seen)) == values_in(data)
    seen.close()


def test_a_half_written_line_waits_for_its_end(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_bytes(b"step,loss\n1,2.5\n2,2.4\n3,2.")
    seen = watch(path)
    seen.look()
    assert only_run(seen).loss == 2.4
    append(path, b"3\n")
    seen.look()
    assert only_run(seen).loss == 2.3
    seen.close()


def test_the_last_line_of_a_finished_log_needs_no_end(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_bytes(b"step,loss\n1,2.5\n2,2.4\n3,2.3")
    seen = watch(path, once=True)
    seen.look()
    assert only_run(seen).loss == 2.3
    seen.close()


def test_text_of_several_lines_a_record_is_put_together_over_looks(tmp_path: Path) -> None:
    head = "> TRAINING (2026-01-01 00:00:00)\n"
    steps = "".join(
        f"   --> STEP: {i}/500 -- GLOBAL_STEP: {i}\n     | > loss: {3.0 - i / 1000:.5f}  ({3.0:.5f})\n"
        f"     | > grad_norm: {1 + i % 7:.5f}  (1.00000)\n     | > current_lr: 0.001\n\n"
        for i in range(1, 900)
    )
    data = (head + steps).encode()
    assert len(data) > HEAD_BYTES
    path, whole = tmp_path / "log.txt", tmp_path / "whole.txt"
    whole.write_bytes(data)
    seen = watch(path, format_name="coqui")
    for piece in chunks(data, 1, 3000):
        append(path, piece)
        seen.look()
    frame = only_run(seen).guardian.log.frames()[0]
    offline = read(whole, format="coqui")
    assert {name: len(series) for name, series in frame.items()} == {n: len(s) for n, s in offline.items()}
    assert all((frame[name].value == offline[name].value).all() for name in offline)
    seen.close()
