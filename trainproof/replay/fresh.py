"""Counterfactuals each in processes of their own: of a job on several ranks, and of a script that recorded itself."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from trainproof.errors import InputError
from trainproof.record.changes import Change, Level
from trainproof.record.tape import Tape
from trainproof.replay.counterfactuals import Bench
from trainproof.replay.job import Target
from trainproof.replay.replaying import Segment, again
from trainproof.replay.worker import ask


class RanksBench(Bench):
    """Counterfactuals of a job on several ranks: the change is made on each, and the held-out loss of rank 0 decides."""

    def __init__(self, tape: Tape, target: Target, level: Level, budget: int) -> None:
        super().__init__(tape.checkpoints(), target, tape.keyed, level, budget)
        self.tape = tape

    def _run(self, start: int, until: int, change: Change) -> tuple[float, bool]:
        asked = {"folder": str(self.tape.folder), "job": self.target.named, "level": self.level}
        said = ask("counterfactual", {**asked, "start": start, "until": until, "change": change}, ranks=self.tape.ranks)
        self.steps += said["settled"]
        return said["value"], said["collapsed"]


def run_counterfactual(
    folder: str, job: str, level: list[Any], start: int, until: int, change: list[Any]
) -> dict[str, Any]:
    """What one rank does of a counterfactual, together with the others."""
    tape = Tape(Path(folder))
    bench = Bench(tape.checkpoints(), Target(job, tape.settings), tape.keyed, Level(*level), 1)
    collapsed = bench.collapsed(start, until, Change.of(change))
    return {"value": bench.tries[0].value, "collapsed": collapsed, "settled": bench.steps - (until - start)}


class ScriptBench(Bench):
    """Counterfactuals of a script: it runs again, and its own evaluations tell the held-out loss."""

    def __init__(self, tape: Tape, kept: str, level: Level, budget: int) -> None:
        """kept: the folder in which a replay of the whole run kept its batches."""
        super().__init__(tape.checkpoints(), Target("", {}), tape.keyed, level, budget)
        self.tape, self.kept = tape, kept

    def _run(self, start: int, until: int, change: Change) -> tuple[float, bool]:
        wanted = {"kept": self.kept, "change": change, "level": self.level}
        with tempfile.TemporaryDirectory(prefix="trainproof-") as folder:
            out = Path(folder) / "out"
            differences = again(self.tape, out, Segment(start, self.places[start], until), None, wanted)
            if differences:
                raise InputError(f"{self.tape.folder}: NOT COMPARABLE: {'; '.join(differences)}")
            evaluations = Tape(out).evaluations
        last = max(evaluations, default=0)
        if last < until:
            raise InputError(f"{self.tape.folder}: the script ended without an evaluation from step {until} on")
        self.steps += last - until
        return evaluations[last], self.level.collapsed(evaluations[last])
