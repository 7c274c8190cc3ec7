"""What the verbs before training do: `trainproof data` and its like."""

from __future__ import annotations

import json
import sys
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from trainproof.apart import Subject, judge_apart
from trainproof.command import Options, check_outputs, finish, settings_of
from trainproof.errors import InputError, UsageError
from trainproof.judge import Settings, check_selectors, report_of
from trainproof.output import tell, write_whole
from trainproof.preflight import found as collected
from trainproof.preflight.found import Found, Partial, merged
from trainproof.preflight.inputs import Plan, plan_of
from trainproof.preflight.judging import judge_found
from trainproof.preflight.rows import Piece
from trainproof.preflight.running import Runner, run_pieces, usual_workers, whole_of
from trainproof.preflight.sharding import load_all, packed, share_of
from trainproof.preflight.trainers import checked_trainer, context_of
from trainproof.verdict import RunReport

#: places that are kept with an excerpt when all have to be named
ALL = 1 << 40


class DataOptions(NamedTuple):
    """The options of `trainproof data` beside the shared ones, as they were typed."""

    paths: tuple[str, ...]
    held_out: tuple[str, ...] = ()
    kind: str | None = None
    max_length: int | None = None
    tokenizer: str | None = None
    rejects: str | None = None
    sample_rate: int | None = None
    trainer: str | None = None
    language: str | None = None
    near: bool = True
    workers: int | None = None
    shard: str | None = None
    partial: str | None = None
    resume: str | None = None
    engine: str = "local"


def run_data(own: DataOptions, shared: Mapping[str, Any]) -> int:
    """Judge data, print and write the reports; the exit code. Raises TrainproofError."""
    options = Options(paths=(*own.paths, *own.held_out), **shared)
    check_outputs(options)
    for target in (own.rejects, own.partial):  # neither may overwrite what is judged
        check_outputs(options._replace(output=target, html=None))
    settings = settings_of(options)
    check_selectors(settings)
    _check_lengths(own)
    try:
        plan = plan_of(own.paths, own.held_out, own.kind, _collecting(own))
    except OSError as error:  # of a folder or a store
        raise InputError(f"{error.filename or own.paths[0]}: {error.strerror or error}") from None
    checked_trainer(own.trainer, plan.kind, own.language)
    if own.shard or own.partial:
        return _run_shard(own, plan, options)
    parts = _work(own, plan, plan.pieces)
    return give_data(
        plan, Found(plan.kind, plan.files, whole_of(plan, parts), plan.options), own.rejects, settings, options
    )


def _work(own: DataOptions, plan: Plan, pieces: Sequence[Piece]) -> Iterator[Partial]:
    """What is in the pieces, one after the other."""
    run: Runner = run_pieces
    if own.engine == "ray":
        from trainproof.preflight.on_ray import run_on_ray as run
    if own.resume is not None:
        from trainproof.preflight.resuming import run_kept

        run = partial(run_kept, run, own.resume)
    with progress(len(pieces)) as seen:
        yield from run(plan, pieces, own.workers or usual_workers(), seen)


def _run_shard(own: DataOptions, plan: Plan, options: Options) -> int:
    """Work on a share of the pieces, and write what was found to a file, for `trainproof merge`."""
    if not (own.shard and own.partial):
        raise UsageError("--shard and --partial: each needs the other")
    done = share_of(plan, own.shard)
    parts = _work(own, plan, [plan.pieces[i] for i in done])
    write_whole(Path(own.partial), packed(options.paths, plan, done, merged(parts, plan.options.keep)))
    tell(f"{own.partial}: {len(done)} of {len(plan.pieces)} pieces; judge all shards with `trainproof merge`")
    return 0


def run_merge(partials: tuple[str, ...], rejects: str | None, shared: Mapping[str, Any]) -> int:
    """Judge the shards of one dataset together; the exit code. Raises TrainproofError."""
    check_outputs(Options(paths=partials, **shared))
    paths, plan, parts = load_all(partials)
    options = Options(paths=paths, **shared)
    settings = settings_of(options)
    if rejects and plan.options.keep < ALL:
        tell("--rejects: reasons are kept for all records only when the shards were made with --rejects too")
    kept = plan.options._replace(keep=ALL) if rejects else plan.options
    return give_data(plan, Found(plan.kind, plan.files, whole_of(plan, parts), kept), rejects, settings, options)


@contextmanager
def progress(length: int) -> Iterator[Callable[[], None]]:
    """Gives what is to be called after each piece; a bar where standard error is a terminal."""
    if length < 2 or sys.stderr is None or not sys.stderr.isatty():
        yield lambda: None
        return
    import click

    with click.progressbar(length=length, label="reading", file=sys.stderr) as bar:
        yield lambda: bar.update(1)


def run_objective(
    spec: str,
    ignore_index: int,
    eos: int | None,
    pad: int | None,
    shift: str | None,
    loss: str | None,
    shared: Mapping[str, Any],
) -> int:
    """Judge one batch of a training run; the exit code. Raises TrainproofError."""
    from trainproof.preflight import batch as batches

    options = Options(paths=(spec,), **shared)
    check_outputs(options)
    batch = batches.read_batch(spec, batches.Settings(ignore_index, eos, pad, shift, loss))
    form = f"{spec.rpartition('.')[2].partition(':')[0]} {' x '.join(map(str, batch.labels.shape))}"
    return _give_apart("objective", batch, Subject(spec, "batch", form, len(batch.labels)), options)


def run_tokenizer(model: str, texts: tuple[str, ...], base: str | None, shared: Mapping[str, Any]) -> int:
    """Judge a tokenizer, by itself and on texts; the exit code. Raises TrainproofError."""
    from trainproof.preflight.encoding import tokenized

    subject = (model, *texts)
    options = Options(paths=subject, **shared)
    check_outputs(options)
    found = tokenized(model, texts, base)
    form = f"{found.tokenizer.kind}, {len(found.tokenizer.vocabulary):,} tokens,"
    return _give_apart("tokenizer", found, Subject(model, "tokenizer", form, len(found.texts)), options)


def run_env(modules: tuple[str, ...], folder: str, needs: Mapping[str, Any], shared: Mapping[str, Any]) -> int:
    """Judge the machine; the exit code. Raises TrainproofError."""
    from trainproof.preflight.machine import Needs, look

    options = Options(paths=("environment",), **shared)
    check_outputs(options)
    found = look(modules, folder, Needs(**needs))
    return _give_apart("environment", found, Subject("environment", "machine", "this", len(modules)), options)


def _give_apart(family: str, seen: Any, subject: Subject, options: Options) -> int:
    """Judge by the checks of a family, print and write the reports; the exit code."""
    settings = settings_of(options)
    check_selectors(settings)
    judged = judge_apart(family, seen, subject, settings)
    report = report_of([judged], family)
    return finish(report, options, (subject.path.partition(":")[0],))


def _collecting(own: DataOptions) -> collected.Options:
    keep = ALL if own.rejects else collected.MOST_EXAMPLES
    return collected.Options(
        own.max_length or context_of(own.trainer),
        own.tokenizer,
        own.trainer,
        own.language,
        own.sample_rate,
        own.near,
        keep,
    )


def _check_lengths(own: DataOptions) -> None:
    """A length is of tokens, and tokens are counted for a length: of the user, or of the trainer."""
    if own.max_length is not None and own.tokenizer is None and own.trainer != "piper":
        raise UsageError("--max-length: give --tokenizer too")
    if own.tokenizer is not None and own.max_length is None and own.trainer is None:
        raise UsageError("--tokenizer: give --max-length or --trainer too")


def give_data(plan: Plan, found: Found, rejects: str | None, settings: Settings, options: Options) -> int:
    """Judge what was found, print and write the reports; the exit code."""
    formats = ", ".join(sorted({name for name in plan.formats if name}))
    judged = judge_found(found, ", ".join(options.paths[:3]), f"{plan.kind} ({formats})", settings)
    report = report_of([judged], "data")
    if rejects:
        count = _write_rejects(Path(rejects), found, judged)
        tell(f"{rejects}: {count:,} records to leave out or repair")
    return finish(report, options, options.paths)


def _write_rejects(path: Path, found: Found, judged: RunReport) -> int:
    """One JSON object a line for every record that a finding over INFO names: file, row, rule, name and reason."""
    places = array("q")

    def lines() -> Iterator[bytes]:
        for finding in judged.findings:
            if finding.severity == "INFO":
                continue
            for place, reason in found.rejected(finding.rule):
                file, row = found.where(place)
                places.append(place)
                record = {"file": file, "row": row, "rule": finding.rule, "name": finding.name, "reason": reason}
                yield f"{json.dumps(record)}\n".encode()  # in ASCII: a reason may have half a surrogate pair

    write_whole(path, lines())
    return len(np.unique(places))
