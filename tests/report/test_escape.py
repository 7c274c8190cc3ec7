from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from trainproof.report.escape import clipped, exact, printable, shown

#: categories of characters that control, hide, reorder or cannot be encoded: Cc and Cf but for those with a shape, Cs, Zl, Zp
UNSAFE = {"Cc", "Cs", "Zl", "Zp"}


@given(st.text(st.characters(codec=None)))
def test_nothing_unsafe_gets_through(text: str) -> None:
    told = printable(text)
    assert not [c for c in told if unicodedata.category(c) in UNSAFE or unicodedata.bidirectional(c) in BIDI_MARKS]
    told.encode("utf-8")


BIDI_MARKS = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


def test_spells_what_it_takes_out() -> None:
    assert printable("a\x1b[31m\r\n\x9b\u202e\u200b\ud800\U000e0041ß→b") == (
        "a\\x1b[31m\\x0d\\x0a\\x9b\\u202e\\u200b\\ud800\\U000e0041ß→b"
    )


@given(st.text(max_size=30), st.integers(3, 10))
def test_clipped_text_is_short_enough_or_whole(text: str, most: int) -> None:
    told = clipped(text, most)
    assert len(told) <= most
    assert told == printable(text) or told.endswith("...")


def test_numbers() -> None:
    assert [shown(x) for x in (0.25, 1e-7, 123456789.0, "NaN")] == ["0.25", "1e-07", "1.23457e+08", "NaN"]
    assert [exact(x) for x in (0.1, 4.0569004076009065, "Infinity")] == ["0.1", "4.0569004076009065", "Infinity"]
