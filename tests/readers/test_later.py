"""Large JSONL logs: a second process decodes the later half, and the result is that of one process."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.readers.logs import everything
from trainproof import aside, read
from trainproof.frame import Frame
from trainproof.readers import later, source


@pytest.fixture
def two_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "CHUNK_BYTES", 512)
    monkeypatch.setattr(aside, "LARGE", 1000)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)


def records(n: int, **more: Any) -> list[str]:
    return [json.dumps({"step": i, "loss": 3 / i, **more}) for i in range(1, n + 1)]


def told(path: Path) -> tuple[object, ...]:
    frame = read(path)
    assert isinstance(frame, Frame)
    return everything(frame), frame.dropped, frame.dropped_count


_DECODED = later._decoded
PLAIN = records(400)
LATER_KEYS = [*PLAIN, *(json.dumps({"step": i, "loss": 0.01, "eval_loss": 1.0}) for i in range(401, 600))]
DAMAGED = [*PLAIN[:300], "", "{broken", *PLAIN[300:], '{"step": 401, "loss": NaN}', '{"step": 402, "lo']
OVERLONG = [*PLAIN[:350], "x" * 5000, *PLAIN[350:]]


@pytest.mark.parametrize("lines", [PLAIN, LATER_KEYS, DAMAGED, OVERLONG])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_two_processes_read_what_one_reads(
    lines: list[str], mark: bytes, tmp_path: Path, two_processors: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log.jsonl"
    log.write_bytes(mark + "\n".join(lines).encode())
    monkeypatch.setattr(source, "MOST_LINE_BYTES", 2000)
    found = told(log)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)
    assert told(log) == found


def test_the_second_process_does_half_of_the_work(tmp_path: Path, two_processors: None) -> None:
    (log := tmp_path / "log.jsonl").write_text("\n".join(PLAIN) + "\n")
    half = log.stat().st_size // 2
    found = later._decoded(str(log), half, {"step": True, "loss": True})
    assert min(offset for offset, _ in found) >= half
    assert sum(length for _, length in found) > 0.4 * log.stat().st_size
    assert later._decoded(str(tmp_path / "gone.jsonl"), half, {"step": True}) == {}


def _killed(*_: object) -> None:
    os._exit(9)


def _other_chunks(path: str, *_: object) -> later.Decoded:
    """As of a log that grew between the two: where chunks end elsewhere, none is taken for another."""
    known = {"step": True, "loss": True}
    return {(offset + 1, length): cells for (offset, length), cells in _DECODED(path, 0, known).items()}


@pytest.mark.parametrize("work", [_killed, _other_chunks])
def test_what_the_second_process_did_not_do_the_first_does(
    work: Callable[..., Any], tmp_path: Path, two_processors: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    (log := tmp_path / "log.jsonl").write_text("\n".join(PLAIN) + "\n")
    expected = told(log)
    monkeypatch.setattr(later, "_decoded", work)
    assert told(log) == expected


def test_compressed_logs_and_pipes_are_read_by_one(tmp_path: Path, two_processors: None) -> None:
    import gzip

    plain, packed = tmp_path / "log.jsonl", tmp_path / "log.jsonl.gz"
    plain.write_text("\n".join(records(4000)) + "\n")
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert packed.stat().st_size > aside.LARGE
    assert not later._is_plain(str(packed))
    assert told(packed)[0] == told(plain)[0]
    assert source.LogInput("-", plain.read_bytes()).size_on_disk == 0
