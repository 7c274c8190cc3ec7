"""How a script that records itself is replayed: it runs again, and its recorder goes to a checkpoint and ends it at a step.

What is wanted comes in the variable TRAINPROOF_REPLAY, as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from trainproof.record.fingerprint import differences
from trainproof.record.storage import load_state, place_of

VARIABLE = "TRAINPROOF_REPLAY"
#: in the folder of a replay: what of the fingerprint differs, so that nothing was run
DIFFERENCES = "differences.json"


class Goal:
    """Begin at the checkpoint `start`, end after step `until`, record into `out`; nothing is run under another fingerprint than `expected`."""

    def __init__(self, out: str, start: str, until: int, expected: dict[str, Any]) -> None:
        self.out, self.start, self.until, self.expected = Path(out), Path(start), until, expected
        self.reached = False
        self._state: dict[str, Any] | None = None

    @classmethod
    def of_environment(cls) -> Goal | None:
        """The goal of this process, None where it is no replay. It is for the first recorder only."""
        told = os.environ.pop(VARIABLE, None)
        return None if told is None else cls(**json.loads(told))

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
        if steps >= self.until:
            raise SystemExit(0)


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
