"""One run that left several logs: an HF output folder with its checkpoints, event files of training and of evaluation in folders
beside each other, the console text of every node."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np

from trainproof.errors import TrainproofError
from trainproof.frame import Frame, Series
from trainproof.readers.source import LogInput

STATE = "trainer_state.json"
#: folders in which a logger keeps the events of an evaluation, and of training beside it
HELD_OUT = frozenset("val valid validation eval evaluation dev test".split())
TRAINING = frozenset({"train", "training"})

_CHECKPOINT = re.compile(r"checkpoint-\d+")
_STEP = re.compile(rb'"global_step"\s*:\s*(\d{1,18})\b')


def checkpoint_states(folder: str, files: Collection[str], below: Collection[str]) -> list[str]:
    """The states of an HF output folder and of its checkpoints, as paths below it, that of the furthest step first.

    A checkpoint's state is what the state of a later one begins with, unless the folder was used for another run before.
    """
    checkpoints = [f"{name}/{STATE}" for name in below if _CHECKPOINT.fullmatch(name)]
    states = [state for state in checkpoints if Path(folder, state).is_file()]
    own = [STATE] if states and STATE in files else []
    return sorted([*own, *states], key=lambda state: -_step_of(Path(folder, state)))


def _step_of(state: Path) -> int:
    """The step that a state was saved at; -1 when it cannot be read."""
    log = LogInput(str(state))
    try:
        found = _STEP.search(log.head)
    except TrainproofError:
        return -1
    finally:
        log.close()
    return int(found[1]) if found else -1


def held_out_events(folder: str, files: Collection[str], below: Collection[str]) -> list[str]:
    """The event files of a run that keeps those of its evaluations in a folder of their own, as paths below `folder`."""
    training = [path for name in below if name in TRAINING for path in _events(folder, name)]
    held_out = [path for name in below if name in HELD_OUT for path in _events(folder, name)]
    return [*training, *held_out] if held_out and (training or any("tfevents" in name for name in files)) else []


def _events(folder: str, name: str) -> list[str]:
    try:
        return sorted(f"{name}/{path.name}" for path in Path(folder, name).iterdir() if "tfevents" in path.name)
    except OSError:
        return []


def held_out_part(log: str, logs: Sequence[str]) -> str:
    """What stands before the names of the metrics in one of the event files of a run: "val/" where its folder says so."""
    name = Path(log).parent.name
    return f"{name}/" if name in HELD_OUT and any(Path(other).parent != Path(log).parent for other in logs) else ""


class OneRun:
    """Logs that may be of one run: whether a log is but the beginning of one that was seen before."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, float], list[Series]] = {}

    def has(self, frames: Sequence[Frame]) -> bool:
        """Whether all the frames are beginnings of what was seen; if not, they are taken up."""
        mains = [frame.main for frame in frames if frame.main is not None and len(frame.main)]
        if all(any(_begins(main, whole) for whole in self._seen.get(_start(main), ())) for main in mains):
            return bool(self._seen)
        for main in mains:
            self._seen.setdefault(_start(main), []).append(main)
        return False


def _start(series: Series) -> tuple[int, float]:
    return int(series.step[0]), float(series.value[0])


def _begins(series: Series, whole: Series) -> bool:
    """Whether `whole` begins with the points of `series`."""
    n = len(series)
    same = np.array_equal(series.step, whole.step[:n]) and np.array_equal(series.value, whole.value[:n], equal_nan=True)
    return series.name == whole.name and same
