"""The files of a recorded run: `steps-RANK.jsonl`, one row a step, and `tensors-RANK.bin`, hashes and gradient norms by tensor.

The first row of the steps says what the run is. Rows are appended and flushed; a process that is killed loses at most the last row that
was not flushed, and a reader leaves out a last row that was cut.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from trainproof.errors import InputError
from trainproof.record.storage import MANIFEST, place_of

KIND = "trainproof recording 1"
#: ranks that are looked for: one machine's
MOST_RANKS = 1024


class Script(NamedTuple):
    """A script that recorded itself: its file, the module that it was run as, if it was, its arguments, and the folder that it ran in."""

    file: str
    module: str | None
    arguments: list[str]
    folder: str


class TapeWriter:
    """Appends to the files of one rank."""

    def __init__(self, folder: Path, header: dict[str, Any], rank: int = 0) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._steps: BinaryIO = (folder / f"steps-{rank}.jsonl").open("wb")
            self._tensors: BinaryIO = (folder / f"tensors-{rank}.bin").open("wb")
            self.row({"recording": KIND, **header})
        except OSError as error:
            raise InputError(f"{folder}: cannot be written ({error.strerror})") from None

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
        kind = rows[0].get("recording") if rows else None
        if isinstance(kind, str) and kind != KIND:
            raise InputError(f"{folder}: {kind[:40]!r} is of another version; this one reads {KIND!r}")
        if kind != KIND:
            raise InputError(f"{folder}: no recorded run; make one with `trainproof record train.py:make`")
        self.header = rows[0]
        self.fingerprint: dict[str, Any] = _of(dict, self.header.get("fingerprint"))
        self.settings: dict[str, Any] = _of(dict, self.header.get("settings"))
        self.tensors = [str(name) for name in _of(list, self.header.get("tensors"))]
        #: of steps and of evaluations, in the order in which they were written
        self.rows = [row for row in rows[1:] if _number(row.get("step"), int)]
        self.steps: dict[int, dict[str, Any]] = {row["step"]: row for row in self.rows if _is_step(row)}
        self.evaluations = {row["step"]: float(row["eval_loss"]) for row in self.rows if _number(row.get("eval_loss"))}
        self.hashes, self.norms = self._by_tensor(folder / f"tensors-{rank}.bin")

    def _told(self, name: str, kind: type) -> Any:
        """What the header says, None where it is of another kind."""
        value = self.header.get(name)
        return value if isinstance(value, kind) and not isinstance(value, bool) else None

    def samples(self) -> dict[int, list[tuple[Any, str]]]:
        """Micro-batch -> its samples, each with its shard ("" where none was told), those of all ranks together."""
        found: dict[int, list[tuple[Any, str]]] = {}
        for rank in range(self.ranks):
            before = 0
            for row in (self if rank == 0 else Tape(self.folder, rank)).steps.values():
                for cursor, some in enumerate(_by_batch(row), before):
                    found.setdefault(cursor, []).extend(some)
                before = row["cursor"]
        return found

    @property
    def job(self) -> str | None:
        """The job that was recorded, as it was named."""
        named: str | None = self._told("job", str)
        return named

    @property
    def script(self) -> Script | None:
        """The script that recorded itself; None for a job."""
        told = self._told("script", dict)
        if self.job is not None or told is None or not isinstance(told.get("file"), str):
            return None
        arguments, module, folder = _of(list, told.get("arguments")), told.get("module"), told.get("folder")
        arguments = [one for one in arguments if isinstance(one, str)]
        return Script(told["file"], module if isinstance(module, str) else None, arguments, str(folder))

    def job_now(self, named: str | None) -> str:
        """The job as the user names it now, else as it was recorded. Raises InputError where nobody says."""
        if (job := named or self.job) is None:
            raise InputError(f"{self.folder}: it does not say which job it is of; name it with --job train.py:make")
        return job

    @property
    def keyed(self) -> int | None:
        """The seed from which the randomness of each micro-batch was drawn; None where it was not."""
        seed: int | None = self._told("keyed", int)
        return seed

    @property
    def eval_every(self) -> int:
        """Steps between evaluations; 0 for none."""
        return max(self._told("eval_every", int) or 0, 0)

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

    @property
    def ranks(self) -> int:
        """The processes that were recorded, a file each."""
        said = self.fingerprint.get("world_size", 1)
        return said if isinstance(said, int) and 1 <= said <= MOST_RANKS else 1

    def checkpoints(self) -> dict[int, Path]:
        """step -> folder of the checkpoints that are whole on every rank, in order."""
        found = checkpoints_in(self.folder / "checkpoints")
        return {
            step: place
            for step, place in found.items()
            if all((place_of(place, rank) / MANIFEST).is_file() for rank in range(self.ranks))
        }


def _by_batch(row: dict[str, Any]) -> list[list[tuple[Any, str]]]:
    """The samples of a step's micro-batches, each with its shard."""
    ids, shards = row.get("ids", []), row.get("shards", [])
    told = list(zip(ids, map(str, shards) if len(shards) == len(ids) else [""] * len(ids), strict=True))
    ends = list(itertools.accumulate(row.get("sizes", [len(ids)])))
    return [told[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def _of(kind: type, value: Any) -> Any:
    """The value where it is of this kind, else an empty one."""
    return value if isinstance(value, kind) else kind()


def _number(value: Any, kind: type = float) -> bool:
    return isinstance(value, (kind, int)) and not isinstance(value, bool)


def _is_step(row: dict[str, Any]) -> bool:
    """Whether a row is of a step, as the recorder writes it."""
    numbers = [row[name] for name in ("loss", "lr", "grad_norm") if row.get(name) is not None]
    well = all(map(_number, numbers)) and all(isinstance(row.get(name, []), list) for name in ("ids", "shards"))
    sizes = row.get("sizes", [])
    well = well and isinstance(sizes, list) and all(_number(size, int) and size >= 0 for size in sizes)
    return "loss" in row and well and _number(row.get("cursor"), int)


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
