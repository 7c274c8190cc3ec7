"""Near duplicates by MinHash, in numpy: no text is kept, only a signature of 112 numbers of 16 bits a record.

Shingles are windows of bytes of the text in lower case with runs of other characters as one space. Their hashes are thrown into 112
bins by one permutation (Li, Owen, Zhang 2012), and empty bins borrow from their right neighbour (Shrivastava, Li 2014). The share
of equal bins estimates the Jaccard similarity with a standard error of at most 0.05.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

#: 14 bands of 8 rows, as DataTrove's default
BANDS, BAND_ROWS = 14, 8
BINS = BANDS * BAND_ROWS
#: bytes of a shingle
SHINGLE = 16
#: fewer shingles say too little
LEAST_BYTES = 80
#: of a longer text only the beginning is compared
MOST_CHARACTERS = 20_000
#: bytes of texts that are hashed at once: their hashes, of 8 bytes, fit into the processor's cache
BLOCK_BYTES = 32_000

_BASE = np.uint64(0x9E3779B97F4A7C15 | 1)
#: letters in lower case, digits and bytes beyond ASCII as they are, all else a space
_PLAIN = bytes(b if b >= 128 or chr(b).isalnum() else 32 for b in bytes(range(256)).lower())
_EMPTY = np.uint32(0xFFFFFFFF)

Signatures = NDArray[np.uint16]


class MinHash:
    """Makes signatures. Its working memory is used again and again, which is several times as fast as to ask for it anew."""

    def __init__(self) -> None:
        self._work = [np.zeros(0, np.uint64)] * 2
        self._low = np.zeros(0, np.uint32)

    def signatures(self, texts: Sequence[str]) -> tuple[Signatures, NDArray[np.bool_]]:
        """(signature of each text, whether the text is long enough for it to say something)."""
        bins = np.full((len(texts), BINS), _EMPTY, np.uint32)
        sizes: list[int] = []
        block: list[bytes] = []
        size = 0
        for i, text in enumerate(texts, 1):
            block.append(text[:MOST_CHARACTERS].encode("utf-8", "replace"))
            size += len(block[-1])
            if size > BLOCK_BYTES or i == len(texts):
                sizes += self._fill(bins[i - len(block) : i], block)
                size, block = 0, []
        enough = np.array(sizes, np.int64) >= LEAST_BYTES
        lacking = (bins == _EMPTY).any(axis=1) & enough
        bins[lacking] = _lent(bins[lacking])
        bins[~enough] = 0
        return bins.astype(np.uint16), enough

    def _fill(self, bins: NDArray[np.uint32], texts: list[bytes]) -> list[int]:
        """Throw the shingles of each text into its row of bins; the bytes of each text in its plain form."""
        raw = np.frombuffer(b" ".join([*texts, b""]).translate(_PLAIN), np.uint8)
        kept = raw != 32
        kept[1:] |= kept[:-1]  # the first space of a run; also the one after each text that has any letter
        starts = np.cumsum([0, *[len(text) + 1 for text in texts[:-1]]])
        sizes = np.add.reduceat(kept, starts, dtype=np.int64).tolist()
        numbers, low = self._hashed(raw[kept])
        at = 0
        for row, size in zip(bins, sizes, strict=True):
            if size > LEAST_BYTES:
                np.minimum.at(row, numbers[at : at + size - SHINGLE], low[at : at + size - SHINGLE])
            at += size
        return [size - 1 for size in sizes]

    def _hashed(self, data: NDArray[np.uint8]) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
        """The bin and the value of each window of SHINGLE bytes: a polynomial, by doubling, mixed as in splitmix64."""
        if len(data) > len(self._low):
            self._work = [np.zeros(len(data), np.uint64), np.zeros(len(data), np.uint64)]
            self._low = np.zeros(len(data), np.uint32)
        hashes, other = (work[: len(data)] for work in self._work)
        np.add(data, np.uint64(1), out=hashes)
        width, power = 1, _BASE
        with np.errstate(over="ignore"):
            while width < SHINGLE:
                longer = np.multiply(hashes[:-width], power, out=other[: max(0, len(hashes) - width)])
                longer += hashes[width:]
                hashes, other = longer, hashes
                width, power = 2 * width, power * power
            other = other[: len(hashes)]
            for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
                hashes ^= np.right_shift(hashes, np.uint64(shift), out=other)
                hashes *= np.uint64(factor)
        low = self._low[: len(hashes)]
        np.copyto(low, hashes, casting="unsafe")
        hashes >>= np.uint64(32)
        hashes *= np.uint64(BINS)
        hashes >>= np.uint64(32)
        return hashes.view(np.int64), low


def _lent(bins: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Empty bins borrow from the next full one to their right, around the end; how far it is goes into the value."""
    for far in range(1, BINS):
        empty = bins == _EMPTY
        if not empty.any():
            break
        lent = np.roll(bins, -1, axis=1)
        take = empty & (lent != _EMPTY)
        bins = np.where(take, (lent * np.uint32(2654435761) + np.uint32(far)) & np.uint32(0x7FFFFFFF), bins)
    return bins


def similar_groups(signature: Signatures, least: float) -> list[tuple[int, int, float]]:
    """(record, the first record that it resembles, similarity) of records whose estimated similarity is at least `least`.

    Records are those of a band that collide; each is compared with the first of its band, so that cost stays linear.
    """
    best: dict[int, tuple[int, float]] = {}
    for band in range(BANDS):
        halves = np.ascontiguousarray(signature[:, band * BAND_ROWS : (band + 1) * BAND_ROWS]).view(np.uint64)
        keys = halves[:, 0] * _BASE ^ halves[:, 1]
        ordered = np.sort(keys)
        shared = ordered[1:][ordered[1:] == ordered[:-1]]
        if not len(shared):
            continue
        at = np.minimum(np.searchsorted(shared, keys), len(shared) - 1)
        chiefs: dict[int, int] = {}
        for i in np.flatnonzero(shared[at] == keys).tolist():
            chief = chiefs.setdefault(int(keys[i]), i)
            if chief != i and (i not in best or best[i][0] > chief):
                alike = float(np.mean(signature[i] == signature[chief]))
                if alike >= least:
                    best[i] = (chief, alike)
    return [(i, chief, alike) for i, (chief, alike) in sorted(best.items())]
