"""State as JSON and tensors: what state_dict() gives is stored without pickle, and comes back as it was.

A tree of None, bool, int, float, str, bytes, list, tuple, set, dict, NumPy arrays and torch tensors becomes JSON in which `$` keys mark
what JSON has no word for, and the raw bytes of each tensor under its dotted name.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from trainproof.errors import InputError


class Raw(NamedTuple):
    """A tensor's dtype, shape and bytes."""

    dtype: str
    shape: tuple[int, ...]
    data: memoryview


def encode(value: Any, name: str, tensors: dict[str, Raw]) -> Any:
    """`value` as JSON; its tensors go into `tensors` under dotted names. Raises InputError for what only pickle could store."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"$f": repr(value)}
    if isinstance(value, Mapping):
        if all(isinstance(key, str) and not key.startswith("$") for key in value):
            return {key: encode(item, f"{name}.{key}", tensors) for key, item in value.items()}
        return {"$d": [[encode(k, name, tensors), encode(v, f"{name}.{k}", tensors)] for k, v in value.items()]}
    if isinstance(value, list):
        return [encode(item, f"{name}.{i}", tensors) for i, item in enumerate(value)]
    if isinstance(value, (tuple, set, frozenset)):
        items = list(value) if isinstance(value, tuple) else sorted(value, key=repr)
        return {
            "$s" if isinstance(value, (set, frozenset)) else "$l": [
                encode(v, f"{name}.{i}", tensors) for i, v in enumerate(items)
            ]
        }
    if isinstance(value, bytes):
        return {"$b": base64.b64encode(value).decode()}
    if isinstance(value, np.generic):
        return encode(value.item(), name, tensors)
    if isinstance(value, np.ndarray) and value.dtype.kind in "fiub":
        tensors[name] = Raw(str(value.dtype), value.shape, np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)
        return {"$n": name}
    if type(value).__module__.startswith("torch") and hasattr(value, "untyped_storage"):
        tensors[name] = raw_of(value)
        return {"$t": name}
    raise InputError(
        f"the state {name} holds a {type(value).__qualname__}, which cannot be stored without pickle; leave it out of state_dict()"
    )


def raw_of(tensor: Any) -> Raw:
    """The dtype, shape and bytes of a torch tensor."""
    from trainproof.record.framework import torch

    flat = tensor.detach().cpu().contiguous().reshape(-1)
    data = flat.view(torch().uint8).numpy().data if flat.numel() else memoryview(b"")
    return Raw(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), data)


def decode(value: Any, tensor: Callable[[str, bool], Any]) -> Any:
    """What `encode` was given. tensor: (name, whether it was a NumPy array) -> the tensor. Raises InputError for other JSON."""
    if isinstance(value, list):
        return [decode(item, tensor) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) != 1 or not next(iter(value)).startswith("$"):
        return {key: decode(item, tensor) for key, item in value.items()}
    ((kind, content),) = value.items()
    try:
        return _decoded(kind, content, tensor)
    except (TypeError, ValueError, KeyError):
        raise InputError(f"a broken state: {kind} holds something else") from None


def _decoded(kind: str, content: Any, tensor: Callable[[str, bool], Any]) -> Any:
    if kind == "$f":
        return float(content)
    if kind == "$d":
        return {decode(k, tensor): decode(v, tensor) for k, v in content}
    if kind == "$l":
        return tuple(decode(item, tensor) for item in content)
    if kind == "$s":
        return {decode(item, tensor) for item in content}
    if kind == "$b":
        return base64.b64decode(content)
    if kind in ("$n", "$t"):
        return tensor(content, kind == "$n")
    raise InputError(f"a broken state: {kind[:20]} is no kind of value")
