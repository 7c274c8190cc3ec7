"""Train on without the batches that a plan leaves out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from trainproof.errors import InputError


class SkippingDataLoader:
    """A loader without some of its batches. skip: their numbers, counted from the first batch of the first epoch on, or the file of a
    replay plan. start: the number of the first batch that this loader will give (after a resume)."""

    def __init__(self, loader: Iterable[Any], skip: Iterable[int] | str | Path, *, start: int = 0) -> None:
        self.loader = loader
        self.skip = frozenset(_planned(skip) if isinstance(skip, (str, Path)) else skip)
        self.cursor = start

    def __iter__(self) -> Iterator[Any]:
        """One epoch; the next one goes on counting."""
        for batch in self.loader:
            self.cursor += 1
            if self.cursor - 1 not in self.skip:
                yield batch


def _planned(path: str | Path) -> list[int]:
    try:
        document = json.loads(Path(path).read_bytes())
        return [int(cursor) for cursor in document["skip"]]
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(f"{path}: no replay plan; make one with `trainproof replay RUN --plan FILE`") from None
