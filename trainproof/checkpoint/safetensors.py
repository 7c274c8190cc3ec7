"""safetensors files: eight bytes of length, a JSON header, the bytes of the tensors (huggingface/safetensors, format section)."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

from trainproof.checkpoint.contents import ITEM_BYTES, Tensor
from trainproof.errors import InputError

#: the format's own bound of its header
MOST_HEADER = 100_000_000
DTYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu", "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8", "U64": "uint64", "U32": "uint32",
    "U16": "uint16", "U8": "uint8", "BOOL": "bool", "C64": "complex64",
}  # fmt: skip
CODES = {dtype: code for code, dtype in DTYPES.items()}


def read_safetensors(path: Path) -> tuple[list[Tensor], dict[str, str]]:
    """The tensors in the order of the file, and its metadata. Raises InputError (without the path) for what is cut or broken."""
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(8)
        length = struct.unpack("<Q", head)[0] if len(head) == 8 else 0
        if not 2 <= length <= min(MOST_HEADER, size - 8):
            raise InputError(
                "a cut or broken safetensors file: its header is longer than the file, or than the format allows"
            )
        header = _header(file.read(length))
    metadata = header.pop("__metadata__", None) or {}
    tensors = sorted(
        (_tensor(name, entry, str(path), 8 + length) for name, entry in header.items()), key=lambda t: t.offset
    )
    end = 8 + length
    for tensor in tensors:
        if tensor.offset != end:
            raise InputError(
                f"a broken safetensors file: the bytes of {tensor.name[:80]!r} do not follow those before it"
            )
        end += tensor.nbytes
    if end != size:
        raise InputError(
            f"a {'cut' if end > size else 'broken'} safetensors file: {size:,} bytes, and its header tells of {end:,}"
        )
    return tensors, {str(key): str(value) for key, value in metadata.items()}


def _header(data: bytes) -> dict[str, Any]:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise InputError("a safetensors file whose header has a name twice; refused")
        return found

    try:
        header = json.loads(data, object_pairs_hook=once)
    except (ValueError, RecursionError):
        raise InputError("a broken safetensors file: its header is no JSON") from None
    if not isinstance(header, dict) or not isinstance(header.get("__metadata__", {}), dict | None):
        raise InputError("a broken safetensors file: its header is no object")
    return header


def _tensor(name: str, entry: Any, path: str, start: int) -> Tensor:
    broken = InputError(
        f"a broken safetensors file: the entry of {name[:80]!r} is not dtype, shape and offsets that agree"
    )
    try:
        dtype, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
    except (TypeError, KeyError, ValueError):
        raise broken from None
    numbers = [*shape, begin, end] if isinstance(shape, list) else [None]
    if not all(isinstance(n, int) and not isinstance(n, bool) and 0 <= n < 2**48 for n in numbers):
        raise broken
    if dtype not in DTYPES:
        raise InputError(f"a safetensors file with tensors of {str(dtype)[:20]!r}, which is no dtype known here")
    tensor = Tensor(name, DTYPES[dtype], tuple(shape), path, start + begin)
    if tensor.elements * ITEM_BYTES[tensor.dtype] != end - begin:
        raise broken
    return tensor
