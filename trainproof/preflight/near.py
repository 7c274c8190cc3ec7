"""Near duplicates by MinHash, in numpy: no text is kept, only a signature of 112 numbers of 16 bits a record.

Shingles are windows of bytes of the text in lower case, without ASCII punctuation and white space. Their hashes are thrown into 112 bins by one permutation (Li, Owen, Zhang 2012), and empty bins borrow from their right neighbour (Shrivastava, Li 2014). The share
of equal bins estimates the Jaccard similarity with a standard error of at most 0.05.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

#: 14 bands of 8 rows, as DataTrove's default
BANDS, BAND_ROWS = 14, 8
BINS = BANDS * BAND_ROWS
#: bytes of a shingle: four words of four
SHINGLE = 16
#: of a shorter text, without punctuation and white space, too little is known
LEAST_BYTES = 64
#: of a longer text only the beginning is compared
MOST_BYTES = 20_000

_BASE, _MIX, _SPREAD = np.uint32(0x9E3779B1), np.uint32(0x85EBCA6B), np.uint64(0x9E3779B97F4A7C15)
#: behind each text; no byte of UTF-8
_END = 255
_LOWER = bytes(range(256)).lower()
_DELETED = bytes(b for b in range(128) if not chr(b).isalnum())
_EMPTY = np.uint32(0xFFFFFFFF)

Signatures = NDArray[np.uint16]
Numbers = NDArray[np.uint32]


class MinHash:
    """Makes signatures. Its working memory is used again and again, which is several times as fast as to ask for it anew."""

    def __init__(self) -> None:
        self._work = [np.zeros(0, np.uint32)] * 2

    def signatures(self, texts: Sequence[bytes]) -> tuple[Signatures, NDArray[np.bool_]]:
        """(signature of each text in UTF-8, whether the text is long enough for it to say something)."""
        data, sizes = _plain([text[:MOST_BYTES] for text in texts])
        enough = sizes >= LEAST_BYTES
        bins = np.full((len(texts) + 1, BINS), _EMPTY, np.uint32)  # windows that are of no text go into the last row
        if enough.any():
            hashes, numbers = self._hashed(data)
            at = _rows(sizes, enough)
            at += numbers
            np.minimum.at(bins.reshape(-1), at, hashes)
        bins = bins[:-1]
        bins[~enough] = 0
        _lend(bins.reshape(-1))
        return bins.astype(np.uint16), enough

    def _hashed(self, data: NDArray[np.uint8]) -> tuple[Numbers, Numbers]:
        """The hash of each window of SHINGLE bytes, a polynomial of its four words, mixed; and which of as many ranges it falls into."""
        if len(data) > len(self._work[0]):
            self._work = [np.zeros(len(data), np.uint32) for _ in range(2)]
        words, pairs = self._work[0][: len(data) - 3], self._work[1][: len(data) - 7]
        words[:] = np.ndarray(words.shape, "<u4", data, strides=(1,))  # those that begin at each byte
        np.multiply(words[:-4], _BASE, out=pairs)
        pairs += words[4:]
        hashes, other = words[:-12], pairs[:-8]
        np.multiply(other, _MIX, out=hashes)
        hashes += pairs[8:]
        hashes ^= np.right_shift(hashes, np.uint32(16), out=other)
        hashes *= _MIX
        np.right_shift(hashes, np.uint32(16), out=other)
        other *= np.uint32(BINS)
        other >>= np.uint32(16)
        return hashes, other


def _plain(texts: list[bytes]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """(the plain form of all texts, an end behind each; how many bytes of it each text has without that)."""
    end = bytes((_END,))
    data = np.frombuffer(end.join((*texts, b"")).translate(_LOWER, _DELETED), np.uint8)
    return data, np.diff(np.flatnonzero(data == _END), prepend=-1) - 1


def _rows(sizes: NDArray[np.int64], enough: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Where the bins of each window's text begin; for windows over an end and of short texts, after all texts."""
    rows = np.full((len(sizes), 2), len(sizes), np.int64)
    rows[enough, 0] = np.flatnonzero(enough)
    windows = np.maximum(sizes - (SHINGLE - 1), 0)
    return np.repeat(rows.ravel() * BINS, np.stack([windows, sizes + 1 - windows], axis=1).ravel())[: 1 - SHINGLE]


def _lend(bins: Numbers) -> None:
    """Empty bins borrow from the next full one to their right in their text, around the end; how far it is goes into the value."""
    empty = np.flatnonzero(bins == _EMPTY)
    lender, distance, waiting = empty.copy(), np.zeros(len(empty), np.uint32), np.arange(len(empty))
    while len(waiting):
        first = empty[waiting] // BINS * BINS
        lender[waiting] = first + (lender[waiting] + 1) % BINS
        distance[waiting] += np.uint32(1)
        waiting = waiting[bins[lender[waiting]] == _EMPTY]
    bins[empty] = (bins[lender] * np.uint32(2654435761) + distance) & np.uint32(0x7FFFFFFF)


def similar_groups(signatures: Signatures, wanted: NDArray[np.int64], least: float) -> list[tuple[int, int, float]]:
    """(record, the first record that it resembles, similarity) of records whose estimated similarity is at least `least`.

    Records are those of a band that collide; each is compared with the first of its band, so that cost stays linear.
    """
    best: dict[int, tuple[int, float]] = {}
    for band in range(BANDS):
        keys = _keys(signatures, band)[wanted]
        ordered = np.sort(keys)
        shared = ordered[1:][ordered[1:] == ordered[:-1]]
        if not len(shared):
            continue
        chiefs: dict[int, int] = {}
        maybe = np.zeros(1 << 16, bool)  # by their last 16 bits: few of the keys are looked up
        maybe[shared.astype(np.uint16)] = True
        candidates = np.flatnonzero(maybe[keys.astype(np.uint16)])
        again = shared[np.searchsorted(shared[:-1], keys[candidates])] == keys[candidates]
        for i in candidates[again].tolist():
            chief = chiefs.setdefault(int(keys[i]), i)
            if chief != i and (i not in best or best[i][0] > chief):
                alike = float(np.mean(signatures[wanted[i]] == signatures[wanted[chief]]))
                if alike >= least:
                    best[i] = (chief, alike)
    return [(i, chief, alike) for i, (chief, alike) in sorted(best.items())]


def _keys(signatures: Signatures, band: int) -> NDArray[np.uint64]:
    """A number for the rows of a band of each signature."""
    halves = np.ascontiguousarray(signatures[:, band * BAND_ROWS : (band + 1) * BAND_ROWS]).view(np.uint64)
    keys: NDArray[np.uint64] = halves[:, 0] * _SPREAD ^ halves[:, 1]
    return keys
