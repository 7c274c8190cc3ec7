"""TP108, TP109 and TP707: what came of running a job again. The rules are given an Experiment."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trainproof.experiments import Experiment, Outcome
from trainproof.frame import Frame
from trainproof.rules.registry import FAIL, CannotTell, Sighting, rule
from trainproof.thresholds import ExperimentThresholds
from trainproof.verdict import Evidence, number


@rule(
    "TP108",
    "collapse-cause",
    severity=FAIL,
    fix="Take out what is named and go on from the last healthy checkpoint; `trainproof replay RUN --steps FIRST-LAST --plan FILE` writes the list.",
)
def collapse_cause(seen: Experiment, t: ExperimentThresholds) -> Iterator[Sighting]:
    """The held-out loss collapsed, and its cause was looked for by experiment.

    What it does
    Finds the change-point of the recorded held-out loss, the last checkpoint from which harmless data does not collapse, and then, by
    halving, the smallest group of samples whose replacement by harmless ones prevents the collapse: shard, batch, sample.

    Why it matters
    A spike is usually chased by skipping batches by hand; what is not proved comes back.

    Formula
    Named is only what is necessary (replaced, the collapse does not come) and sufficient (with only it left, it comes). DATA: it collapses
    two other healthy checkpoints too; DATA x STATE: one of them trains on it without harm; DATA, FROM THIS STATE: there are too few others
    to say; LEARNING RATE: harmless data collapses, and a held rate does not; STATE: neither helps. From checkpoints alone, with the order of
    the data unknown, at most PROBABLE: under 8 of 8 reconstructed orders.

    False positives
    None is named for a held-out loss that rises by less than 25 % of its level, than a quarter of what had been learned, than 5 times its own
    noise or 1.5 times its last swings; one evaluation at the end counts only where nine tenths of what had been learned is lost. Of 300 made
    healthy runs with wild swings none named anything, when that one had still to lose all. A transient spike of the training loss never
    counts.

    What to try
    Read the counterfactuals of the report: each is a command that anyone can repeat.
    """
    if not seen.bisected:
        raise CannotTell("no cause was looked for")
    if seen.collapse is None:
        return
    found, cause = seen.collapse, seen.collapse.cause
    parts = [f"shard {cause.shard}"] if cause.shard else []
    parts += [f"batch {batch}" for batch in cause.batches] + [f"sample {sample}" for sample in cause.samples]
    named = ", ".join(parts)
    first, last = cause.interval
    yield Sighting(
        FAIL,
        f"the held-out loss collapsed by step {found.step} ({found.value:.4g}); cause: {cause.kind}{f', {named}' if named else ''}, "
        f"in steps {first + 1} to {last}; {cause.why}. {found.replays} replays, {found.steps} steps.",
        (Evidence("eval/loss", found.step, number(found.value), found.step),),
        {"level": found.level},
        first + 1,
        last,
        found.step,
    )


@rule(
    "TP109",
    "replay-mismatch",
    severity=FAIL,
    fix="Look at that step on that machine: memory test, other device; or make the job deterministic and record it again.",
)
def replay_mismatch(seen: Experiment, t: ExperimentThresholds) -> Iterator[Sighting]:
    """A step that was done again from the same state did not come out the same.

    What it does
    Runs the job, or a segment of a recorded run from the checkpoint before it, twice in fresh processes, and compares hashes of every
    parameter after every step, with each other and with the recording.

    Why it matters
    A step is a function of model, optimizer, batch and random state. Where the replays agree with each other and not with the recording,
    something outside of it changed the result once: a corrupted gradient, a faulty device. No statistic of the log sees it. Where they
    disagree with each other nothing can be proved about the job.

    Formula
    Bit for bit: 64 bits a tensor a step. The first step, the channel and the tensor that differ are named; where all tensors differ after
    clipping, the one whose gradient norm changed most.

    False positives
    None on the same build, threads, processor and settings; a replay under others is refused as not comparable.

    What to try
    Replay the segment on another machine of the same kind.
    """
    if not seen.again:
        raise CannotTell("nothing was run again")
    if seen.mismatch is not None:
        m = seen.mismatch
        yield Sighting(
            FAIL,
            f"{seen.again} is not the same from step {m.step} on: first {m.channel}{f' {m.tensor}' if m.tensor else ''}; {m.cause}.",
            (Evidence(m.tensor or m.channel, m.step, 1.0, m.step),),
            {"differing bits": 0},
            m.step,
            seen.last,
            m.step,
        )


@rule(
    "TP707",
    "resume-equivalence",
    severity=FAIL,
    fix="Save and load the parts that are named, and prove it again with `trainproof resume`.",
)
def resume_equivalence(seen: Experiment, t: ExperimentThresholds) -> Iterator[Sighting]:
    """A run that was interrupted and resumed does not go on as the uninterrupted one.

    What it does
    Runs the job without an interruption, and again with one, at an optimizer step and in the middle of accumulating gradients, resumed in
    a fresh process; compares model, optimizer, scheduler, data, random states, gradients and rates after every micro-batch. The part that
    differs first is named, put back, and the run is resumed once more: where that makes it exact, it is confirmed. Of two logs it compares
    rate, loss and gradient norm of the first steps after the resume.

    Why it matters
    A resume that loses a part of the state trains something else, silently: the loss tells of it steps later, if at all.

    Formula
    Exact means bit for bit. Of two logs: over the first 5 shared steps, the rate to 1e-6, the loss to 1e-3, the gradient norm to 1e-2.

    False positives
    Logs of runs on different devices part within a few steps: hence only the first are compared. A job that is not repeatable is never
    exact: see `trainproof record-check`.

    What to try
    Give the job a save() and a load() that keep what is named.
    """
    if seen.logs is not None:
        yield from _logs(*seen.logs, t)
    elif seen.outcomes is not None:
        yield from (_inexact(seen, outcome) for outcome in seen.outcomes if not outcome.exact)
    else:
        raise CannotTell("nothing was interrupted")


def _inexact(seen: Experiment, outcome: Outcome) -> Sighting:
    proof = "putting it back makes the resume exact" if outcome.confirmed else "not confirmed"
    missing = (
        f"missing: {', '.join(outcome.missing)} ({proof})"
        if outcome.missing
        else "nothing that was declared is missing"
    )
    first = seen.at if outcome.first_step is None else outcome.first_step
    return Sighting(
        FAIL,
        f"resumed ({outcome.scenario.name}), the run is another one from step {first} on; first differs {', '.join(outcome.channels[:4])}; {missing}. "
        f"At the end parameters differ by up to {outcome.parameter_error:.3g}.",
        (Evidence("largest parameter error", first, number(outcome.parameter_error), 1),),
        {"differing bits": 0},
        first,
        first,
        first,
    )


def _logs(whole: Frame, resumed: Frame, t: ExperimentThresholds) -> Iterator[Sighting]:
    """Raises CannotTell when the logs share no step with a loss."""
    judged = False
    limits = {"lr": t.resume_rate, "loss": t.resume_loss, "grad_norm": t.resume_norm}
    likely = {
        "lr": "the scheduler's state",
        "loss": "the data, the random state or the weights",
        "grad_norm": "the data or the random state",
    }
    found: list[tuple[int, str, float, float, int]] = []
    for name, limit in limits.items():
        if name not in whole or name not in resumed:
            continue
        mine, theirs = whole[name].align(resumed[name])
        judged = judged or (name == "loss" and len(mine) > 0)
        before, after = whole[name].value[mine[: t.resume_steps]], resumed[name].value[theirs[: t.resume_steps]]
        off = np.flatnonzero(
            ~(np.abs(before - after) <= limit * np.abs(before)) & ~(np.isnan(before) & np.isnan(after))
        )
        if len(off):
            i = int(off[0])
            found.append(
                (
                    int(whole[name].step[mine[i]]),
                    name,
                    float(before[i]),
                    float(after[i]),
                    int(resumed[name].line[theirs[i]]),
                )
            )
    if not judged:
        raise CannotTell("the two logs share no step with a loss")
    if not found:
        return
    step, name, a, b, line = min(found, key=lambda one: one[0])
    first = int(resumed["loss"].step[0])
    cause = "the optimizer's state" if name == "loss" and step > first else likely[name]
    yield Sighting(
        FAIL,
        f"the resumed run's {name} at step {step} is {b:.6g}, the uninterrupted one's {a:.6g}; that it differs first points to {cause}.",
        (Evidence(name, step, number(b), line),),
        {name: limits[name]},
        step,
        step,
        step,
    )
