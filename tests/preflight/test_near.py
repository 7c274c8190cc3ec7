"""Signatures estimate how alike two texts are, whatever stands beside them."""

from __future__ import annotations

import random
import re

import numpy as np

from tools.text_faults import sentences
from trainproof.preflight.near import LEAST_BYTES, SHINGLE, MinHash


def windows(text: str) -> set[str]:
    plain = re.sub(r"[^a-z0-9]", "", text.lower())
    return {plain[i : i + SHINGLE] for i in range(len(plain) - SHINGLE + 1)}


def test_equal_bins_estimate_the_share_of_equal_windows() -> None:
    rng, pool, errors = random.Random(4), sentences(), []
    for count in range(1, 60):
        words = " ".join(rng.sample(pool, 6)).split()
        changed = list(words)
        for _ in range(count // 4):
            changed[rng.randrange(len(words))] = rng.choice(pool).split()[0]
        texts = " ".join(words), " ".join(changed)
        first, second = map(windows, texts)
        (one, other), enough = MinHash().signatures([text.encode() for text in texts])
        assert enough.all()
        errors.append(float(np.mean(one == other)) - len(first & second) / len(first | second))
    assert abs(np.mean(errors)) < 0.02
    assert np.std(errors) < 0.06


def test_a_signature_does_not_depend_on_other_texts() -> None:
    texts = [
        "",
        " ",
        "ab",
        *sentences()[:40],
        "...",
        "word " * 30,
        "\u00e9t\u00e9 " * 30,
        "x" * LEAST_BYTES,
        "x" * (LEAST_BYTES - 1),
    ]
    encoded = [text.encode() for text in texts]
    together, enough = MinHash().signatures(encoded)
    alone = [MinHash().signatures([text]) for text in encoded]
    assert np.array_equal(together, np.concatenate([signature for signature, _ in alone]))
    assert enough.tolist() == [bool(told[0]) for _, told in alone]
    assert enough[-5:].tolist() == [False, True, True, True, False]
    assert not together[~enough].any()
