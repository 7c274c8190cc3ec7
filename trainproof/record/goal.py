"""How a script that records itself is replayed: it runs again, and its recorder goes to a checkpoint and ends it at a step.

What is wanted is a JSON file that the variable TRAINPROOF_REPLAY names. A script goes forward only: the batches that take the place of others
are kept while the whole run is replayed, and read from there.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, Protocol

from trainproof.record.changes import Change, Level, ShardOf, changed, hold_rate
from trainproof.record.fingerprint import differences
from trainproof.record.storage import load_state, place_of, write_checkpoint

VARIABLE = "TRAINPROOF_REPLAY"
#: in the folder of a replay: what of the fingerprint differs, so that nothing was run
DIFFERENCES = "differences.json"


class Place(Protocol):
    """What is asked of a recorder: where it is, what it trains, and how samples are told apart."""

    rank: int
    steps: int
    cursor: int
    parts: dict[str, Any]
    shard_of: ShardOf | None


class Goal:
    """Begin at the checkpoint `start`, end after step `until`, record into `out`; nothing is run under another fingerprint than `expected`.

    kept: a folder. Without a change the batches are kept in it; under a change they are read from it. level: end at the held-out loss after
    step `until`, or, where that is near the level, at a later one.
    """

    def __init__(
        self,
        out: str,
        start: str,
        until: int,
        expected: dict[str, Any],
        *,
        kept: str | None = None,
        change: list[Any] | None = None,
        level: list[Any] | None = None,
    ) -> None:
        self.out, self.start, self.until, self.expected = Path(out), Path(start), until, expected
        self.kept = None if kept is None else Path(kept)
        self.change = None if change is None else Change.of(change)
        self.level = None if level is None else Level(*level)
        self.reached = False
        self._state: dict[str, Any] | None = None

    @classmethod
    def of_environment(cls) -> Goal | None:
        """The goal of this process, None where it is no replay. It is for the first recorder only."""
        told = os.environ.pop(VARIABLE, None)
        return None if told is None else cls(**json.loads(Path(told).read_bytes()))

    def check(self, fingerprint: dict[str, Any]) -> None:
        """End the script where the process is not what the recorded one was."""
        found = differences(self.expected, fingerprint)
        if found:
            self.out.mkdir(parents=True, exist_ok=True)
            (self.out / DIFFERENCES).write_text(json.dumps(found))
            raise SystemExit(0)

    def state(self, rank: int) -> dict[str, Any]:
        """The state to begin with. Raises InputError for a damaged checkpoint."""
        if self._state is None:
            self._state = load_state(place_of(self.start, rank))
        return self._state

    def end_if_done(self, steps: int) -> None:
        """End the script after the last step that is wanted."""
        if self.level is None and steps >= self.until:
            raise SystemExit(0)

    def end_if_settled(self, steps: int, value: float | None, rank: int) -> None:
        """End the script after the evaluation that is wanted. On several ranks it is rank 0 that is asked; the others are ended with it."""
        if self.level is None or value is None or rank or steps < self.until:
            return
        again = self.level.near(value, self.change or Change())
        if not again or steps >= self.until + self.level.settle:
            raise SystemExit(0)

    def given(self, batch: Any, ids: list[Any] | None, recorder: Place) -> Any:
        """What is trained on: the batch, or what it is under the change."""
        if self.kept is None:
            return batch
        kept = place_of(self.kept, recorder.rank)
        if self.change is None:
            write_checkpoint(kept / str(recorder.cursor), {"batch": batch, "ids": ids}, {}, lasting=False)
            return batch
        change = self.change if recorder.steps < self.until else self.change.afterwards
        hold_rate(recorder.parts["optimizer"], change)
        cursor = recorder.cursor + change.shift
        if change.shift:
            state = load_state(kept / str(cursor))
            batch, ids = state["batch"], state["ids"]
        before = max(self.state(recorder.rank)["stream"]["cursor"], 1)

        def harmless() -> Any:
            return load_state(kept / str(cursor % before))["batch"]

        return changed(batch, change, cursor, ids, recorder.shard_of, harmless)


def script_of_process() -> dict[str, Any] | None:
    """How to run this process's script again: its file, or its module, its arguments, and its folder. None where there is no script."""
    main = sys.modules.get("__main__")
    file = getattr(main, "__file__", None)
    if file is None:
        return None
    spec = getattr(main, "__spec__", None)
    return {
        "file": str(Path(file).resolve()),
        "module": None if spec is None else str(spec.name),
        "arguments": sys.argv[1:],
        "folder": str(Path.cwd()),
    }
