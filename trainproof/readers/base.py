"""What a reader is. Adding a log format is one module with one such class, named in READERS, and its test."""

from __future__ import annotations

from importlib import import_module
from typing import Protocol

from trainproof.errors import FormatError, UsageError
from trainproof.readers.builder import FrameBuilder
from trainproof.readers.source import LogInput

#: format name -> "module:class", in the order in which equal sniffing scores are decided
READERS = {
    "hf": "trainproof.readers.hf:HFReader",
    "tensorboard": "trainproof.readers.tensorboard:TensorBoardReader",
    "coqui": "trainproof.readers.coqui:CoquiReader",
    "jsonl": "trainproof.readers.jsonl:JSONLReader",
    "csv": "trainproof.readers.delimited:DelimitedReader",
}


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
    scored = [(reader.sniff(head), reader) for reader in map(reader_for, READERS)]
    best_score, best = max(scored, key=lambda pair: pair[0])
    return best if best_score > 0 else None


def recognise(log: LogInput) -> Reader:
    """The reader that claims `log`. Raises FormatError when none does."""
    reader = sniff(log.head)
    if reader is None:
        raise FormatError(
            f"{log.path}: not a training log in a known format ({', '.join(READERS)}); name it with --format if it is one"
        )
    return reader
