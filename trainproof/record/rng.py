"""The states of the random generators that a step may draw from: torch (every device), numpy, Python."""

from __future__ import annotations

import hashlib
import random
from typing import Any

import numpy as np

from trainproof.record.framework import torch


def capture_rng() -> dict[str, Any]:
    """The states of all global generators."""
    state = {"torch": torch().get_rng_state(), "numpy": np.random.get_state(), "python": random.getstate()}
    if torch().cuda.is_available():
        state["cuda"] = torch().cuda.get_rng_state_all()
    return state


def restore_rng(state: dict[str, Any], without: frozenset[str] = frozenset()) -> None:
    """Set the generators, but for those named in `without`. Raises TypeError for what is no such state."""
    if not isinstance(state, dict):
        raise TypeError("the states of the generators are no dictionary")
    if "torch" in state and "torch" not in without:
        torch().set_rng_state(state["torch"].to(torch().uint8))
    if "numpy" in state and "numpy" not in without:
        np.random.set_state(tuple(state["numpy"]))
    if "python" in state and "python" not in without:
        version, numbers, gauss = state["python"]
        random.setstate((version, tuple(numbers), gauss))
    if "cuda" in state and "torch" not in without:
        torch().cuda.set_rng_state_all(state["cuda"])


def rng_digests() -> dict[str, str]:
    """A digest of each generator's state."""
    kind, keys, *rest = np.random.get_state()
    numpy = np.asarray(keys).tobytes() + repr((kind, *rest)).encode()
    python = repr(random.getstate()).encode()
    found = {"torch": torch().get_rng_state().numpy().tobytes(), "numpy": numpy, "python": python}
    return {name: hashlib.blake2b(data, digest_size=8).hexdigest() for name, data in found.items()}


def seed_all(*key: int) -> None:
    """Seed every generator from a key: (run's seed, step, micro-batch) makes the randomness of a step its own."""
    seed = int.from_bytes(hashlib.blake2b(repr(key).encode(), digest_size=4).digest(), "little")
    torch().manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)
