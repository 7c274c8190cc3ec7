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
MOST_BYTES = 20_000
#: bytes of texts that are hashed at once: small enough for the processor's cache
BLOCK_BYTES = 250_000

_BASE = np.uint64(0x9E3779B97F4A7C15 | 1)
#: letters in lower case, digits and bytes beyond ASCII as they are, all else a space
_PLAIN = bytes(b if b >= 128 or chr(b).isalnum() else 32 for b in bytes(range(256)).lower())
_EMPTY = np.uint32(0xFFFFFFFF)

Signatures = NDArray[np.uint16]


def signatures(texts: Sequence[str]) -> tuple[Signatures, NDArray[np.bool_]]:
    """(signature of each text, whether the text is long enough for it to say something)."""
    cleaned = [b" ".join(text[:MOST_BYTES].encode("utf-8", "replace").translate(_PLAIN).split()) for text in texts]
    enough = np.array([len(text) >= LEAST_BYTES for text in cleaned], bool)
    result = np.zeros((len(texts), BINS), np.uint16)
    block: list[int] = []
    size = 0
    for i in np.flatnonzero(enough).tolist():
        block.append(i)
        size += len(cleaned[i])
        if size > BLOCK_BYTES:
            result[block] = _block([cleaned[j] for j in block])
            block, size = [], 0
    if block:
        result[block] = _block([cleaned[j] for j in block])
    return result, enough


def _block(texts: list[bytes]) -> Signatures:
    data = np.frombuffer(b"".join(texts), np.uint8).astype(np.uint64)
    owner = np.repeat(np.arange(len(texts)), [len(text) for text in texts])
    inside = owner[: 1 - SHINGLE] == owner[SHINGLE - 1 :]
    hashes, owner = _rolled(data)[inside], owner[: 1 - SHINGLE][inside]
    bins = np.full(len(texts) * BINS, _EMPTY, np.uint32)
    at = owner * BINS + (((hashes >> np.uint64(32)) * np.uint64(BINS)) >> np.uint64(32)).astype(np.int64)
    np.minimum.at(bins, at, hashes.astype(np.uint32))
    return _filled(bins.reshape(len(texts), BINS)).astype(np.uint16)


def _rolled(data: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A well-mixed hash of each window of SHINGLE bytes (polynomial, by doubling; mixed as in splitmix64)."""
    with np.errstate(over="ignore"):
        hashes, width, power = data + np.uint64(1), 1, _BASE
        while width < SHINGLE:
            hashes = hashes[:-width] * power + hashes[width:]
            width, power = 2 * width, power * power
        hashes ^= hashes >> np.uint64(30)
        hashes *= np.uint64(0xBF58476D1CE4E5B9)
        hashes ^= hashes >> np.uint64(27)
        hashes *= np.uint64(0x94D049BB133111EB)
        hashes ^= hashes >> np.uint64(31)
    return hashes


def _filled(bins: NDArray[np.uint32]) -> NDArray[np.uint32]:
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
        _, first, inverse, counts = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
        for i in np.flatnonzero(counts[inverse] > 1):
            chief = int(first[inverse[i]])
            if chief != i and (int(i) not in best or best[int(i)][0] > chief):
                alike = float(np.mean(signature[i] == signature[chief]))
                if alike >= least:
                    best[int(i)] = (chief, alike)
    return [(i, chief, alike) for i, (chief, alike) in sorted(best.items())]
