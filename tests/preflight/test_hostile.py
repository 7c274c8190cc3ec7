"""Input that is made to hurt: every command answers with a finding, or with one line and exit 2, and executes nothing."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.commands import Run, runner

HUGE = 100 * 1024**3


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    return runner(monkeypatch, capfd)


def sparse(path: Path, head: bytes = b"") -> None:
    with path.open("wb") as file:
        file.write(head)
        file.truncate(HUGE)


def bomb(path: Path) -> None:
    """A document that unpacks to 100 MB from 100 KB."""
    with gzip.open(path, "wb", 6) as file:
        file.write(b"[")
        for _ in range(100):
            file.write(b"0," * (1 << 19))


def packed_batch(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        header = b"\x93NUMPY\x01\x00v\x00{'descr': '<f8', 'fortran_order': False, 'shape': (1073741824, 10), }".ljust(
            128
        )
        archive.writestr("labels.npy", header + b"\n" + bytes(1 << 20))


def pickled_batch(path: Path) -> None:
    np.savez(path, labels=np.array([Path(path).parent], dtype=object))


def endless_wave(path: Path) -> None:
    sparse(
        path,
        b"RIFF\xff\xff\xff\xffWAVEfmt "
        + struct.pack("<IHHIIHH", 16, 1, 1, 8000, 16000, 2, 16)
        + b"data\xff\xff\xff\xff",
    )


MADE: dict[str, tuple[str, Callable[[Path], object]]] = {
    "a document of 100 GB": ("data.json", lambda path: sparse(path, b'[{"text": "a"},')),
    "a table of 100 GB": ("data.csv", lambda path: sparse(path, b"text,label\na,b\n")),
    "zeros of 100 GB": ("data.jsonl", sparse),
    "a sound instead of data": ("sound.wav", endless_wave),
    "an unpacking bomb": ("data.json.gz", bomb),
    "a link to itself": ("data.jsonl", lambda path: path.symlink_to(path)),
    "a pipe": ("data.jsonl", os.mkfifo),
    "a folder of the name": ("data.jsonl", Path.mkdir),
    "a pickle": ("data.jsonl", lambda path: path.write_bytes(pickle.dumps({"a": 1}))),
    "nothing": ("data.jsonl", Path.touch),
}  # fmt: skip


@pytest.mark.parametrize("name", MADE)
def test_data(name: str, run: Run, tmp_path: Path) -> None:
    file, make = MADE[name]
    make(tmp_path / file)
    done = run("data", str(tmp_path / file), "--workers", "1", "--no-html")
    assert done.code in (1, 2)
    if done.code == 2:
        assert len(done.err.strip().splitlines()) == 1
    else:
        assert "TPD001" in done.out


@pytest.mark.parametrize("name", MADE)
def test_tokenizers(name: str, run: Run, tmp_path: Path) -> None:
    file, make = MADE[name]
    make(tmp_path / file)
    done = run("tokenizer", str(tmp_path / file), "--no-html")
    assert (done.code, len(done.err.strip().splitlines())) == (2, 1)


@pytest.mark.parametrize("make", [packed_batch, pickled_batch, sparse], ids=["bomb", "pickle", "100 GB"])
def test_batches(make: Callable[[Path], object], run: Run, tmp_path: Path) -> None:
    make(tmp_path / "batch.npz")
    done = run("objective", str(tmp_path / "batch.npz"), "--no-html")
    assert (done.code, len(done.err.strip().splitlines())) == (2, 1)


def test_a_pack_of_hostile_sounds(run: Run, tmp_path: Path) -> None:
    """A sound of 100 GB, links in a loop, a folder of a sound's name: each is a finding, and the other clips are judged."""
    endless_wave(tmp_path / "endless.wav")
    (tmp_path / "loop.wav").symlink_to(tmp_path / "loop.wav")
    (tmp_path / "folder.wav").mkdir()
    (tmp_path / "again").symlink_to(tmp_path)
    names = ("endless", "loop", "folder", "again/again/again/endless")
    (tmp_path / "train.jsonl").write_text(
        "".join(json.dumps({"audio_filepath": f"{name}.wav", "text": "text"}) + "\n" for name in names)
    )
    done = run("data", str(tmp_path / "train.jsonl"), "--workers", "1", "--no-html", "--output-format", "json")
    assert done.code == 1
    found = {finding["rule"]: finding["evidence"] for finding in done.run["findings"]}
    assert {point["line"] for code in ("TPD201", "TPD241") for point in found.get(code, [])} == {1, 2, 3, 4}


def test_sounds_that_are_no_files_are_not_read(run: Run, tmp_path: Path) -> None:
    """A pipe, a device without end, names that no system takes, places in recordings that are no numbers."""
    os.mkfifo(tmp_path / "pipe.wav")
    (tmp_path / "zero.wav").symlink_to("/dev/zero")
    names = ("pipe.wav", "zero.wav", "a\0b.wav", "x" * 5000 + ".wav", "../" * 3000 + "a.wav")
    rows = [
        {"audio_filepath": name, "text": "text", **part}
        for name in names
        for part in ({}, {"offset": 1, "duration": 1e308})
    ]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = run("data", str(tmp_path / "train.jsonl"), "--workers", "1", "--no-html", "--output-format", "json")
    assert done.code == 1
    told = [finding for finding in done.run["findings"] if finding["rule"] in ("TPD201", "TPD241")]
    assert sum(int(finding["message"].split()[0]) for finding in told) == len(rows)


@pytest.mark.parametrize("line", ["bad", "u1 rec 0", "u1 rec nan inf", "u1 rec 0 1e308", "u1 other 0 1"])
def test_lines_of_segments_that_name_no_part(line: str, run: Run, tmp_path: Path) -> None:
    (tmp_path / "wav.scp").write_text("rec sox $(touch ran).wav -t wav - |\n")
    (tmp_path / "text").write_text("u1 text\n")
    (tmp_path / "segments").write_text(f"{line}\n")
    done = run("data", str(tmp_path), "--workers", "1", "--no-html")
    assert (done.code, "segments:1" in done.out) == (1, True)
    assert not list(tmp_path.rglob("ran"))


def test_a_list_without_end_is_one_line(run: Run, tmp_path: Path) -> None:
    sparse(tmp_path / "metadata.csv", b"a.wav|text\n" * 1000)
    done = run("data", str(tmp_path / "metadata.csv"), "--workers", "1", "--no-html")
    assert (done.code, len(done.err.strip().splitlines())) == (2, 1)


def test_a_document_that_is_no_json_is_told(run: Run, tmp_path: Path) -> None:
    (tmp_path / "data.json").write_text("nothing of the kind\n")
    done = run("data", str(tmp_path / "data.json"), "--workers", "1", "--no-html")
    assert (done.code, "TPD003" in done.out) == (1, True)


def test_a_folder_that_may_not_be_read(run: Run, tmp_path: Path) -> None:
    (tmp_path / "again").symlink_to(tmp_path)
    assert run("env", "--folder", str(tmp_path / "none"), "--no-html").code in (0, 2)
    assert run("env", "--folder", str(tmp_path / "again" / "again"), "--no-html").code == 0
