"""Run the segment around a finding again, twice, and compare it bit for bit with the recording."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from trainproof.errors import InputError
from trainproof.experiments import Mismatch
from trainproof.frame import Frame
from trainproof.readers.discover import read_logs
from trainproof.record.fingerprint import code_of
from trainproof.record.goal import DIFFERENCES
from trainproof.record.tape import Tape
from trainproof.replay.worker import ask, rerun

#: of one step
MOST_MICRO_BATCHES = 100_000
#: the first step of a script's replay is another one: more likely than a fault is that something was not put back
ASTRAY = (
    "the script did not come back to where it was: state that its Recorder does not know, or an epoch that is not of rec.epochs(); "
    "replay it from its first step to tell"
)


class Segment(NamedTuple):
    """What is run again: from the checkpoint after step `start` until step `until`."""

    start: int
    checkpoint: Path
    until: int


class Replayed(NamedTuple):
    """What came of it: what of the fingerprint differs (then nothing was run), the first place where it is not the recording, and the
    recorded run with the segment's rows replaced by the replayed ones."""

    segment: Segment
    differences: tuple[str, ...]
    mismatch: Mismatch | None
    repeatable: bool
    frame: Frame | None


def segment_around(tape: Tape, first: int, last: int) -> Segment:
    """The segment that holds the steps first..last. Raises InputError when no checkpoint was kept before it, or a step is not there."""
    before = {step: path for step, path in tape.checkpoints().items() if step < first}
    if not before:
        raise InputError(f"{tape.folder}: no whole checkpoint before step {first}; record with --checkpoint-every")
    start = max(before)
    return whole(tape, Segment(start, before[start], last))


def whole(tape: Tape, segment: Segment) -> Segment:
    """The segment. Raises InputError when a step of it was not recorded."""
    lost = next((step for step in range(segment.start + 1, segment.until + 1) if step not in tape.steps), None)
    if lost is not None:
        raise InputError(f"{tape.folder}: a broken recording: step {lost} is not in it")
    return segment


def replay(tape: Tape, segment: Segment, job: str | None = None) -> Replayed:
    """Run the segment twice in fresh processes. job: where the job is now, by default where it was. Raises TrainproofError."""
    with tempfile.TemporaryDirectory(prefix="trainproof-") as folder:
        outs = Path(folder) / "first", Path(folder) / "second"
        for out in outs:
            differences = again(tape, out, segment, job)
            if differences:
                return Replayed(segment, tuple(differences), None, True, None)
        between = mismatch_of(outs[0], outs[1], segment, tape.ranks)
        mismatch = between or mismatch_of(tape.folder, outs[0], segment, tape.ranks)
        frame = None if between else spliced(tape, segment.start, Tape(outs[0]).rows)
    if between is not None:
        mismatch = between._replace(
            cause="two replays differ: the job is not repeatable, and nothing can be proved about it; see trainproof record-check"
        )
    elif mismatch is not None and script_alone(tape, job) and mismatch.step == segment.start + 1 > 1:
        return Replayed(segment, (), mismatch._replace(cause=ASTRAY), False, None)
    return Replayed(segment, (), mismatch, between is None, frame)


def mismatch_once(
    tape: Tape, segment: Segment, job: str | None = None, kept: str | None = None
) -> tuple[list[str], Mismatch | None]:
    """What of the fingerprint differs, and the first place where the segment, run once more, is not the recording. kept: where a script is to
    keep its batches."""
    with tempfile.TemporaryDirectory(prefix="trainproof-") as folder:
        out = Path(folder) / "again"
        differences = again(tape, out, segment, job, {"kept": kept})
        return differences, None if differences else mismatch_of(tape.folder, out, segment, tape.ranks)


def script_alone(tape: Tape, job: str | None) -> bool:
    """Whether it is the script that recorded itself that is run again, and no job."""
    return job is None and tape.script is not None


def all_of(tape: Tape) -> Segment:
    """The whole run, from its first checkpoint on. Raises InputError."""
    first = next(iter(tape.checkpoints().items()), None)
    if first is None:
        raise InputError(f"{tape.folder}: no whole checkpoint; record with --checkpoint-every")
    return whole(tape, Segment(*first, max(tape.steps, default=0)))


@contextmanager
def kept_batches(tape: Tape, job: str | None) -> Iterator[str | None]:
    """A folder for the batches of a script, which goes forward only; None for a job, which makes them anew."""
    if not script_alone(tape, job):
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="trainproof-") as folder:
        yield folder


def again(
    tape: Tape, out: Path, segment: Segment, job: str | None, wanted: Mapping[str, Any] | None = None
) -> list[str]:
    """Run the segment again and record it into `out`: the job, or the script that recorded itself where no job is named. wanted: what else a
    script's goal says. What of the fingerprint differs: then nothing was run. Raises InputError."""
    if job is not None or tape.script is None:
        said: list[str] = ask("record", request(tape, out, segment, job), ranks=tape.ranks)["differences"]
        return said
    script = tape.script
    if not Path(script.file).is_file() or not Path(script.folder).is_dir():
        raise InputError(f"{tape.folder}: {script.file}, which recorded it in {script.folder}, is not there any more")
    if code_of(script.file) != tape.fingerprint.get("code"):
        return [f"code was {tape.fingerprint.get('code')}, is {code_of(script.file)} ({script.file})"]
    goal = {
        "out": str(out),
        "start": str(segment.checkpoint.resolve()),
        "until": segment.until,
        "expected": tape.fingerprint,
        **(wanted or {}),
    }
    rerun(script, goal, str(tape.folder.resolve()), tape.ranks)
    if (out / DIFFERENCES).is_file():
        found: list[str] = json.loads((out / DIFFERENCES).read_text())
        return found
    if not (out / "steps-0.jsonl").is_file():
        raise InputError(f"{script.file} ended without a recorded step; does it still use trainproof.Recorder?")
    return []


def mismatch_of(recorded: Path, again: Path, segment: Segment, ranks: int) -> Mismatch | None:
    """The first mismatch of two recordings over all ranks; where there are several, it says on which rank it was."""
    found: list[Mismatch] = []
    for rank in range(ranks):
        mismatch = first_mismatch(Tape(recorded, rank), Tape(again, rank), segment)
        if mismatch is not None:
            found.append(mismatch._replace(channel=f"{mismatch.channel} on rank {rank}") if ranks > 1 else mismatch)
    return min(found, key=lambda mismatch: mismatch.step, default=None)


def request(tape: Tape, out: Path, segment: Segment, job: str | None = None) -> dict[str, Any]:
    """What a worker is asked for to run a segment of a recorded run. Raises InputError for a run whose job is not known."""
    return {
        "named": tape.job_now(job),
        "settings": tape.settings,
        "out": str(out),
        "until": segment.until,
        "start": str(segment.checkpoint),
        "eval_every": tape.eval_every,
        "keyed": tape.keyed,
        "hashes": bool(tape.tensors),
        "expected": tape.fingerprint,
    }


def first_mismatch(recorded: Tape, again: Tape, segment: Segment) -> Mismatch | None:
    """The first step after the segment's start at which the two are not the same: data first, then parameters, then what was logged."""
    for step in range(segment.start + 1, segment.until + 1):
        a, b = recorded.steps.get(step), again.steps.get(step)
        if a is None or b is None:
            return Mismatch(step, "stream", "", "one of them ends here") if (a is None) != (b is None) else None
        for name in ("ids", "batch"):
            if a.get(name) != b.get(name):
                return Mismatch(
                    step, {"ids": "sample ids", "batch": "batch contents"}[name], "", "the data is not what it was"
                )
        if a.get("params") != b.get("params"):
            return Mismatch(
                step,
                "parameters",
                _tensor(recorded, again, step),
                "the same state and batch gave another update, once: a transient fault, or state outside of the checkpoint",
            )
        for name in ("loss", "grad_norm", "lr"):
            if a.get(name) != b.get(name) and a.get(name) == a.get(name):
                return Mismatch(step, name, "", "the parameters are the same")
    return None


def _tensor(recorded: Tape, again: Tape, step: int) -> str:
    """The parameter that differs; of several, the one whose gradient norm changed most against the others: clipping scales them all."""
    a, b = recorded.hashes.get(step), again.hashes.get(step)
    if a is None or b is None or len(a) != len(b):
        return ""
    names = np.flatnonzero(a != b)
    if not len(names):
        return ""
    with np.errstate(all="ignore"):
        ratio = recorded.norms[step][names].astype(np.float64) / again.norms[step][names].astype(np.float64)
        off = np.abs(np.log(ratio / np.nanmedian(ratio)))
    off = np.where(np.isnan(off), np.inf, off)
    return recorded.tensors[int(names[int(np.argmax(off))])]


def spliced(tape: Tape, start: int, rows: Iterable[dict[str, Any]]) -> Frame:
    """The recorded run until step `start`, then other rows, read as one recording. Raises InputError."""
    kept = [row for row in tape.rows if row["step"] <= start]
    with tempfile.TemporaryDirectory(prefix="trainproof-") as folder:
        path = Path(folder) / "spliced.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in (tape.header, *kept, *rows)))
        return frame_of(path)


def frame_of(path: Path) -> Frame:
    """The one run of a recording. Raises InputError."""
    (log,) = read_logs([str(path)], format_name="recording")
    if log.problem is not None or not log.frames:
        raise log.problem or InputError(f"{path}: no steps in it")
    return log.frames[0]


def plan(tape: Tape, steps: Sequence[int]) -> dict[str, Any]:
    """The batches to leave out so that the steps are trained without them: their numbers, and the samples in them."""
    cursors: list[int] = []
    ordered = sorted(tape.steps)
    for step in steps:
        row = tape.steps.get(step)
        if row is None:
            raise InputError(f"{tape.folder}: step {step} was not recorded; steps {ordered[0]} to {ordered[-1]} were")
        before = tape.steps.get(step - 1, {}).get("cursor", row["cursor"] - 1)
        if not 0 <= row["cursor"] - before <= MOST_MICRO_BATCHES:
            raise InputError(
                f"{tape.folder}: a broken recording: {row['cursor'] - before} micro-batches in step {step}"
            )
        cursors += range(before, row["cursor"])
    samples = [sample for step in steps for sample in tape.steps[step].get("ids", [])]
    return {
        "kind": "trainproof plan 1",
        "run": str(tape.folder),
        "steps": list(steps),
        "skip": cursors,
        "samples": samples,
    }
