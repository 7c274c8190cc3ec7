"""What `trainproof resume` and `trainproof record-check` do, and `assert_resumes_exactly` for tests."""

from __future__ import annotations

import csv
import io
import json
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from trainproof.apart import Subject, judge_apart
from trainproof.api import read
from trainproof.command import Options, check_outputs, finish, settings_of
from trainproof.errors import UsageError
from trainproof.experiments import Experiment, Outcome
from trainproof.judge import DEFAULTS, Settings, check_selectors, report_of
from trainproof.output import print_text, tell, write_whole
from trainproof.replay import demo
from trainproof.replay.checking import check
from trainproof.replay.job import Target
from trainproof.replay.resuming import MATRIX, Traces, resume_outcomes
from trainproof.verdict import RunReport, Verdict


def job_settings(options: Sequence[str]) -> dict[str, Any]:
    """The settings of `--set`: values are JSON where they can be read as such. Raises UsageError."""
    found: dict[str, Any] = {}
    for option in options:
        name, equals, value = option.partition("=")
        if not equals or not name:
            raise UsageError(f"--set {option!r}: expected NAME=VALUE, for example --set seed=1")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


def repeated(command: str, target: str, settings: Mapping[str, Any], **options: Any) -> str:
    """The command line that does an experiment again."""
    words = ["trainproof", command, target]
    words += [f"--{name.replace('_', '-')}={value}" for name, value in options.items() if value is not None]
    words += [word for name, value in settings.items() for word in ("--set", f"{name}={json.dumps(value)}")]
    return shlex.join(words)


def judged_resume(
    target: Target, steps: int, at: int, folder: Path, rules: Settings = DEFAULTS
) -> tuple[RunReport, list[Outcome]]:
    """Interrupt and resume the job as it does itself; the report and the outcomes. Raises TrainproofError."""
    outcomes, traces = resume_outcomes(target, None, steps=steps, at=at, folder=folder)
    own = "its own save() and load()" if traces.own else "its declared state"
    repeat = (repeated("resume", target.named, target.settings, steps=steps, at=at),)
    facts: dict[str, str | int | float | bool] = {"resumed by": own, "interrupted at": at}
    facts |= {f"{o.scenario.name} resume": "exact" if o.exact else "not exact" for o in outcomes}
    subject = Subject(target.named, "job", "resumed", steps, 1, steps, facts, repeat)
    report = judge_apart("experiment", Experiment(at, tuple(outcomes)), subject, rules, ("TP707",).__contains__)
    if all(outcome.exact for outcome in outcomes):
        where = ", ".join(outcome.scenario.name for outcome in outcomes)
        told = f"EXACT: interrupted at step {at} ({where}) and resumed from {own}, the run came out bit for bit"
        report = msgspec.structs.replace(report, reason=told)
    return report, outcomes


def run_resume(
    inputs: tuple[str, ...],
    steps: int,
    at: int | None,
    given: tuple[str, ...],
    seeds: int | None,
    shared: Mapping[str, Any],
) -> int:
    """Interrupt, resume, compare, print and write the reports; the exit code. Raises TrainproofError."""
    options = Options(paths=inputs, **shared)
    check_outputs(options)
    rules = settings_of(options)
    check_selectors(rules)
    at = steps // 2 if at is None else at
    target = Target(f"{demo.__file__}:make" if inputs == ("demo",) else inputs[0], job_settings(given))
    if seeds is not None and seeds < 1:
        raise UsageError(f"--seeds {seeds}: expected 1 or more")
    if seeds is not None:
        return _matrix(target, steps, at, seeds, options)
    if len(inputs) == 2:
        run = _of_logs(inputs[0], inputs[1], rules)
    elif len(inputs) == 1:
        with tempfile.TemporaryDirectory(prefix="trainproof-") as folder:
            run, _ = judged_resume(target, steps, at, Path(folder), rules)
    else:
        raise UsageError("expected a job, train.py:make, or two logs: the uninterrupted and the resumed one")
    return finish(report_of([run], "resume"), options, inputs[:1])


def _of_logs(whole: str, resumed: str, rules: Settings) -> RunReport:
    frames = read(whole), read(resumed)
    repeat = (shlex.join(["trainproof", "resume", whole, resumed]),)
    subject = Subject(
        resumed,
        "job",
        frames[1].source.format,
        frames[1].records,
        frames[1].first_step,
        frames[1].last_step,
        {},
        repeat,
    )
    return judge_apart("experiment", Experiment(logs=frames), subject, rules, ("TP707",).__contains__)


def _matrix(target: Target, steps: int, at: int, seeds: int, options: Options) -> int:
    """The ablation matrix over seeds: complete resumes must be exact, and every incomplete one told and named. The exit code is 1 where
    that is not so."""
    rows: list[dict[str, Any]] = []
    lines: list[str] = []
    for seed in range(seeds):
        tell(f"seed {seed + 1} of {seeds}")
        job = target._replace(settings={**target.settings, "seed": seed})
        with tempfile.TemporaryDirectory(prefix="trainproof-") as folder:
            outcomes, traces = resume_outcomes(job, MATRIX, steps=steps, at=at, folder=Path(folder))
        rows += [_row(seed, outcome) for outcome in outcomes]
        lines += _trace_lines(seed, traces)
    good = all(row["exact"] == (not row["left_out"]) and row["missing"] == row["left_out"] for row in rows)
    table = io.StringIO()
    writer = csv.DictWriter(table, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    if options.output:
        place = Path(options.output)
        about = {"steps": steps, "interrupted_at": at, "as_expected": good, "environment": traces.fingerprint}
        write_whole(place.with_suffix(".csv"), table.getvalue())
        write_whole(place.with_suffix(".json"), json.dumps({**about, "rows": rows}, indent=2) + "\n")
        write_whole(place.with_suffix(".traces.jsonl"), "\n".join(lines) + "\n")
    else:
        print_text(table.getvalue())
    return 0 if good or options.exit_zero else 1


def _trace_lines(seed: int, traces: Traces) -> list[str]:
    """A JSON object for each micro-batch of each run: what it trained on, and a digest of each channel of the state after it."""
    named = {f"uninterrupted, from {point}": trace for point, trace in traces.whole.items()} | traces.resumed
    return [
        json.dumps({"seed": seed, "run": name, **row._asdict()}) for name, trace in named.items() for row in trace.rows
    ]


def _row(seed: int, outcome: Outcome) -> dict[str, Any]:
    # gradients were all used up at a boundary: nothing is lost where they are left out there
    left_out = [
        part for part in outcome.scenario.without if part != "gradients" or outcome.scenario.point != "boundary"
    ]
    return {
        "seed": seed,
        "scenario": outcome.scenario.name,
        "exact": outcome.exact,
        "left_out": " ".join(sorted(left_out)),
        "missing": " ".join(sorted(outcome.missing)),
        "confirmed": outcome.confirmed,
        "first_step": "" if outcome.first_step is None else outcome.first_step,
        "first_channels": " ".join(outcome.channels),
        "parameter_error": outcome.parameter_error,
        "optimizer_error": outcome.optimizer_error,
        "same_batches": outcome.batches,
        "same_rates": outcome.rates,
    }


def run_check(job: str, steps: int, given: tuple[str, ...], shared: Mapping[str, Any]) -> int:
    """Run a job twice and compare; the exit code. Raises TrainproofError."""
    options = Options(paths=(job,), **shared)
    check_outputs(options)
    rules = settings_of(options)
    check_selectors(rules)
    target = Target(job, job_settings(given))
    count, mismatch = check(target, steps)
    seen = Experiment(again="the job, run twice,", last=steps, mismatch=mismatch)
    repeat = (repeated("record-check", job, target.settings, steps=steps),)
    run = judge_apart(
        "experiment", seen, Subject(job, "job", "repeated", count, 1, steps, {}, repeat), rules, ("TP109",).__contains__
    )
    if mismatch is None:
        run = msgspec.structs.replace(
            run, reason=f"REPEATABLE: {count} micro-batches came out bit for bit the same twice"
        )
    return finish(report_of([run], "record-check"), options, (job,))


def assert_resumes_exactly(
    job: str, *, steps: int = 12, at: int = 6, settings: Mapping[str, Any] | None = None
) -> None:
    """For tests: interrupt the job ("train.py:make") at step `at` of `steps`, at the boundary and in mid-accumulation, resume it in a fresh
    process, and compare bit for bit. Raises AssertionError that names what is missing, TrainproofError when the job fails.
    """
    with tempfile.TemporaryDirectory(prefix="trainproof-") as folder:
        run, _ = judged_resume(Target(job, dict(settings or {})), steps, at, Path(folder))
    if run.verdict is not Verdict.PASS:
        raise AssertionError(" ".join(finding.message for finding in run.findings) or run.reason)
