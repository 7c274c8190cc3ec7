"""Console texts that are made to exhaust: an exponential regular expression would never end here, nor would memory."""

from __future__ import annotations

import re
from contextlib import suppress

import numpy as np
import pytest

from tests.readers.console.samples import SAMPLES, Sample, healthy
from tests.readers.logs import pour
from trainproof.errors import TrainproofError
from trainproof.frame import Source
from trainproof.readers.base import reader_for
from trainproof.readers.console import engine, text
from trainproof.readers.console.text import Block, cleaned, pieces
from trainproof.readers.source import LogInput

#: what prefixes, keys, gaps and tracebacks are made of
UNITS = (
    *(b" ", b"\t", b"[a] ", b"[", b"a: ", b"1: ", b"a ", b"a", b"1", b"1,", b"=", b"a=1 ", b"- ", b"|", b"%|", b"step: "),
    *(b"loss: 1 ", b"epoch 1 ", b"1/1 ", b"((", b"a(", b"'", b"{", b"\xe2\x94\x81", b"INFO ", b"nan ", b"a.b.", b"rror: "),
    *(b"(a pid=1) ", b"Traceback ", b"\x1b[", b"\x1b]", b"\x08", b"\r"),
)  # fmt: skip
FORMATS = {sample.format: sample for sample in SAMPLES}


@pytest.mark.parametrize("sample", FORMATS.values(), ids=list(FORMATS))
def test_lines_with_long_repetitions_are_read_in_linear_time(sample: Sample) -> None:
    line = max(re.split(r"[\r\n]", sample.text(healthy()))[:40], key=len).encode()
    reader = reader_for(sample.format)
    for unit in UNITS:
        for cut in (0, len(line) // 2, len(line)):
            long = line[:cut] + unit * (5_000 // len(unit)) + line[cut:] + b"\n"
            reader.sniff(long)
            with suppress(TrainproofError):
                pour(sample.format, long + b"Traceback (most recent call last):\n" + unit * 300 + b"Error: x\n")


def test_a_line_that_is_too_long_is_no_record() -> None:
    record = b"iter 1: loss 2.5, time 263.56ms, mfu -100.00%"
    long = record + b" " * text.MOST_RECORD_BYTES
    block = Block(cleaned(long + b"\n" + record), np.arange(2))
    assert [block.text[span.begin : span.end] for span in block.lines_with(b"iter")] == [record]


def test_names_without_end_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "MOST_NAMES", 50)
    lines = b"".join(b"step:%d/9000 train_loss:2.5 name_%d:1.5\n" % (i, i) for i in range(1, 500))
    (frame,) = pour("speedrun", lines).build(Source("log", "speedrun"))
    assert len(frame) == 50
    assert len(frame["loss"]) == 499


def test_pieces_count_soft_line_ends_and_colours_apart() -> None:
    data = b"a\rb\r\nc\x1b[31m\x08\x08d\x0be\n\n\rf"
    found = list(pieces(LogInput("log", data)))
    assert b"".join(piece.block.text for piece in found) == b"a\x0b\nb\nc\x0b\nd e\n\n\x0b\nf\n"
    assert [number for piece in found for number in piece.block.numbers.tolist()] == [1, 2, 3, 4, 5, 6, 7]
    assert [line for piece in found for line in piece.soft.tolist()] == [1, 3, 6]


def test_long_blank_lines_cost_the_tables_linear_time() -> None:
    assert reader_for("ruled-table").sniff((b" " * text.MOST_RECORD_BYTES + b"\n") * 100 + b"____ ---\n") == 0
