"""What a speech trainer counts of a clip: its seconds and the tokens of its text. Collected only for --trainer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainproof.preflight.tokens import read_tokenizer, spelled

_COLUMNS = ("place", "characters", "tokens", "repeats", "unknown", "seconds", "declared")


class Labels:
    """The clips of one piece. Tokens are characters in lower case where there is no tokenizer."""

    def __init__(self, tokenizer: str | None) -> None:
        self._tokenizer = read_tokenizer(tokenizer) if tokenizer else None
        self._rows: list[tuple[float, ...]] = []

    def add(self, place: int, text: str, seconds: float, declared: float | None) -> None:
        """A clip: its text, its seconds as measured, and as its manifest declares them."""
        text = spelled(text.strip())
        ids: Sequence[Any] = self._tokenizer.encode(text) if self._tokenizer else text.lower()
        repeats = sum(a == b for a, b in zip(ids, ids[1:], strict=False))
        unknown = 0 if self._tokenizer is None else list(ids).count(self._tokenizer.unknown)
        told = seconds if declared is None else declared
        self._rows.append((place, len(text), len(ids), repeats, unknown, seconds, told))

    def table(self) -> dict[str, NDArray[Any]]:
        """The columns; empty without clips."""
        if not self._rows:
            return {}
        columns = dict(zip(_COLUMNS, np.array(self._rows).T, strict=True))
        return columns | {"place": np.array([row[0] for row in self._rows], np.int64)}
