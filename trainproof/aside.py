"""Work for a second process while this one does its own: worth it for large logs on a machine with a second processor."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")
#: bytes from which on a second process is worth starting
LARGE = 32 * 1024 * 1024
#: the functions that second processes work out now: with a processor for each of two, a third would only be in the way
_at_work: list[Callable[..., object]] = []


def worth_a_process(size: int) -> bool:
    """Whether `size` bytes are worth a second process, and this is a Linux machine with a processor for it."""
    if size < LARGE or not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2:
        return False
    from multiprocessing import parent_process

    return parent_process() is None and not _at_work  # else this is such a process itself, or has one


@contextmanager
def aside(function: Callable[..., T], *args: object) -> Iterator[Future[T]]:
    """The promised result of function(*args), worked out by a fork of this process meanwhile."""
    import warnings
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    _at_work.append(function)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # numpy's idle threads do not mind a fork
            with ProcessPoolExecutor(1, mp_context=get_context("fork")) as pool:
                yield pool.submit(function, *args)
    finally:
        _at_work.remove(function)


def size_of(path: str) -> int:
    """The bytes of a regular file; 0 for everything else."""
    try:
        return Path(path).stat().st_size if Path(path).is_file() else 0
    except (OSError, ValueError):
        return 0
