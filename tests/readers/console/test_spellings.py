"""Spellings of records that are no `key: value`, and how far a text is searched for a log that nobody knows."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainproof.readers.base import GUESSED_BYTES, claimant
from trainproof.readers.console.spellings import as_fields
from trainproof.readers.source import LogInput

PROSE = b"The cost of it is not known, nor after which step it was 7 or 8.\n"
RECORDS = b"".join(b"Average loss at step %d: %.4f\n" % (step, 3 - step / 100) for step in range(0, 200, 10))


@given(
    st.lists(
        st.sampled_from([b"loss is", b"step", b"epoch: 3", b"[3/9]", b"l_", b" 4.5", b"\n", b"\xe7\xac\xac 3 ", b":"])
    )
)
def test_the_number_of_lines_stays(words: list[bytes]) -> None:
    text = b" ".join(words)
    assert as_fields(text).count(b"\n") == text.count(b"\n")


def test_only_lines_that_may_measure_are_written_anew() -> None:
    assert as_fields(b"[3/9] plums: 4\n[3/9] Train Loss: 0.5\n") == b"[3/9] plums: 4\nstep 3, Train Loss: 0.5\n"


@pytest.mark.parametrize(("before", "found"), [(GUESSED_BYTES // 2, True), (GUESSED_BYTES + 300_000, False)])
def test_the_last_resort_looks_so_far_and_no_further(tmp_path: Path, before: int, found: bool) -> None:
    log = tmp_path / "notes.txt"
    log.write_bytes(PROSE * (before // len(PROSE)) + RECORDS)
    reader = claimant(LogInput(str(log)))
    assert (reader is not None and reader.name == "generic-text") is found
