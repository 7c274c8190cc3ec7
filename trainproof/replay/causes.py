"""What a finding is owed to, by intervention: the segment again with harmless data, with another rate, and its data from other checkpoints.

Each time the same rule judges what came of it. Cause classes are those of `trainproof bisect`, which looks at the held-out loss instead.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from trainproof import stats
from trainproof.experiments import Cause
from trainproof.judge import Settings, judge_run
from trainproof.output import tell
from trainproof.record.changes import Change, Level
from trainproof.record.tape import Tape
from trainproof.replay.bisecting import bracket, kind_of, not_data
from trainproof.replay.counterfactuals import Bench, Try
from trainproof.replay.job import Target
from trainproof.replay.replaying import Segment, again, all_of, kept_batches, mismatch_once, request, spliced
from trainproof.replay.worker import ask
from trainproof.rules.registry import family_of
from trainproof.verdict import Finding

#: families of rules whose findings a training step can cause
CAUSED = frozenset({"numerics", "loss", "gradients", "evaluation"})
BUDGET = 40
#: steps whose losses make a level
LEVEL_STEPS = 10


def cause_of(
    tape: Tape, segment: Segment, finding: Finding, job: str | None, rules: Settings
) -> tuple[Cause, list[Try]]:
    """The cause of a confirmed finding, and the counterfactuals that were run for it. Raises TrainproofError."""
    with kept_batches(tape, job) as kept:
        if kept is not None:
            tell("the run again from its first checkpoint, to keep its batches")
            mismatch_once(tape, all_of(tape)._replace(until=segment.until), job, kept)
        bench = FindingBench(tape, finding, job, rules, kept)
        return _cause(bench, tape, segment, finding), bench.tries


def _cause(bench: FindingBench, tape: Tape, segment: Segment, finding: Finding) -> Cause:
    start, until = segment.start, segment.until
    if family_of(finding.rule) not in CAUSED:
        return Cause("UNPROVEN", (start, until), why=f"what {finding.rule} finds is not of a training step")
    starts = [step for step in bench.places if step <= start and step in tape.steps]
    if not starts:
        why = "no checkpoint before it but the run's first: no data are known to be harmless"
        return Cause("UNPROVEN", (start, until), why=why)
    tell(f"does {finding.rule} come back with harmless data from the checkpoint of step {starts[-1]}?")
    healed = bracket(bench, starts, until)
    if healed is None:
        return not_data(bench, tape, starts[-1], until)
    tell("it does not: it is in the data; do other checkpoints show it on the same data?")
    others = [
        step
        for step in starts
        if step < healed and _learned(tape, step, healed) and bench.could_show(step, healed, until)
    ]
    apart = list(dict.fromkeys((others[-1], others[(len(others) - 1) // 2]))) if others else []
    kind, why = kind_of(bench, tape, healed, apart, until, Change(batches=_cursors(tape, healed, until)))
    return Cause(
        kind, (healed, until), why=f"with harmless data from the checkpoint of step {healed} it does not come; {why}"
    )


def _learned(tape: Tape, other: int, start: int) -> bool:
    """Whether the loss after step `other` had come half the way from its first level to that after step `start`: what has not learned cannot
    be spoiled."""
    first, mine, now = (_level(tape, step) for step in (LEVEL_STEPS, other, start))
    return mine <= (first + now) / 2


def _level(tape: Tape, until: int) -> float:
    """The median loss of the recorded steps just before, and at, step `until`."""
    rows = [tape.steps.get(step, {}) for step in range(until - LEVEL_STEPS + 1, until + 1)]
    values = np.array([row["loss"] for row in rows if row.get("loss") is not None], float)
    return stats.median(values[np.isfinite(values)])


def _cursors(tape: Tape, start: int, until: int) -> tuple[int, ...]:
    return tuple(range(int(tape.steps[start]["cursor"]), int(tape.steps[until]["cursor"])))


class FindingBench(Bench):
    """Counterfactuals of a recorded run in fresh processes; what "collapsed" means here is that the rule flags the finding again."""

    def __init__(self, tape: Tape, finding: Finding, job: str | None, rules: Settings, kept: str | None) -> None:
        """kept: the folder with the batches of a script."""
        target = Target("" if kept is not None else tape.job_now(job), tape.settings)
        super().__init__(tape.checkpoints(), target, tape.keyed, Level(float("nan")), BUDGET)
        self.tape, self.finding, self.rules, self.kept = tape, finding, rules, kept

    def _run(self, start: int, until: int, change: Change) -> tuple[float, bool]:
        segment = Segment(start, self.places[start], until)
        with tempfile.TemporaryDirectory(prefix="trainproof-") as folder:
            out = Path(folder) / "out"
            if self.kept is not None:
                again(self.tape, out, segment, None, {"kept": self.kept, "change": change})
            else:
                asked = request(self.tape, out, segment, self.target.named)
                ask("record", {**asked, "hashes": False, "change": change}, ranks=self.tape.ranks)
            rows = Tape(out).rows
        losses = [row["loss"] for row in rows if row.get("loss") is not None]
        return losses[-1] if losses else float("nan"), self._shows(start, rows)

    def could_show(self, other: int, start: int, until: int) -> bool:
        """Whether the rule would flag the recorded rows after `start`, had they come after step `other`: else that it flags nothing there
        says nothing."""
        rows = [row for row in self.tape.rows if start < row["step"] <= until]
        return self._shows(other, [{**row, "step": row["step"] - start + other} for row in rows])

    def _shows(self, start: int, rows: list[dict[str, Any]]) -> bool:
        judged = judge_run(spliced(self.tape, start, rows), self.rules)
        every = [f for finding in judged.findings for f in (finding, *finding.related)]
        return any(f.rule == self.finding.rule and f.flagged_step > start for f in every)
