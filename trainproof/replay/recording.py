"""Run a job under the recorder, from its beginning or from a checkpoint, as it was or with an intervention."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trainproof.record.changes import Change
from trainproof.record.fingerprint import differences
from trainproof.record.recorder import Recorder
from trainproof.record.storage import load_state, place_of
from trainproof.replay.counterfactuals import apply_change
from trainproof.replay.job import Target, make_job
from trainproof.replay.runner import Runner


def run_recorded(
    named: str,
    settings: dict[str, Any],
    out: str,
    until: int,
    *,
    start: str | None = None,
    checkpoint_every: int = 0,
    eval_every: int = 0,
    hashes: bool = True,
    keyed: int | None = None,
    expected: dict[str, Any] | None = None,
    change: list[Any] | None = None,
) -> dict[str, Any]:
    """Train until step `until` and record it into `out`.

    start: a checkpoint folder of the recorder to begin from. checkpoint_every, eval_every: steps, 0 for never. keyed: see Runner. expected:
    the fingerprint that this process must have; where it has another, nothing is run. change: a `Change` to train under, from `start` on.
    Returns `differences` from the fingerprint, and the last `step`.
    """
    job = make_job(Target(named, settings))
    runner = Runner(job, keyed=keyed)
    parts = dict(job.stateful)
    facts = {"total_steps": until} if start is None else {}
    header = {"job": named, "settings": settings, "keyed": keyed, "eval_every": eval_every, "facts": facts}
    recorder = Recorder(
        out,
        model=parts.pop("model"),
        optimizer=parts.pop("optimizer", None),
        stateful=parts,
        checkpoint_every=checkpoint_every,
        hashes=hashes,
        shard_of=getattr(job, "shard_of", None),
        source=Target(named, {}).file,
        header=header,
    )
    found = differences(expected, recorder.fingerprint) if expected is not None else []
    if not found:
        if start is not None:
            state = load_state(place_of(Path(start), recorder.rank))
            if change is not None:
                apply_change(runner, Change.of(change), int(state["stream"]["cursor"]), until - state["stream"]["step"])
            runner.restore(state)
            recorder.steps, recorder.cursor = runner.step, runner.cursor
        _train(runner, recorder, until, eval_every)
    recorder.close()
    return {"differences": found, "step": runner.step, "last": recorder.steps}


def _train(runner: Runner, recorder: Recorder, until: int, eval_every: int) -> None:
    while runner.step < until:
        if recorder.checkpoint_if_due():
            runner.refetch()  # a replay from here starts its loader here, and so must the recorded run: workers have states of their own
        before = runner.step
        with recorder.step() as step:
            done = runner.micro_step()
            if done is None:
                break
            batch, result = done
            step.loss(result.loss)
            step.log(**result.metrics)
            recorder.fetched(batch, runner.ids(runner.cursor - 1))
        if eval_every and runner.step > before and runner.step % eval_every == 0:
            recorder.evaluated(eval_loss=runner.evaluate())
    recorder.checkpoint_if_due()
