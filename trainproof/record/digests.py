"""Digests of state: which tensor of which channel is not the same, bit for bit."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trainproof.record.codec import raw_of
from trainproof.record.framework import torch


def digest(value: Any) -> str:
    """64 bits of BLAKE2b over a tree of plain values, arrays and tensors."""
    state = hashlib.blake2b(digest_size=8)
    _feed(state, value)
    return state.hexdigest()


def digests(value: Any, name: str = "") -> dict[str, str]:
    """A digest for each tensor and each other leaf of nested dictionaries and lists, under its dotted name."""
    if isinstance(value, Mapping) and value:
        children: Any = value.items()
    elif isinstance(value, (list, tuple)) and value and any(isinstance(item, (Mapping, list)) for item in value):
        children = enumerate(value)
    else:
        return {name: digest(value)}
    found: dict[str, str] = {}
    for key, item in children:
        found |= digests(item, f"{name}.{key}" if name else str(key))
    return found


def _feed(state: Any, value: Any) -> None:
    if isinstance(value, Mapping):
        for key, item in value.items():
            state.update(repr(key).encode())
            _feed(state, item)
    elif isinstance(value, (list, tuple)):
        state.update(f"{len(value)}[".encode())
        for item in value:
            _feed(state, item)
    elif isinstance(value, np.ndarray):
        state.update(f"{value.dtype}{value.shape}".encode() + np.ascontiguousarray(value).tobytes())
    elif hasattr(value, "untyped_storage"):
        raw = raw_of(value)
        state.update(f"{raw.dtype}{raw.shape}".encode())
        state.update(raw.data)
    else:
        state.update(repr(value).encode())


def quick_hashes(tensors: Sequence[Any]) -> bytes:
    """64 bits a tensor, fast enough for every step: the exclusive or of its elements (torch.hash_tensor), else BLAKE2b."""
    hash_tensor = getattr(torch(), "hash_tensor", None)
    if hash_tensor is None:
        return b"".join(hashlib.blake2b(raw_of(tensor).data, digest_size=8).digest() for tensor in tensors)
    with torch().no_grad():
        return bytes(
            torch().stack([hash_tensor(tensor) for tensor in tensors]).view(torch().int64).cpu().numpy().tobytes()
        )
