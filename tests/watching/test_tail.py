"""Each byte is read once, and none is lost, whatever becomes of the file."""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from trainproof.watching.tail import REMEMBERED_BYTES, Piece, Tail


def text(pieces: list[Piece]) -> bytes:
    return b"".join(piece.data for piece in pieces)


@given(st.lists(st.binary(max_size=300), max_size=20))
def test_what_is_appended_is_read_once(tmp_path_factory, pieces: list[bytes]) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path_factory.mktemp("tail") / "log"
    tail, seen = Tail(str(path)), b""
    assert tail.poll() == []  # it is not there yet
    for piece in pieces:
        with path.open("ab") as file:
            file.write(piece)
        seen += text(tail.poll())
    assert seen == b"".join(pieces)
    assert tail.bytes_read == len(seen)
    tail.close()


def test_a_log_that_is_moved_away_is_read_to_its_end_before_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"one\n")
    tail = Tail(str(path))
    assert tail.poll() == [Piece(b"one\n")]
    with path.open("ab") as file:
        file.write(b"two\n")
        path.rename(tmp_path / "log.1")
        file.write(b"three\n")
    path.write_bytes(b"four\n")
    assert tail.poll() == [Piece(b"two\nthree\n"), Piece(b"four\n", anew=True)]
    tail.close()


def test_between_the_old_log_and_the_new_one_the_old_one_is_followed(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"one\n")
    tail = Tail(str(path))
    tail.poll()
    path.rename(tmp_path / "log.1")
    with (tmp_path / "log.1").open("ab") as file:
        file.write(b"two\n")
    assert tail.poll() == [Piece(b"two\n")]
    path.write_bytes(b"three\n")
    assert tail.poll() == [Piece(b"three\n", anew=True)]
    tail.close()


def test_a_log_that_was_cut_or_written_anew_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"a long first log\n" * 10)
    tail = Tail(str(path))
    tail.poll()
    path.write_bytes(b"short\n")
    assert tail.poll() == [Piece(b"short\n", anew=True)]
    path.write_bytes(b"not what was there before, and longer\n")
    assert tail.poll() == [Piece(b"not what was there before, and longer\n", anew=True)]
    tail.close()


def test_modification_times_are_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"one\n")
    os.utime(path, (10**9, 10**9))
    tail = Tail(str(path))
    tail.poll()
    with path.open("ab") as file:
        file.write(b"two\n")
    os.utime(path, (10**9, 10**9))
    assert tail.poll() == [Piece(b"two\n")]
    os.utime(path, (2 * 10**9, 2 * 10**9))
    assert tail.poll() == []
    tail.close()


def test_what_is_read_again_to_know_the_file_is_a_few_bytes(tmp_path: Path) -> None:
    assert REMEMBERED_BYTES <= 64


def test_a_file_that_cannot_be_read_gives_nothing_and_is_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.mkdir()
    tail = Tail(str(path))
    assert tail.poll() == []
    path.rmdir()
    path.write_bytes(b"one\n")
    assert tail.poll() == [Piece(b"one\n")]
    tail.close()
