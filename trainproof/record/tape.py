"""The files of a recorded run: `steps-RANK.jsonl`, one row a step, and `tensors-RANK.bin`, hashes and gradient norms by tensor.

The first row of the steps says what the run is. Rows are appended and flushed; a process that is killed loses at most the last row that
was not flushed, and a reader leaves out a last row that was cut.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from trainproof.errors import InputError
from trainproof.record.storage import MANIFEST

KIND = "trainproof recording 1"


class TapeWriter:
    """Appends to the files of one rank."""

    def __init__(self, folder: Path, header: dict[str, Any], rank: int = 0) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._steps: BinaryIO = (folder / f"steps-{rank}.jsonl").open("wb")
            self._tensors: BinaryIO = (folder / f"tensors-{rank}.bin").open("wb")
        except OSError as error:
            raise InputError(f"{folder}: cannot be written ({error.strerror})") from None
        self.row({"recording": KIND, **header})

    def row(self, row: dict[str, Any], tensors: bytes = b"") -> None:
        """One row, and what belongs to it by tensor."""
        self._tensors.write(tensors)
        self._tensors.flush()
        self._steps.write(json.dumps(row).encode() + b"\n")
        self._steps.flush()

    def close(self) -> None:
        self._steps.close()
        self._tensors.close()


class Tape:
    """A recorded run, read: header, rows of steps (those with a loss), rows of evaluations, and hashes and norms by tensor.

    Raises InputError for what is no recording.
    """

    def __init__(self, folder: Path, rank: int = 0) -> None:
        self.folder = folder
        rows = _rows(folder / f"steps-{rank}.jsonl")
        if not rows or rows[0].get("recording") != KIND:
            raise InputError(f"{folder}: no recorded run; make one with `trainproof record train.py:make`")
        self.header = rows[0]
        self.steps = {int(row["step"]): row for row in rows[1:] if "loss" in row and "step" in row}
        self.evaluations = {
            int(row["step"]): float(row["eval_loss"]) for row in rows[1:] if "eval_loss" in row and "step" in row
        }
        self.tensors: list[str] = self.header.get("tensors", [])
        self.hashes, self.norms = self._by_tensor(folder / f"tensors-{rank}.bin")

    def _by_tensor(self, path: Path) -> tuple[dict[int, Any], dict[int, Any]]:
        """step -> hashes of the parameters after it; step -> norms of their gradients before it."""
        count = len(self.tensors)
        try:
            data = path.read_bytes()
        except OSError:
            data = b""
        width = 12 * count
        if not count or len(data) < width:
            return {}, {}
        table = np.frombuffer(data[: len(data) // width * width], np.uint8).reshape(-1, width)
        steps = list(self.steps)[: len(table)]
        hashes, norms = table[:, : 8 * count].copy().view("<u8"), table[:, 8 * count :].copy().view("<f4")
        return {s: hashes[i] for i, s in enumerate(steps)}, {s: norms[i] for i, s in enumerate(steps)}

    def checkpoints(self) -> dict[int, Path]:
        """step -> folder of the whole checkpoints, in order."""
        return checkpoints_in(self.folder / "checkpoints")


def checkpoints_in(folder: Path) -> dict[int, Path]:
    """step -> folder of the whole checkpoints of the recorder below `folder`, in order."""
    if (folder / "checkpoints").is_dir():
        folder = folder / "checkpoints"
    found = {int(p.name[5:]): p for p in folder.glob("step-*") if p.name[5:].isdecimal() and (p / MANIFEST).is_file()}
    return dict(sorted(found.items()))


def _rows(path: Path) -> list[dict[str, Any]]:
    """The rows; a last one that was cut is left out. Raises InputError when the file cannot be read or is broken elsewhere."""
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise InputError(f"{path.parent}: no recorded run ({path.name}: {error.strerror})") from None
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line) if line.strip() else None
        except (ValueError, RecursionError):
            if number >= len(lines) - 1:
                break
            raise InputError(f"{path}: line {number} is no JSON") from None
        if isinstance(row, dict):
            rows.append(row)
    return rows
