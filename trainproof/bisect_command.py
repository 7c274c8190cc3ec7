"""What `trainproof bisect` does."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from trainproof.apart import Subject, judge_apart
from trainproof.command import Options, check_outputs, finish, settings_of
from trainproof.errors import UsageError
from trainproof.experiments import Cause, Collapse, Experiment
from trainproof.judge import Settings, check_selectors, report_of
from trainproof.output import print_text, tell, write_whole
from trainproof.record.changes import Change
from trainproof.record.tape import Tape
from trainproof.replay.counterfactuals import Try, told
from trainproof.replay.replaying import Segment, all_of, kept_batches, mismatch_once
from trainproof.replay.worker import ask
from trainproof.resume_command import job_settings
from trainproof.verdict import RunReport


class BisectOptions(NamedTuple):
    """The options of `trainproof bisect` beside the shared ones, as they were typed."""

    run: str
    job: str | None = None
    bad: int | None = None
    budget: int = 100
    forensic: bool = False
    evidence: str | None = None
    attempt: str | None = None
    given: tuple[str, ...] = ()


def run_bisect(own: BisectOptions, shared: Mapping[str, Any]) -> int:
    """Find the cause of a collapse, print and write the reports; the exit code. Raises TrainproofError."""
    options = Options(paths=(own.run,), **shared)
    check_outputs(options)
    rules = settings_of(options)
    check_selectors(rules)
    if own.attempt is not None:
        return _try(own)
    if own.forensic:
        if own.job is None:
            raise UsageError("--forensic needs --job train.py:make: checkpoints do not say which job they are of")
        request: dict[str, Any] = {"job": own.job, "settings": job_settings(own.given), "budget": own.budget}
        answer, seen = ask("forensic", {"folder": own.run, **request}, echo=True), Experiment(bisected=True)
    else:
        answer, seen = _instrumented(own)
    if own.evidence is not None:
        write_whole(Path(own.evidence), json.dumps(answer, indent=2) + "\n")
    run = _report(own, answer, seen, rules)
    return finish(report_of([run], "bisect"), options, (own.run,))


def _instrumented(own: BisectOptions) -> tuple[dict[str, Any], Experiment]:
    """The answer, or, where the run does not come out as it was recorded, the mismatch that is itself the finding."""
    tape = Tape(Path(own.run))
    if not tape.evaluations or not tape.checkpoints():
        options = "--eval-every and --checkpoint-every"
        if tape.script is not None:
            options = "checkpoint_every=..., and call evaluated(eval_loss=...) of the Recorder"
        raise UsageError(f"{own.run}: has no evaluations or no checkpoints; record with {options}")
    segment = all_of(tape)
    with kept_batches(tape, own.job) as kept:
        return _searched(own, tape, segment, kept)


def _searched(own: BisectOptions, tape: Tape, segment: Segment, kept: str | None) -> tuple[dict[str, Any], Experiment]:
    tell(f"fidelity first: steps {segment.start + 1} to {segment.until} again")
    differences, mismatch = mismatch_once(tape, segment, own.job, kept)
    if differences:
        raise UsageError(f"{own.run}: NOT COMPARABLE: {'; '.join(differences)}")
    if mismatch is not None:
        return {"bad": None, "cause": None, "tries": [], "steps": segment.until}, Experiment(
            again="the recorded run, replayed,", last=segment.until, mismatch=mismatch
        )
    if tape.keyed is None:
        option = "--keyed 0" if tape.script is None else "keyed=0 of its Recorder"
        raise UsageError(
            f"{own.run}: was recorded without {option}, so that leaving a batch out would change the randomness of all that follow"
        )
    request = {"folder": own.run, "job": own.job, "bad": own.bad, "budget": own.budget, "kept": kept}
    answer = ask("bisect", request, echo=True)
    return answer, Experiment(again="the recorded run, replayed,", last=segment.until, bisected=True)


def _report(own: BisectOptions, answer: dict[str, Any], seen: Experiment, rules: Settings) -> RunReport:
    if answer["bad"] is not None:
        step, level, _ = answer["bad"]
        kind, interval, shard, batches, samples, why = answer["cause"]
        cause = Cause(kind, (interval[0], interval[1]), shard, tuple(batches), tuple(samples), why)
        value = next((t[3] for t in answer["tries"] if t[1] == step and not any(t[2])), level)
        seen = seen._replace(collapse=Collapse(step, value, level, cause, len(answer["tries"]), answer["steps"]))
    command = [
        "trainproof",
        "bisect",
        own.run,
        *(["--job", own.job] if own.job else []),
        *(["--bad", str(own.bad)] if own.bad is not None else []),
        *(["--forensic"] if own.forensic else []),
    ]
    command += [word for setting in own.given for word in ("--set", setting)]
    tries = (
        []
        if own.forensic
        else [shlex.join([*command, "--try", json.dumps([t[0], t[1], t[2]])]) for t in answer["tries"]]
    )
    facts: dict[str, str | int | float | bool] = {"replays": len(answer["tries"]), "replayed steps": answer["steps"]}
    facts |= {f"counterfactual {i}": told(_attempt(t)) for i, t in enumerate(answer["tries"], 1)}
    subject = Subject(own.run, "recording", "bisected", seen.last, facts=facts, repeat=(shlex.join(command), *tries))
    report = judge_apart("experiment", seen, subject, rules, ("TP108", "TP109").__contains__)
    if seen.bisected and seen.collapse is None:
        return msgspec.structs.replace(
            report, reason="the held-out loss did not collapse: there is nothing to look for"
        )
    return report


def _attempt(said: list[Any]) -> Try:
    start, until, change, value, collapsed = said
    return Try(start, until, Change.of(change), value, collapsed)


def _try(own: BisectOptions) -> int:
    """One counterfactual again, as a report names it."""
    try:
        start, until, said = json.loads(own.attempt or "")
        change = Change.of(said)
        start, until = int(start), int(until)
    except (ValueError, TypeError):
        raise UsageError("--try: expected [START, UNTIL, CHANGE] as a report of bisect has it") from None
    tape = Tape(Path(own.run))
    request = {"folder": own.run, "job": own.job, "bad": own.bad, "start": start, "until": until, "change": change}
    with kept_batches(tape, own.job) as kept:
        if kept is not None:
            tell("the whole run again first, to keep its batches")
            mismatch_once(tape, all_of(tape), own.job, kept)
        value = ask("try", {**request, "kept": kept})
    print_text(told(Try(start, until, change, value["value"], value["collapsed"])) + "\n")
    return 0
