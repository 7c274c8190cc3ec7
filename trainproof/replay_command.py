"""What `trainproof record` and `trainproof replay` do."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from trainproof.apart import Subject, judge_apart
from trainproof.command import Options, check_outputs, finish, settings_of
from trainproof.errors import InputError, UsageError
from trainproof.experiments import Cause, Experiment
from trainproof.judge import Settings, check_selectors, judge_run, report_of
from trainproof.output import tell, write_whole
from trainproof.record.tape import Tape
from trainproof.replay.causes import cause_of
from trainproof.replay.counterfactuals import Try, told
from trainproof.replay.replaying import Replayed, Segment, frame_of, plan, replay, segment_around
from trainproof.replay.worker import ask
from trainproof.resume_command import job_settings
from trainproof.verdict import Finding, RunReport, Severity, Verdict, fold_severities

CONFIRMED = "CONFIRMED"


def run_record(
    job: str,
    arguments: tuple[str, ...],
    out: str,
    steps: int,
    checkpoint_every: int,
    eval_every: int,
    keyed: int | None,
    hashes: bool,
    ranks: int,
    given: tuple[str, ...],
) -> int:
    """Record a job, or run a script that uses the Recorder. The script finds the folder in TRAINPROOF_RUN. Raises TrainproofError."""
    if ":" not in Path(job).name:
        if not (job.endswith(".py") and Path(job).is_file()):
            raise UsageError(f"{job}: no Python script; expected SCRIPT.py, or FILE.py:FUNCTION that makes a job")
        return _record_script(job, arguments, out)
    if arguments:
        raise UsageError(f"{arguments[0]!r}: a job takes its settings by --set NAME=VALUE")
    request = {
        "named": job,
        "settings": job_settings(given),
        "out": out,
        "until": steps,
        "checkpoint_every": checkpoint_every,
        "eval_every": eval_every,
        "keyed": keyed,
        "hashes": hashes,
    }
    said = ask("record", request, echo=True, ranks=ranks)
    _tell_recorded(out, said["last"])
    return 0


def _record_script(script: str, arguments: tuple[str, ...], out: str) -> int:
    """Run a script that records itself; its exit code. Raises InputError where it ends well and recorded nothing in `out`."""
    done = subprocess.run([sys.executable, script, *arguments], env={**os.environ, "TRAINPROOF_RUN": out}, check=False)  # noqa: S603  the user's own script
    if done.returncode:
        return done.returncode if done.returncode > 0 else 128 - done.returncode  # as shells tell of a signal
    if not (Path(out) / "steps-0.jsonl").is_file():
        raise InputError(
            f'{script} recorded nothing in {out}; it needs a trainproof.Recorder(os.environ["TRAINPROOF_RUN"], ...)'
        )
    _tell_recorded(out, max(Tape(Path(out)).steps, default=0))
    return 0


def _tell_recorded(out: str, steps: int) -> None:
    tell(f"{out}: {steps} steps; judge it with `trainproof epoch {shlex.quote(out)}`")


def run_replay(
    run: str,
    finding: str | None,
    steps: str | None,
    job: str | None,
    plan_file: str | None,
    cause: bool,
    shared: Mapping[str, Any],
) -> int:
    """Replay the segment around a finding, and where it is confirmed and `cause` is asked for, seek what it is owed to; the exit code. Raises
    TrainproofError."""
    options = Options(paths=(run,), **shared)
    check_outputs(options)
    rules = settings_of(options)
    check_selectors(rules)
    tape = Tape(Path(run))
    judged = judge_run(frame_of(tape.folder / "steps-0.jsonl"), rules)
    sought = _sought(judged, finding)
    segment = _segment(tape, sought, steps)
    if plan_file is not None:
        window = (
            range(sought.first_step, sought.last_step + 1) if sought else range(segment.start + 1, segment.until + 1)
        )
        write_whole(Path(plan_file), json.dumps(plan(tape, list(window)), indent=2) + "\n")
        tell(
            f"{plan_file}: the batches of steps {window.start} to {window.stop - 1}; leave them out with trainproof.SkippingDataLoader"
        )
    tell(
        f"replaying steps {segment.start + 1} to {segment.until} of {job or (tape.script.file if tape.script else tape.job)}, twice"
    )
    judged = _report(run, tape, replay(tape, segment, job), sought, rules)
    if cause and sought is not None and (judged.reason or "").startswith(CONFIRMED):
        judged = _with_cause(judged, *cause_of(tape, segment, sought, job, rules))
    return finish(report_of([judged], "replay"), options, (run,))


def _with_cause(judged: RunReport, cause: Cause, tries: list[Try]) -> RunReport:
    words = ("flagged again", "not flagged")
    facts = {f"counterfactual {i}": told(one, "last loss", words) for i, one in enumerate(tries, 1)}
    first, last = cause.interval
    why = f"{cause.kind}, in steps {first + 1} to {last}: {cause.why}"
    return msgspec.structs.replace(
        judged,
        facts={**judged.facts, "cause": why, **facts},
        reason=f"{judged.reason}; cause: {why}",
        repeat=tuple(f"{command} --cause" for command in judged.repeat),
    )


def _sought(judged: RunReport, named: str | None) -> Finding | None:
    """The finding that is to be proved: the one named CODE or CODE@STEP, else the first that is more than told. Raises UsageError."""
    every = [f for finding in judged.findings for f in (finding, *finding.related)]
    if named is None:
        return next((f for f in every if f.severity is not Severity.INFO), None)
    code, _, step = named.partition("@")
    if step and not step.isdecimal():
        raise UsageError(f"--finding {named!r}: expected CODE or CODE@STEP, for example TP201@4229")
    fitting = [f for f in every if f.rule == code and (not step or f.first_step <= int(step) <= f.last_step)]
    if not fitting:
        found = ", ".join(f"{f.rule}@{f.flagged_step}" for f in every) or "none"
        raise UsageError(f"--finding {named}: the recorded run has no such finding; it has {found}")
    return fitting[0]


def _segment(tape: Tape, sought: Finding | None, steps: str | None) -> Segment:
    recorded = sorted(tape.steps)
    if not recorded:
        raise UsageError(f"{tape.folder}: no step was recorded")
    if steps is not None:
        first, dash, last = steps.partition("-")
        if not dash or not first.isdecimal() or not last.isdecimal():
            raise UsageError(f"--steps {steps!r}: expected FIRST-LAST, for example 100-140")
        if not recorded[0] <= int(first) <= min(int(last), recorded[-1]):
            raise UsageError(f"--steps {steps}: steps {recorded[0]} to {recorded[-1]} were recorded")
        return segment_around(tape, int(first), min(int(last), recorded[-1]))
    if sought is not None:
        return segment_around(tape, sought.first_step, max(sought.flagged_step, sought.first_step))
    return segment_around(tape, recorded[0], recorded[-1])


def _report(run: str, tape: Tape, replayed: Replayed, sought: Finding | None, rules: Settings) -> RunReport:
    segment = replayed.segment
    steps = f"{segment.start + 1}-{segment.until}"
    finding = f" --finding {sought.rule}@{sought.flagged_step}" if sought else f" --steps {steps}"
    facts: dict[str, str | int | float | bool] = {
        "replayed steps": steps,
        "from the checkpoint": str(segment.checkpoint),
    }
    subject = Subject(
        run,
        "recording",
        "replayed",
        segment.until - segment.start,
        segment.start + 1,
        segment.until,
        facts,
        (f"trainproof replay {shlex.quote(run)}{finding}",),
    )
    if replayed.differences:
        facts["replay"] = "NOT COMPARABLE"
        skipped = judge_apart("experiment", Experiment(), subject, rules, ("TP109",).__contains__)
        return msgspec.structs.replace(
            skipped, verdict=Verdict.SKIP, reason=f"NOT COMPARABLE: {'; '.join(replayed.differences)}"
        )
    again = "the recorded run, replayed," if replayed.repeatable else "the job"
    seen = Experiment(again=again, last=segment.until, mismatch=replayed.mismatch)
    told, confirmed = _word(replayed, sought, rules)
    facts["replay"] = told
    report = judge_apart("experiment", seen, subject._replace(facts=facts), rules, ("TP109",).__contains__)
    findings = (*report.findings, *([confirmed] if confirmed is not None else []))
    verdict = fold_severities(f.severity for f in findings)
    return msgspec.structs.replace(report, findings=findings, verdict=verdict, reason=told)


def _word(replayed: Replayed, sought: Finding | None, rules: Settings) -> tuple[str, Finding | None]:
    """The replay's verdict, and the finding as the replayed run shows it."""
    if replayed.mismatch is not None:
        m = replayed.mismatch
        return (
            f"{'NOT REPRODUCED' if replayed.repeatable else 'INCONCLUSIVE'}: {m.channel} {m.tensor} at step {m.step}".replace(
                "  ", " "
            ),
            None,
        )
    if sought is None:
        return "IDENTICAL: every step came out bit for bit as it was recorded", None
    if replayed.frame is not None:
        again = judge_run(replayed.frame, rules)
        for finding in (f for one in again.findings for f in (one, *one.related)):
            if finding.rule == sought.rule and finding.flagged_step == sought.flagged_step:
                return f"{CONFIRMED}: {finding.rule} at step {finding.flagged_step}, the same bits", finding
    return (
        f"INCONCLUSIVE: the same bits, and {sought.rule} is not flagged at step {sought.flagged_step} before the run's end",
        None,
    )
