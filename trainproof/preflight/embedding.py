"""The rows of a model's embedding, from the safetensors files beside its tokenizer: how large each is, and which are equal."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainproof.checkpoint.contents import Tensor
from trainproof.checkpoint.safetensors import read_safetensors
from trainproof.errors import InputError

_NAMES = ("embed_tokens.weight", "wte.weight", "word_embeddings.weight", "tok_embeddings.weight", "embed_in.weight")
_WIDTHS = {"float32": np.float32, "float16": np.float16, "bfloat16": np.uint16}
#: rows that are looked at at once
BLOCK = 4096


class Embedding(NamedTuple):
    """size: the largest number of each row, without its sign; mark: a number of each row that is the same for equal rows only."""

    size: NDArray[np.float64]
    mark: NDArray[np.float64]


def embedding_of(folder: Path) -> Embedding | None:
    """The input embedding; None where there is no safetensors file with one. Raises InputError for a broken file."""
    for file in sorted(folder.glob("*.safetensors")):
        try:
            tensors, _ = read_safetensors(file)
        except (InputError, OSError) as error:
            raise InputError(f"{file}: {error}") from None
        for tensor in tensors:
            if tensor.name.endswith(_NAMES) and len(tensor.shape) == 2 and tensor.dtype in _WIDTHS:
                return _measured(tensor)
    return None


def _measured(tensor: Tensor) -> Embedding:
    rows, width = tensor.shape
    raw: Any = np.memmap(tensor.path, _WIDTHS[tensor.dtype], "r", tensor.offset, (rows, width))
    mix = np.random.default_rng(0).normal(size=width)
    sizes, marks = [np.zeros(0)], [np.zeros(0)]
    for first in range(0, rows, BLOCK):
        block = np.asarray(raw[first : first + BLOCK])
        if tensor.dtype == "bfloat16":
            block = (block.astype(np.uint32) << 16).view(np.float32)
        block = block.astype(np.float64)
        sizes.append(np.abs(block).max(axis=1, initial=0.0))
        marks.append((block * mix).sum(axis=1))
    return Embedding(np.concatenate(sizes), np.concatenate(marks))
