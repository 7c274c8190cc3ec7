"""What `trainproof compare` and `trainproof baseline` do."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from trainproof.command import (
    Options,
    check_outputs,
    finish,
    mapping_of,
    settings_of,
)
from trainproof.comparing import store
from trainproof.comparing.compare import Baseline, compare_run
from trainproof.comparing.load import Reading, as_baseline, best_of, load_both, load_run, stored_baselines
from trainproof.comparing.summary import StoredRun, summarise
from trainproof.errors import InputError, UsageError
from trainproof.facts import parse_fact_options
from trainproof.judge import check_selectors, report_of
from trainproof.output import print_text, tell, write_whole
from trainproof.verdict import Verdict


class CompareOptions(NamedTuple):
    """The options of `trainproof compare` beside the shared ones, as they were typed."""

    run: str
    baselines: tuple[str, ...] = ()
    align: str | None = None
    names: tuple[str, ...] = ()
    store: str = store.FOLDER
    against: tuple[str, str] | None = None


def run_compare(own: CompareOptions, shared: Mapping[str, Any]) -> int:
    """Compare, print and write the reports; the exit code. Raises TrainproofError."""
    options = Options(paths=(own.run, *own.baselines), **shared)
    check_outputs(options)
    if not (own.baselines or own.names or own.against):
        raise UsageError("nothing to compare with; name a BASELINE, --baseline NAME, or --against best DIR")
    settings = settings_of(options)
    check_selectors(settings)
    reading = Reading(options.format_name, mapping_of(options.mapping) or None, settings)
    run, found = load_both(own.run, _others(own), reading, parse_fact_options(options.facts))
    for name in own.names:
        found += stored_baselines(store.path_of(name, own.store))
    if own.against:
        found.append(best_of(own.against[1], own.run, reading))
    judged = compare_run(run.frame, found, settings, own=run.report, beside=run.beside, align=own.align)
    report = report_of([judged], "compare")
    refused = [one for one in judged.compared.baselines if one.refused] if judged.compared else []
    for one in refused:
        tell(f"{one.label}: refused as a baseline: {one.refused}")
    named = {os.path.realpath(path) for path in own.baselines if not Path(path).is_dir()}
    unmet = any(os.path.realpath(one.source) in named for one in refused)
    return finish(report, options, (own.run,), unmet or judged.verdict is Verdict.SKIP)


def _others(own: CompareOptions) -> list[str]:
    """The baselines, each once, and without the run itself where others are left: a glob may match it too."""
    once: dict[str, str] = {}
    for path in own.baselines:
        once.setdefault(os.path.realpath(path), path)
    others = [path for real, path in once.items() if real != os.path.realpath(own.run)]
    return others if others or own.names or own.against else list(once.values())


def add_baseline(
    runs: tuple[str, ...], name: str, replace: bool, format_name: str | None, mapping: tuple[str, ...], store: str
) -> int:
    """Summarise the runs and write them into the store. Raises TrainproofError; then nothing is written."""
    from trainproof.comparing import store as stores

    path = stores.path_of(name, store)
    reading = Reading(format_name, mapping_of(mapping) or None)
    old = stores.load(path) if path.exists() and not replace else None
    stored = stores.with_runs(old, name, [_summary(run, reading) for run in runs])
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{path.parent}: cannot be made ({error.strerror})") from None
    write_whole(path, stores.text_of(stored))
    tell(f"{path}: {len(stored.runs)} {'run' if len(stored.runs) == 1 else 'runs'}; commit it beside the code")
    return 0


def _summary(path: str, reading: Reading) -> StoredRun:
    """The summary of a run that can be a baseline. Raises UsageError for one that cannot."""
    run = load_run(path, reading)
    candidate: Baseline = as_baseline(run.frame, reading.for_baselines())
    if candidate.refused:
        raise UsageError(f"{path}: refused as a baseline: {candidate.refused}")
    return summarise(run.frame, candidate.verdict.value, run.beside)


def list_baselines(folder: str) -> int:
    """One line a baseline."""
    lines = []
    for name in store.stored_names(folder):
        runs = store.load(store.path_of(name, folder)).runs
        lines.append(f"{name}: {', '.join(run.source for run in runs)}\n")
    if not lines:
        tell(f"no baselines in {folder}; make one with `trainproof baseline add RUN --name main`")
    print_text("".join(lines))
    return 0


def show_baseline(name: str, folder: str) -> int:
    """What a baseline was made from, one line a run. Raises TrainproofError."""
    stored = store.load(store.path_of(name, folder))
    lines = [f"{stored.name}: made by trainproof {stored.made_by}, {len(stored.runs)} runs"]
    for run in stored.runs:
        lines.append(f"  {run.source} ({run.format}, {run.objective}, {run.verdict})")
        lines.append(f"    {run.records} records, steps {run.first_step} to {run.last_step}, SHA-256 {run.digest}")
        lines.append(f"    {', '.join(run.curves)}")
    print_text("\n".join(lines) + "\n")
    return 0


def remove_baseline(name: str, folder: str) -> int:
    """Raises InputError when there is none of that name."""
    path = store.path_of(name, folder)
    if not store.is_stored(path):
        raise InputError(f"{path}: no baseline of that name; `trainproof baseline list` names them")
    try:
        Path(path).unlink()
    except OSError as error:
        raise InputError(f"{path}: cannot be removed ({error.strerror})") from None
    return 0
