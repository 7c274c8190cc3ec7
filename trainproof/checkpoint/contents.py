"""What a checkpoint holds, whatever wrote it: tensors by name, and the plain data around them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, NamedTuple

#: dtype -> bytes an element
ITEM_BYTES = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1,
    "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint64": 8, "uint32": 4, "uint16": 2, "uint8": 1, "bool": 1,
    "complex64": 8, "complex128": 16,
}  # fmt: skip
#: deepest nesting of data that is followed
DEEPEST = 64


class Tensor(NamedTuple):
    """A tensor that lies in a file: its dtype, its shape, its strides in elements (None: row by row), and its first byte's place."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    path: str
    offset: int
    strides: tuple[int, ...] | None = None
    role: str = "model"

    @property
    def elements(self) -> int:
        """How many numbers it holds."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of its elements."""
        return self.elements * ITEM_BYTES[self.dtype]

    @property
    def dense(self) -> bool:
        """Whether its elements fill one stretch of the file, in whatever order."""
        if self.strides is None:
            return True
        expected = 1
        for stride, size in sorted((s, n) for s, n in zip(self.strides, self.shape, strict=True) if n != 1):
            if stride != expected:
                return False
            expected *= size
        return True


class Checked(NamedTuple):
    """Bytes of a file whose CRC-32 the archive tells: name, file, offset, size, CRC-32."""

    name: str
    path: str
    offset: int
    size: int
    crc: int


class Checkpoint(NamedTuple):
    """One checkpoint. `state` is the plain data beside the tensors, by part: optimizer, scheduler, scaler, rng, sampler, trainer.

    `step` is the optimizer step it says it was written at. `expected` names the parts that its writer always writes. `problems` says
    what of it is not there.
    """

    path: str
    format: str
    tensors: tuple[Tensor, ...]
    state: dict[str, Any]
    step: int | None = None
    checked: tuple[Checked, ...] = ()
    unbuilt: tuple[str, ...] = ()
    expected: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    def of(self, role: str) -> list[Tensor]:
        """The tensors of one part."""
        return [tensor for tensor in self.tensors if tensor.role == role]


#: part of a checkpoint -> what its key is called, in a dictionary that a training loop saved
_ROLES = (
    ("optimizer", re.compile(r"optim(izer)?s?(_states?)?(_dict)?|opt(_state)?")),
    ("scheduler", re.compile(r"(lr_)?sched(uler)?s?(_states?)?(_dict)?")),
    ("scaler", re.compile(r"(grad_|loss_|amp_)?scaler(_state)?(_dict)?|amp|native_amp_state|MixedPrecision\w*")),
    ("rng", re.compile(r"\w*(rng|random)_?(states?|dict)?\w*|numpy|python|cuda|cpu")),
    ("sampler", re.compile(r"\w*(sampler|dataloader|data_state|loops|cursor|iterator)\w*")),
    ("ema", re.compile(r"\w*ema\w*|averaged?_model\w*")),
    (
        "model",
        re.compile(
            r"(\w*_)?(model|module|state|net|weights|params?|network|generator|discriminator)(_?state)?(_?dict)?|state_dict"
        ),
    ),
)
STEP_KEYS = (
    "global_step",
    "step",
    "steps",
    "iteration",
    "iter",
    "iter_num",
    "num_updates",
    "global_steps",
    "current_step",
)


def role_of(key: str) -> str | None:
    """The part of a checkpoint that a key at its top names; None for one that names none."""
    for role, pattern in _ROLES:
        if pattern.fullmatch(key):
            return role
    return None


def walk(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted name, leaf) of nested dictionaries and lists, each container once; what lies deeper than DEEPEST is left out."""
    seen: set[int] = set()
    waiting: list[tuple[str, Any, int]] = [(name, value, 0)]
    while waiting:
        at, item, depth = waiting.pop()
        children = _children(item)
        if children is None:
            yield at, item
        elif id(item) not in seen and depth < DEEPEST:
            seen.add(id(item))
            waiting += [
                (f"{at}.{spelled(key)}" if at else spelled(key), child, depth + 1)
                for key, child in reversed(list(children))
            ]


def spelled(key: Any) -> str:
    """A key as a part of a name: one that is no text or number, or has no end, is shortened."""
    return str(key)[:200] if isinstance(key, (str, int, float, tuple)) else "?"


def _children(item: Any) -> Iterable[tuple[Any, Any]] | None:
    """What a container holds, not looked through yet: the same may be met often. None for a leaf."""
    if isinstance(item, dict):
        return item.items()
    if isinstance(item, list) or (isinstance(item, tuple) and not hasattr(item, "_fields")):
        return enumerate(item)
    state = getattr(item, "state", None)
    if isinstance(state, dict):
        return chain(state.items(), item.items.items())
    return None


def step_of(state: Any) -> int | None:
    """The step that a dictionary says it is of."""
    if not isinstance(state, dict):
        return None
    for key in STEP_KEYS:
        value = state.get(key)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 2**62:
            return int(value)
    return None
