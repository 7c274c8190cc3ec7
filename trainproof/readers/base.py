"""What a reader is. Adding a log format is one module with one such class, named in READERS, and its test."""

from __future__ import annotations

from importlib import import_module
from typing import Protocol

from trainproof.errors import FormatError, UsageError
from trainproof.readers.builder import FrameBuilder
from trainproof.readers.source import LogInput

#: format name -> "module:class", in the order in which they are asked, and in which equal sniffing scores are decided
READERS = {
    "hf": "trainproof.readers.hf:HFReader",
    "jsonl": "trainproof.readers.jsonl:JSONLReader",
    "tensorboard": "trainproof.readers.tensorboard:TensorBoardReader",
    "coqui": "trainproof.readers.coqui:CoquiReader",
    "csv": "trainproof.readers.delimited:DelimitedReader",
}
#: a reader this sure is not in doubt; those after it need not even be imported
SURE = 0.8


class Reader(Protocol):
    """Reads one log format. It knows nothing of rules."""

    name: str
    description: str

    def sniff(self, head: bytes) -> float:
        """How surely `head` (the first 64 KiB, UTF-8 where it is text) is this format: 0 to 1; the highest claims the file."""

    def read(self, log: LogInput, out: FrameBuilder) -> None:
        """Give every record to `out`; report every line that is not understood with `out.drop`. Raises FormatError only when
        the file as a whole cannot be read as this format."""


def reader_for(name: str) -> Reader:
    """The reader called `name`. Raises UsageError for an unknown one."""
    if name not in READERS:
        raise UsageError(f"unknown format {name!r}; known: {', '.join(READERS)}")
    module, _, attribute = READERS[name].partition(":")
    reader: Reader = getattr(import_module(module), attribute)()
    return reader


def sniff(head: bytes) -> Reader | None:
    """The reader that claims `head` most surely, or None when none does."""
    best, best_score = None, 0.0
    for reader in map(reader_for, READERS):
        score = reader.sniff(head)
        if score > best_score:
            best, best_score = reader, score
        if score >= SURE:
            break
    return best


def recognise(log: LogInput) -> Reader:
    """The reader that claims `log`. Raises FormatError when none does."""
    reader = sniff(log.head)
    if reader is None:
        raise FormatError(
            f"{log.path}: not a training log in a known format ({', '.join(READERS)}); name it with --format if it is one"
        )
    return reader
