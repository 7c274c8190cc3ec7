"""Texts of records that are looked at together, and the numbers that are kept of each record: where it is, hashes, lengths, script."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64_digest

from trainproof.preflight.characters import SCRIPT_NUMBERS, scripts_of
from trainproof.preflight.near import MinHash

#: odd, so that no bit of a hash is lost
_ORDER = np.uint64(0x9E3779B97F4A7C15)

Numbers = NDArray[Any]


class Texts:
    """Records as columns. Their turns stand one after the other: a record has `counts` of them, the first `asked` of which are its prompt.
    `answers` are what the assistant says last, or nothing."""

    def __init__(self) -> None:
        self.places: list[int] = []
        self.turns: list[str] = []
        self.counts: list[int] = []
        self.asked: list[int] = []
        self.answers: list[str] = []

    def add(
        self, places: Sequence[int], turns: list[str], counts: list[int], asked: list[int], answers: list[str]
    ) -> None:
        """More records."""
        self.places += places
        self.turns += turns
        self.counts += counts
        self.asked += asked
        self.answers += answers

    def bounds(self) -> list[int]:
        """Where the turns of each record begin, and where the last one's end."""
        return [0, *accumulate(self.counts)]

    def whole(self) -> Iterator[str]:
        """The text of each record."""
        return ("\n".join(self.turns[start:stop]) for start, stop in pairwise(self.bounds()))

    def prompts(self) -> Iterator[str]:
        """The prompt of each record."""
        return ("\n".join(self.turns[start : start + n]) for start, n in zip(self.bounds(), self.asked, strict=False))

    def encoded(self) -> list[bytes]:
        """The turns as UTF-8."""
        try:
            return list(map(str.encode, self.turns))
        except UnicodeEncodeError:  # half a surrogate pair
            return [turn.encode("utf-8", "surrogatepass") for turn in self.turns]


class Kept:
    """The numbers of many records. cut: how many tokens a text is, where that is asked for."""

    def __init__(self, cut: Callable[[str], int] | None, near: bool) -> None:
        self._cut, self._minhash = cut, MinHash() if near else None
        self._clear()

    def _clear(self) -> None:
        self._lists: tuple[list[int], list[int], list[int]] = ([], [], [])
        self._digests: list[bytes] = []
        self._columns: dict[str, list[Numbers]] = {}

    def __len__(self) -> int:
        return len(self._lists[0])

    def add(self, texts: Texts, encoded: list[bytes]) -> None:
        """Records with their turns as UTF-8."""
        for kept, more in zip(self._lists, (texts.places, texts.counts, texts.asked), strict=True):
            kept += more
        self._digests.append(b"".join(map(xxh3_64_digest, encoded)))
        self._column("turns", _each(len, texts.turns))
        self._column("answer", _each(len, texts.answers))
        self._column("script", _scripts(texts))
        if self._cut is not None:
            self._column("tokens", _each(self._cut, list(texts.whole())))
            self._column("before", _each(self._cut, list(texts.prompts())))
        if self._minhash is not None:
            rows = [b"\n".join(encoded[start:stop]) for start, stop in pairwise(texts.bounds())]
            signature, enough = self._minhash.signatures(rows)
            self._column("signature", signature[enough])
            self._column("enough", enough)

    def tables(self) -> dict[str, dict[str, Numbers]]:
        """The tables of all that was added, which is forgotten."""
        places, counts, asked = (np.array(numbers, np.int64) for numbers in self._lists)
        columns = {name: np.concatenate(pieces) for name, pieces in self._columns.items()}
        ends = np.cumsum(counts)
        begins = ends - counts
        text, prompt = _hashes(np.frombuffer(b"".join(self._digests), np.uint64), begins, ends, begins + asked)
        lengths = np.concatenate([[0], np.cumsum(columns.pop("turns"))])
        nothing = np.zeros(len(places), np.int32)
        samples = {
            "place": places, "text": text, "prompt": prompt, "length": (lengths[ends] - lengths[begins] + counts - 1).astype(np.int32),
            "answer": columns["answer"], "tokens": columns.get("tokens", nothing), "before": columns.get("before", nothing),
            "script": columns["script"],
        }  # fmt: skip
        tables = {"samples": samples}
        if self._minhash is not None:
            enough = columns["enough"]
            tables["near"] = {"place": places[enough], "text": text[enough], "signature": columns["signature"]}
        self._clear()
        return tables

    def _column(self, name: str, values: Numbers) -> None:
        self._columns.setdefault(name, []).append(values)


def _each(measure: Callable[[str], int], texts: Sequence[str]) -> NDArray[np.int32]:
    return np.fromiter(map(measure, texts), np.int32, len(texts))


def _scripts(texts: Texts) -> NDArray[np.uint8]:
    """The number of the script of each record."""
    turns, bounds = texts.turns, texts.bounds()
    scripts = np.full(len(texts.places), SCRIPT_NUMBERS["Latin"], np.uint8)
    odd = {i for i, start in enumerate(bounds[:-1]) if not turns[start][:1].isalpha()}
    if not all(map(str.isascii, turns)):
        odd.update(bisect(bounds, turn) - 1 for turn, text in enumerate(turns) if not text.isascii())
    if odd:
        rows = sorted(odd)
        scripts[rows] = scripts_of(["\n".join(turns[bounds[i] : bounds[i + 1]]) for i in rows])
    return scripts


def _hashes(turns: NDArray[np.uint64], begins: Numbers, ends: Numbers, asked: Numbers) -> tuple[Numbers, Numbers]:
    """(64 bits of each record, 64 bits of its prompt) from those of their turns: a polynomial of them, so that their order counts."""
    counts = ends - begins
    powers = np.full(counts.max(initial=1), _ORDER)
    powers[0] = 1
    powers = np.multiply.accumulate(powers)
    order = np.arange(len(turns)) - np.repeat(begins, counts)
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(turns * powers[order])])
    return sums[ends] - sums[begins], sums[asked] - sums[begins]
