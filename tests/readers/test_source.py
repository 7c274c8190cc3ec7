"""The input layer: what a log lies in never changes what readers see of it, and no input fills the memory."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from trainproof.errors import InputError
from trainproof.readers import source, streams
from trainproof.readers.source import LogInput

TEXT = "".join(f'{{"step": {i}, "loss": {1 / i}, "name": "größe"}}\n' for i in range(1, 3000))
PLAIN = TEXT.encode()
PACKED = {
    "gz": gzip.compress(PLAIN),
    "xz": lzma.compress(PLAIN),
    "zst": zstandard.compress(PLAIN),
    "two gz members": gzip.compress(PLAIN[:5000]) + gzip.compress(PLAIN[5000:]),
    "two xz streams, padded": lzma.compress(PLAIN[:5000]) + bytes(8) + lzma.compress(PLAIN[5000:]),
    "two zst frames": zstandard.compress(PLAIN[:5000]) + zstandard.compress(PLAIN[5000:]),
}


@pytest.mark.parametrize("kind", PACKED)
def test_compression_is_known_by_content_not_by_name(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_bytes(PACKED[kind])
    log = LogInput(str(path))
    assert log.head == PLAIN[: source.HEAD_BYTES]
    assert log.read() == PLAIN
    assert b"".join(log.chunks()) == PLAIN


@pytest.mark.parametrize("kind", ["gz", "xz", "zst"])
def test_a_cut_compressed_log_gives_what_can_be_unpacked(kind: str) -> None:
    got = LogInput("x", PACKED[kind][: len(PACKED[kind]) * 3 // 4]).read()
    assert PLAIN.startswith(got)
    assert kind == "zst" or len(got) > len(PLAIN) // 2  # zstd gives whole blocks of 128 KiB only


@pytest.mark.parametrize("kind", ["gz", "xz", "zst"])
def test_damage_is_one_clear_line(kind: str) -> None:
    packed = bytearray(PACKED[kind])
    middle = slice(len(packed) // 2, len(packed) // 2 + 50)
    packed[middle] = bytes(byte ^ 0xFF for byte in packed[middle])
    with pytest.raises(InputError, match=r"\Ax: damaged compressed file \([^\n]*\)\Z"):
        LogInput("x", bytes(packed)).read()


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress, zstandard.compress])
def test_a_bomb_is_refused(pack: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "RATIO_FREE_BYTES", 1024 * 1024)
    bomb = LogInput("x", pack(bytes(8 * 1024 * 1024)))
    with pytest.raises(InputError, match="x: unpacks to more than 300 times its size"):
        bomb.read()


def test_what_is_unpacked_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "MOST_UNPACKED_BYTES", 1000)
    with pytest.raises(InputError, match="expected a log"):
        LogInput("x", PACKED["gz"]).read()


def test_an_xz_file_may_not_ask_for_a_huge_dictionary() -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 2**30}]
    packer = lzma.LZMACompressor(filters=filters)
    packed = packer.compress(b"x") + packer.flush()
    with pytest.raises(InputError, match="damaged compressed file"):
        LogInput("x", packed).read()


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"]
)
def test_unicode_in_any_form_is_read_as_utf_8(encoding: str) -> None:
    log = LogInput("x", TEXT.encode(encoding))
    assert log.head.startswith(b'{"step": 1,')
    assert log.read() == PLAIN


def test_a_compressed_utf_16_log() -> None:
    assert LogInput("x", gzip.compress(TEXT.encode("utf-16"))).read() == PLAIN


@pytest.mark.parametrize(
    "binary",
    [
        (24).to_bytes(8, "little")
        + b"\xa3\x7f\x4b\x22\x09\x00\x00\x80\x5a\x5d\x8b\xd9\x41\x1a\x0dbrain.Event:2"
        + bytes(60),
        b"\xff\xfe" + bytes(6) + bytes(range(256)) * 4,
        bytes(range(1, 200)) * 8,
        b"SQLite format 3\0" + bytes(400),
    ],
    ids=["event file", "looks like a UTF-16 mark", "bytes", "sqlite"],
)
def test_binary_content_is_left_alone(binary: bytes) -> None:
    assert LogInput("x", binary).read() == binary


@settings(max_examples=60)
@given(
    st.lists(st.text(st.characters(blacklist_characters="\r\n", codec="utf-8"), max_size=40), max_size=30),
    st.integers(1, 50),
)
def test_lines_are_the_lines_whatever_the_size_of_the_pieces(lines: list[str], piece: int) -> None:
    data = "\n".join(lines).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source, "CHUNK_BYTES", piece)
        log = LogInput("x", b"a: \n" + data)  # ASCII first, so that no text of NULs passes for UTF-16
        got = [text for _, text in log.lines()]
    expected = ["a: ", *lines]
    assert got == (expected if expected[-1] else expected[:-1])
    assert log.overlong() == []


def test_carriage_returns_before_line_ends_are_no_part_of_the_line() -> None:
    assert list(LogInput("x", b"step,loss\r\n1,2\r\n").lines()) == [(1, "step,loss"), (2, "1,2")]


def test_an_overlong_line_becomes_an_empty_one_and_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "MOST_LINE_BYTES", 1000)
    monkeypatch.setattr(source, "CHUNK_BYTES", 100)
    log = LogInput("x", b"one\ntwo\n" + b"x" * 5000 + b"\nfour\n" + b"y" * 900 + b"\n" + b"z" * 5000)
    assert [text[:4] for _, text in log.lines()] == ["one", "two", "", "four", "yyyy"]
    assert log.overlong() == [3, 6]


def test_a_line_of_gigabytes_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    class Endless(io.RawIOBase):
        """1 TiB of one line, in no memory at all."""

        left = 2**40 // streams.PIECE_BYTES // 1024  # 1 GiB is enough

        def read(self, size: int = -1) -> bytes:
            self.left -= 1
            return b"x" * size if self.left > 0 else b""

    log = LogInput("x", b"")
    monkeypatch.setattr(log, "open", Endless)
    assert sum(map(len, log.chunks())) == 0
    assert log.overlong() == [1]


def test_a_missing_path_is_named_and_what_to_type() -> None:
    with pytest.raises(InputError, match=r"\Ano/such\.json: no such file or directory; expected the path"):
        _ = LogInput("no/such.json").head


def test_a_directory_is_no_log(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a directory, expected a log file"):
        LogInput(str(tmp_path)).read()


def test_a_pipe_is_refused_rather_than_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="not a regular file; pipe it in and name it - instead"):
        LogInput(str(tmp_path / "pipe")).read()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(PLAIN)
    path.chmod(0)
    with pytest.raises(InputError, match="Permission denied; expected a readable log file"):
        LogInput(str(path)).read()


@pytest.mark.parametrize("path", ["a\0b", "x" * 5000])
def test_what_no_path_can_be(path: str) -> None:
    with pytest.raises(InputError, match=r"expected a (readable )?log file"):
        LogInput(path).read()


def test_an_empty_file() -> None:
    with pytest.raises(InputError, match="x: empty"):
        _ = LogInput("x", b"").head


def test_a_git_lfs_pointer_is_no_log() -> None:
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 123456\n"
    with pytest.raises(InputError, match="a Git LFS pointer, not the log; run `git lfs pull`"):
        _ = LogInput("trainer_state.json", pointer).head


def test_standard_input_is_read_once_and_can_be_opened_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(PACKED["gz"])))
    log = LogInput("-")
    assert log.head == PLAIN[: source.HEAD_BYTES]
    assert log.read() == PLAIN
    assert log.read() == PLAIN
    log.close()


def test_standard_input_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "MOST_UNPACKED_BYTES", 1000)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(PLAIN)))
    with pytest.raises(InputError, match="-: more than"):
        LogInput("-")


def test_a_document_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "MOST_DOCUMENT_BYTES", 1000)
    with pytest.raises(InputError, match="in one document"):
        LogInput("x", PLAIN).read()
