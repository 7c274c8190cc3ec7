"""Judging logs one after another, in the order of the inputs; many of them by as many processes as there are processors."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import NamedTuple

from trainproof import stats
from trainproof.errors import TrainproofError
from trainproof.facts import Facts
from trainproof.judge import Settings, judge_run, unjudged_run
from trainproof.readers.base import reader_for
from trainproof.readers.discover import Found, found_logs, problem_log, read_found
from trainproof.readers.outputs import OneRun
from trainproof.readers.source import LogInput
from trainproof.verdict import RunReport

#: logs from which on more processes are worth their start; logs that one of them is given at a time, and how many times in advance
MANY, BATCH, AHEAD = 64, 16, 4


class JudgedLog(NamedTuple):
    """The reports on the runs of one log, and its problem when it could not be read; `named` is the input that led to it."""

    named: str
    path: str
    runs: list[RunReport]
    problem: TrainproofError | None


class Asked(NamedTuple):
    """How logs are to be read and judged."""

    settings: Settings
    format_name: str | None = None
    mapping: Mapping[str, str] | None = None
    facts: Facts | None = None


class _Place(NamedTuple):
    """A log for another process to read: what `Found` holds, by names. Logs of one `together` go to one process."""

    named: str
    path: str = ""
    files: tuple[str, ...] = ()
    reader: str = ""
    together: OneRun | None = None
    problem: TrainproofError | None = None


def processes() -> int:
    """How many processes may judge: one where the system has no fork that is safe."""
    return stats.processors() if hasattr(os, "sched_getaffinity") else 1


def judged_logs(paths: Sequence[str], asked: Asked, most: int = 1) -> Iterator[JudgedLog]:
    """Each log that the inputs hold, judged, in their order, by at most so many processes. Raises UsageError for an unknown format."""
    found = found_logs(paths, asked.format_name)
    first = list(islice(found, MANY)) if most > 1 and "-" not in paths else []
    found = chain(first, found)
    if len(first) == MANY:
        yield from _by_processes(found, asked, most)
    else:
        for named, log in found:
            yield from _judged(named, log, asked)


def _judged(named: str, found: Found | TrainproofError, asked: Asked) -> Iterator[JudgedLog]:
    """One log, judged; nothing where it is of a run that another log had already."""
    log = (
        problem_log(named, found)
        if isinstance(found, TrainproofError)
        else read_found(named, found, asked.mapping, asked.facts)
    )
    if log is None:
        return
    runs = [judge_run(frame, asked.settings) for frame in log.frames]
    if log.problem is not None:
        runs = [unjudged_run(log.path, str(log.problem))]
    yield JudgedLog(log.named, log.path, runs, log.problem)


def _by_processes(
    found: Iterable[tuple[str, Found | TrainproofError]], asked: Asked, count: int
) -> Iterator[JudgedLog]:
    import warnings
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool
    from multiprocessing import get_context

    with warnings.catch_warnings(), ProcessPoolExecutor(count, get_context("fork"), _without_interrupts) as pool:
        warnings.simplefilter("ignore", DeprecationWarning)  # numpy's idle threads do not mind a fork
        work = (pool.submit(_judged_batch, batch, asked) for batch in _batches(found))
        waiting = deque(islice(work, AHEAD * count))
        try:
            while waiting:
                yield from waiting.popleft().result()
                waiting.extend(islice(work, 1))
        except BrokenProcessPool:
            raise TrainproofError(
                "a process that judged logs was ended from outside; was there enough memory?"
            ) from None
        finally:
            pool.shutdown(cancel_futures=True)  # what is not begun need not be done


def _without_interrupts() -> None:
    """Ctrl-C is the business of the process that was started; the others end with it."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _batches(found: Iterable[tuple[str, Found | TrainproofError]]) -> Iterator[list[_Place]]:
    """Logs in small groups, none of which ends between two that may be one run."""
    batch: list[_Place] = []
    for named, log in found:
        place = _placed(named, log)
        if len(batch) >= BATCH and (place.together is None or place.together is not batch[-1].together):
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch


def _placed(named: str, log: Found | TrainproofError) -> _Place:
    if isinstance(log, TrainproofError):
        return _Place(named, problem=log)
    return _Place(named, log.path, tuple(file.path for file in log.files), log.reader.name, log.together)


def _judged_batch(batch: Sequence[_Place], asked: Asked) -> list[JudgedLog]:
    done: list[JudgedLog] = []
    for one in batch:
        found = one.problem or Found(one.path, tuple(map(LogInput, one.files)), reader_for(one.reader), one.together)
        done += _judged(one.named, found, asked)
    return done
