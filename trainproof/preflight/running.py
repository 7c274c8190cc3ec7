"""Work through a plan: in this process, in several, or a share of it; a worker that dies costs one record, never the run."""

from __future__ import annotations

import os
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice

from trainproof.errors import InputError
from trainproof.preflight.clips import clips_of
from trainproof.preflight.found import MOST_EXAMPLES, Partial, merged, place_of
from trainproof.preflight.inputs import Plan, without_pieces
from trainproof.preflight.notes import Notes
from trainproof.preflight.rows import Piece, rows_of

#: pieces a process that are handed out before the first is back: what is found in them waits in memory
AHEAD = 3
#: libraries whose threads may hold a lock that a copy of the process would wait for
_THREADED = ("pyarrow", "tokenizers", "torch", "ray", "fsspec")

Seen = Callable[[], None]
#: (plan, pieces, workers, what is called after each piece) -> the partials of the pieces, in their order
Runner = Callable[[Plan, Sequence[Piece], int, Seen], Iterator[Partial]]


def partial_of(plan: Plan, piece: Piece) -> Partial:
    """What is in one piece; a file that cannot be read to its end is told as such."""
    if plan.kind == "speech":
        from trainproof.preflight.speechdata import SpeechCollector

        clips = clips_of(plan.files[piece.file].path, plan.formats[piece.file])[piece.start : piece.stop]
        return SpeechCollector(plan.options).collect(piece.file, clips)
    from trainproof.preflight.textdata import TextCollector
    from trainproof.preflight.tokens import counter_of
    from trainproof.preflight.turns import conversation_type

    file = plan.files[piece.file].path
    collector = TextCollector(plan.kind, plan.layout, plan.options, counter_of(plan.options.tokenizer))
    try:
        rows = rows_of(file, plan.formats[piece.file], piece, lambda record: conversation_type(record, plan.layout))
        return collector.collect(piece.file, rows)
    except (InputError, OSError) as error:
        collector.out.hit("TPD001", place_of(piece.file, 0), str(error).removeprefix(f"{file}: "))
        return collector.out


def run_pieces(plan: Plan, pieces: Sequence[Piece], workers: int, seen: Seen = lambda: None) -> Iterator[Partial]:
    """The partial of each piece, in their order."""
    if (workers < 2 or len(pieces) < 2) and not plan.guarded:
        for piece in pieces:
            yield partial_of(plan, piece)
            seen()
        return
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool
    from multiprocessing import get_context

    left, small = deque(pieces), without_pieces(plan)
    while left:
        how = get_context("fork" if _may_fork() else "spawn")
        with ProcessPoolExecutor(min(workers, len(left)), how) as pool, suppress(BrokenProcessPool):
            ahead = iter(list(left))
            with warnings.catch_warnings(
                action="ignore", category=DeprecationWarning
            ):  # of threads of BLAS, which wait
                waiting = deque(pool.submit(partial_of, small, piece) for piece in islice(ahead, AHEAD * workers))
            while waiting:
                yield waiting.popleft().result()
                left.popleft()
                seen()
                waiting += [pool.submit(partial_of, small, piece) for piece in islice(ahead, 1)]
        if left:  # a worker died: the piece that is next is done with care
            yield guarded(plan, left.popleft())
            seen()


def _may_fork() -> bool:
    """Whether a copy of this process is safe: no other thread of ours, and no library that starts some. A copy has nothing to load."""
    return sys.platform == "linux" and threading.active_count() == 1 and sys.modules.keys().isdisjoint(_THREADED)


def guarded(plan: Plan, piece: Piece) -> Partial:
    """The partial of a piece in a process of its own; if that dies, a finding."""
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool
    from multiprocessing import get_context

    try:
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            return pool.submit(partial_of, plan, piece).result()
    except BrokenProcessPool:
        if plan.kind == "speech" and piece.stop - piece.start > 1:
            middle = (piece.start + piece.stop) // 2
            halves = (piece._replace(stop=middle), piece._replace(start=middle))
            return merged([guarded(plan, half) for half in halves], plan.options.keep)
        lost = Partial(plan.options.keep)
        row, what = piece.first, ""
        if plan.kind == "speech":
            clip = clips_of(plan.files[piece.file].path, plan.formats[piece.file])[piece.start]
            row, what = clip.row, f"{clip.audio}: "
        lost.rows = 1
        lost.hit("TPD009", place_of(piece.file, row), f"{what}the process that read it died")
        return lost


def whole_of(plan: Plan, parts: Iterable[Partial]) -> Partial:
    """All parts and the files that could not be opened, as one."""
    unread = Partial(plan.options.keep)
    for file, why in plan.problems:
        unread.hit("TPD001", place_of(file, 0), why.removeprefix(f"{plan.files[file].path}: "))
    for row, name in enumerate(plan.unreferenced, 1):
        unread.hit("TPD242", place_of(len(plan.files) - 1, row), name)
    names_all = plan.options.keep > MOST_EXAMPLES
    return merged(chain((unread,), parts), plan.options.keep, Notes() if names_all else None)


def usual_workers() -> int:
    """As many processes as this one may use processors."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
