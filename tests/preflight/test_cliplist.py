"""A list of clips that lies in a file is as any other list."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainproof.errors import InputError
from trainproof.preflight.clip import Clip
from trainproof.preflight.cliplist import AT_ONCE, ClipList
from trainproof.preflight.rows import Bad


def made(count: int) -> list[Clip]:
    return [
        Clip(row, f"{row}.wav", None, data=b"\0" * (row % 3), wrong=Bad("TPD003", "x") if row % 7 == 0 else None)
        for row in range(count)
    ]


@given(st.integers(0, 3 * AT_ONCE + 2), st.integers(-700, 700), st.integers(-700, 700))
def test_it_gives_what_a_list_gives(count: int, start: int, stop: int) -> None:
    plain = made(count)
    clips = ClipList(iter(plain))
    assert len(clips) == count
    assert list(clips) == plain
    assert clips[start:stop] == plain[start:stop]
    for index in (start, stop):
        if -count <= index < count:
            assert clips[index] == plain[index]
        else:
            with pytest.raises(IndexError):
                clips[index]


def test_an_error_of_the_manifest_is_told_as_such(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def broken() -> object:
        yield Clip(1, "a.wav", "a")
        raise PermissionError(13, "Permission denied", "list.tsv")

    with pytest.raises(PermissionError):
        ClipList(broken())  # type: ignore[arg-type]  # typed as what it yields first
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda: Path("/dev/full").open("wb"))  # noqa: SIM115  the list closes it
    with pytest.raises(InputError, match="TMPDIR"):
        ClipList(made(2 * AT_ONCE))
