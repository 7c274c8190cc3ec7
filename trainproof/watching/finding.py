"""What lies at an input of a watch, cheaply enough to be asked at each look."""

from __future__ import annotations

import glob
import os
import re
from contextlib import suppress
from pathlib import Path

from trainproof.readers.discover import PASSED_FOLDERS
from trainproof.readers.outputs import STATE
from trainproof.readers.source import HEAD_BYTES

_CHECKPOINT = re.compile(r"checkpoint-\d+")


def files_at(named: str) -> list[tuple[str, int]]:
    """The files at an input, each with a size: exact while a log is short and may not be recognised yet, then by its doublings."""
    if not os.path.isdir(named):
        names = glob.glob(named, recursive=True) if glob.has_magic(named) else [named]
        return [(name, _size(name)) for name in sorted(names)]
    found = []
    for folder, below, names in os.walk(named):
        below[:] = [name for name in below if name not in PASSED_FOLDERS]
        found += [os.path.join(folder, name) for name in names]
    return [(path, _size(path)) for path in sorted(found)]


def written_by(path: str) -> str:
    """By what a log is known: the states of an HF output folder and of its checkpoints are one log, written again and again."""
    folder, name = os.path.split(path)
    if name == STATE and _CHECKPOINT.fullmatch(os.path.basename(folder)):
        return os.path.join(os.path.dirname(folder), STATE)
    return path


def _size(path: str) -> int:
    with suppress(OSError):
        size = Path(path).stat().st_size
        return size if size < HEAD_BYTES else HEAD_BYTES + size.bit_length()
    return -1
