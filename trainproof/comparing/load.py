"""From what the user named to runs and baselines: logs, folders of logs, stored baselines."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from trainproof import stats
from trainproof.comparing.compare import Baseline, baseline_of, stored_baseline
from trainproof.comparing.reference import LogReference
from trainproof.comparing.store import is_stored, load
from trainproof.errors import FormatError, TrainproofError, UsageError
from trainproof.facts import Facts, FactValue
from trainproof.frame import Frame
from trainproof.judge import Settings, judge_run
from trainproof.readers.beside import settings_beside
from trainproof.readers.discover import read_logs
from trainproof.verdict import RunReport

#: bytes of logs from which on a second process reads the baselines meanwhile
LARGE = 32 * 1024 * 1024
#: records at the end whose median says which run of a folder is best
BEST_RECORDS, BEST_SHARE = 5, 0.05


class Reading(NamedTuple):
    """How logs are read: format, the log's names of metrics, and the settings by which baselines are judged."""

    format_name: str | None = None
    mapping: Mapping[str, str] | None = None
    settings: Settings = Settings()

    def for_baselines(self) -> Settings:
        """All rules but the ignored ones: a baseline has to stand by itself, whatever the run is asked for."""
        return Settings(("ALL",), self.settings.ignore, self.settings.thresholds)


class Loaded(NamedTuple):
    """A run that was read, what the single-run rules said of it, and the settings beside its log."""

    frame: Frame
    report: RunReport
    beside: dict[str, FactValue]


def load_run(path: str, reading: Reading, facts: Facts | None = None) -> Loaded:
    """The one run of a log. Raises InputError, FormatError, or UsageError when there are several."""
    frames = []
    for log in read_logs([path], format_name=reading.format_name, mapping=reading.mapping, facts=facts):
        if log.problem is not None:
            raise log.problem
        frames += log.frames
    return as_loaded(frames, reading.settings, path)


def as_loaded(frames: Sequence[Frame], settings: Settings, path: str = "the table") -> Loaded:
    """The one run, judged by itself. Raises FormatError when there is none, UsageError when there are several."""
    if not frames:
        raise FormatError(f"{path}: no training log")
    if len(frames) > 1:
        raise UsageError(f"{path} holds {len(frames)} runs, expected one to compare; name one log")
    (frame,) = frames
    return Loaded(frame, judge_run(frame, settings), _beside(frame))


def table_baselines(frames: Sequence[Frame], number: int, reading: Reading) -> list[Baseline]:
    """Runs from memory as baselines, numbered from `number`: tables have no path to be told apart by."""
    settings = reading.for_baselines()
    return [as_baseline(frame, settings, f"baseline {i}") for i, frame in enumerate(frames, number)]


def load_baselines(paths: Sequence[str], reading: Reading) -> list[Baseline]:
    """Every run that the inputs hold, as baselines. Raises TrainproofError for a named input that cannot be read.

    Files below a folder that cannot be read are passed over.
    """
    found: list[Baseline] = []
    for path in paths:
        before = len(found)
        if is_stored(path):
            found += stored_baselines(Path(path))
            continue
        found += _from_logs(path, reading)
        if len(found) == before:
            raise FormatError(f"{path}: no training log to compare with")
    return found


def stored_baselines(path: Path) -> list[Baseline]:
    """The runs of a stored baseline. Raises InputError or FormatError."""
    stored = load(path)
    if not stored.runs:
        raise FormatError(f"{path}: a baseline without runs")
    return [stored_baseline(run, f"{stored.name} ({run.source})") for run in stored.runs]


def _from_logs(path: str, reading: Reading) -> Iterator[Baseline]:
    for log in read_logs([path], format_name=reading.format_name, mapping=reading.mapping):
        if log.problem is not None:
            if Path(path).is_dir():
                continue
            raise log.problem
        for frame in log.frames:
            yield as_baseline(frame, reading.for_baselines())


def as_baseline(frame: Frame, settings: Settings, label: str | None = None) -> Baseline:
    """The run, judged by itself, as a baseline."""
    named = frame.source.path + (f" [{frame.source.name}]" if frame.source.name else "")
    return baseline_of(frame, label or named, judge_run(frame, settings), _beside(frame))


def _beside(frame: Frame) -> dict[str, FactValue]:
    path = frame.source.path
    return {} if path in ("-", "<memory>") else settings_beside(Path(path))


def load_both(
    run: str, baselines: Sequence[str], reading: Reading, facts: Facts | None = None
) -> tuple[Loaded, list[Baseline]]:
    """The run and its baselines; of large logs a second process reads and judges the baselines meanwhile."""
    if not _worth_a_process(run, baselines):
        return load_run(run, reading, facts), load_baselines(baselines, reading)
    import warnings
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context
    from tempfile import TemporaryDirectory

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # numpy's idle threads do not mind a fork
        with (
            TemporaryDirectory(prefix="trainproof-") as folder,
            ProcessPoolExecutor(1, mp_context=get_context("fork")) as pool,
        ):
            place = Path(folder, "baselines")
            others = pool.submit(_load_or_problem, list(baselines), reading, place)
            own = load_run(run, reading, facts)
            if (problem := others.result()) is not None:
                raise problem
            with place.open("rb") as kept:
                return own, pickle.load(kept)  # noqa: S301  this process's own fork wrote it into a folder of its own


def _load_or_problem(paths: Sequence[str], reading: Reading, place: Path) -> TrainproofError | None:
    """Leave the baselines at `place`: a file is several times as quick as the pipe between two processes."""
    try:
        found = load_baselines(paths, reading)
    except TrainproofError as problem:
        return problem
    with place.open("wb") as kept:
        pickle.dump(found, kept, protocol=5)
    return None


def _worth_a_process(run: str, baselines: Sequence[str]) -> bool:
    """Whether both sides are large files and this is a Linux machine with a second processor."""
    if not hasattr(os, "sched_getaffinity") or stats.processors() < 2:
        return False
    return min(sum(map(_size, paths)) for paths in ([run], baselines)) >= LARGE


def _size(path: str) -> int:
    """The bytes of a regular file; 0 for everything else."""
    try:
        return Path(path).stat().st_size if Path(path).is_file() else 0
    except OSError:
        return 0


def best_of(folder: str, run: str, reading: Reading) -> Baseline:
    """The best run of a folder: of those that can be a baseline, the lowest evaluation loss at the end, or where not all evaluate,
    the lowest loss. The run itself is left out. Raises FormatError when none is left."""
    own = os.path.realpath(run)
    found = [one for one in load_baselines([folder], reading) if os.path.realpath(one.reference.source.path) != own]
    usable = [one for one in found if one.refused is None]
    if not usable:
        why = "; ".join(f"{one.reference.label}: {one.refused}" for one in found) or "the run itself is alone in it"
        raise FormatError(f"{folder}: no run to compare with ({why})")
    for metric in ("eval/loss", "loss"):
        ends = [_end(one, metric) for one in usable]
        known = [end for end in ends if end is not None]
        if len(known) == len(ends):
            best = usable[ends.index(min(known))]
            return best._replace(notes=(*best.notes, f"the lowest {metric} of {len(usable)} runs in {folder}"))
    raise FormatError(f"{folder}: its runs have neither eval/loss nor loss in common; name a baseline")


def _end(one: Baseline, metric: str) -> float | None:
    """The level at which a metric ended."""

    if not isinstance(one.reference, LogReference) or metric not in one.reference.frame:
        return None
    value = one.reference.frame[metric].finite.value
    return stats.median(value[-max(BEST_RECORDS, int(BEST_SHARE * len(value))) :]) if len(value) else None
