"""How far the judging of many logs has come, as a bar on a terminal's standard error; nowhere else."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from trainproof.readers.discover import files_named
from trainproof.readers.values import clean_name

#: so many files are judged before anyone would look for a bar
FEW = 20


@contextmanager
def progress_over(paths: Sequence[str]) -> Iterator[Callable[[str], None] | None]:
    """Gives what is to be called with the path of each log that was judged; None where nobody would see it."""
    files = files_named(paths) if sys.stderr is not None and sys.stderr.isatty() else []
    if len(files) <= FEW:
        yield None
        return
    import click

    place = {clean_name(path): i for i, path in enumerate(files, 1)}
    with click.progressbar(length=len(files), label="judging", file=sys.stderr) as bar:

        def seen(path: str) -> None:
            bar.update(max(0, place.get(path, 0) - bar.pos))

        yield seen
        bar.update(len(files) - bar.pos)
