"""Files that torch.save wrote: a zip archive of one pickle and the bytes of each storage."""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from trainproof.checkpoint import pickles
from trainproof.checkpoint.contents import ITEM_BYTES, Checked, Tensor
from trainproof.checkpoint.zips import Record, records
from trainproof.errors import InputError

#: torch's typed storages -> dtype
_STORAGES = {
    "DoubleStorage": "float64", "FloatStorage": "float32", "HalfStorage": "float16", "BFloat16Storage": "bfloat16",
    "LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8", "ByteStorage": "uint8",
    "BoolStorage": "bool", "ComplexFloatStorage": "complex64", "ComplexDoubleStorage": "complex128", "UntypedStorage": "uint8",
}  # fmt: skip


#: as in torch
MOST_DIMENSIONS = 64


class TorchFile(NamedTuple):
    """What torch.save was given, as plain data with a Tensor (without its name) for each tensor; what its bytes must be; and the names
    of the classes whose objects were not built."""

    data: Any
    checked: tuple[Checked, ...]
    unbuilt: tuple[str, ...]


def read_torch(path: Path, start: int = 0, size: int | None = None) -> TorchFile:
    """The file, or `size` bytes of it from `start`. Raises InputError, its message without the path."""
    with path.open("rb") as file:
        found = records(file, start, path.stat().st_size - start if size is None else size)
        prefix = _prefix(found)
        order = found.get(f"{prefix}byteorder")
        if order is not None and _bytes(file, order) != b"little":
            raise InputError("a checkpoint of a big-endian machine; save it again on this one")
        builder = _Builder(str(path), found, prefix)
        data = pickles.load(_bytes(file, found[f"{prefix}data.pkl"]), builder.rebuild)
    checked = tuple(Checked(name, str(path), r.offset, r.size, r.crc) for name, r in found.items() if r.size)
    return TorchFile(data, checked, tuple(sorted(builder.unbuilt)))


def _prefix(found: dict[str, Record]) -> str:
    """The folder, with its slash, that the records are in. Raises InputError for an archive of something else."""
    folder = next(
        (name.removesuffix("data.pkl") for name in found if name.split("/")[1:] == ["data.pkl"] or name == "data.pkl"),
        None,
    )
    if folder is not None and f"{folder}constants.pkl" in found:
        raise InputError("a TorchScript program, expected a checkpoint: save the module's state_dict()")
    if folder is not None:
        return folder
    kinds = ((".npy", "a NumPy archive (.npz)"), (".h5", "a Keras archive"), ("mimetype", "a document"))
    kind = next(
        (kind for ending, kind in kinds if any(name.endswith(ending) for name in found)),
        "a zip archive without data.pkl",
    )
    raise InputError(f"{kind}, expected a checkpoint of torch or a .safetensors file")


def _bytes(file: BinaryIO, record: Record) -> bytes:
    if record.size > pickles.MOST_BYTES:
        raise InputError(f"a pickle of {record.size >> 20} MiB, expected at most {pickles.MOST_BYTES >> 20}")
    file.seek(record.offset)
    return file.read(record.size)


class _Builder:
    """Turns torch's calls that rebuild tensors into Tensors."""

    def __init__(self, path: str, found: dict[str, Record], prefix: str) -> None:
        self.path, self.found, self.prefix = path, found, prefix
        self.unbuilt: set[str] = set()

    def rebuild(self, name: str, args: Any) -> Any:
        if name in (
            "torch._utils._rebuild_tensor_v2",
            "torch._utils._rebuild_tensor",
            "torch._utils._rebuild_tensor_v3",
        ):
            storage, offset, shape, strides = args[:4]
            return self._tensor(
                storage, offset, shape, strides, args[6] if name.endswith("v3") and len(args) > 6 else None
            )
        if name in ("torch._utils._rebuild_parameter", "torch._utils._rebuild_parameter_with_state"):
            return args[0]
        if name == "torch._tensor._rebuild_from_type_v2" and isinstance(args[0], pickles.Named):
            return self.rebuild(args[0].name, args[2])
        if not name.startswith(("numpy.", "torch._utils.")):
            self.unbuilt.add(name)
        return None

    def _tensor(self, storage: Any, offset: Any, shape: Any, strides: Any, dtype: Any) -> Any:
        """Raises InputError for a tensor that its storage does not hold."""
        key = storage.key if isinstance(storage, pickles.Persistent) else None
        if not (isinstance(key, tuple) and len(key) >= 5 and key[0] == "storage" and isinstance(key[2], str)):
            raise InputError("a tensor without a storage; refused")
        kind = dtype if isinstance(dtype, pickles.Named) else key[1]
        named = kind.name.rpartition(".")[2] if isinstance(kind, pickles.Named) else ""
        dtype = _STORAGES.get(named, named)
        if not (isinstance(shape, tuple) and isinstance(strides, tuple) and len(shape) <= MOST_DIMENSIONS):
            raise InputError("a tensor whose shape is no shape; refused")
        numbers = [offset, *shape, *strides]
        if dtype not in ITEM_BYTES:
            return pickles.Opaque(f"a tensor of {named}", ())
        if not all(isinstance(n, int) and not isinstance(n, bool) and 0 <= n < 2**48 for n in numbers) or len(
            shape
        ) != len(strides):
            raise InputError("a tensor whose shape is no shape; refused")
        if key[3] == "meta":
            return pickles.Opaque("a tensor without data", ())
        record = self.found.get(f"{self.prefix}data/{key[2]}")
        last = offset + sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) if all(shape) else offset - 1
        if record is None or (last + 1) * ITEM_BYTES[dtype] > record.size:
            raise InputError(
                f"a tensor of shape {list(shape)} that its storage {key[2][:20]!r} does not hold: cut or broken"
            )
        dense_rows = tuple(strides) == row_strides(shape)
        return Tensor(
            "",
            dtype,
            tuple(shape),
            self.path,
            record.offset + offset * ITEM_BYTES[dtype],
            None if dense_rows else tuple(strides),
        )


def row_strides(shape: Any) -> tuple[int, ...]:
    """The strides, in elements, of a tensor stored row by row."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))
