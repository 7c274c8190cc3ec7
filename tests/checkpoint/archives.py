"""Checkpoints written byte by byte, without torch: the pickle of a tree, and archives as torch lays them out."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

STORAGES = {
    "float32": "FloatStorage",
    "float64": "DoubleStorage",
    "float16": "HalfStorage",
    "int64": "LongStorage",
    "bool": "BoolStorage",
}


class Call:
    """A call that the pickle makes when it is loaded: `name` is "module name"; `state` is set on the result."""

    def __init__(self, name: str, *args: Any, state: Any = None) -> None:
        self.name, self.args, self.state = name, args, state


class Global:
    """A class or a function that the pickle names."""

    def __init__(self, name: str) -> None:
        self.name = name


class Pickle:
    """Writes protocol 2, tensors as torch does; `storages` are the bytes that the archive must hold."""

    def __init__(self) -> None:
        self.out = io.BytesIO()
        self.storages: list[bytes] = []

    def dump(self, value: Any) -> bytes:
        self.out.write(b"\x80\x02")
        self.put(value)
        self.out.write(b".")
        return self.out.getvalue()

    def put(self, value: Any) -> None:
        write = self.out.write
        if value is None:
            write(b"N")
        elif isinstance(value, bool):
            write(b"\x88" if value else b"\x89")
        elif isinstance(value, int):
            write(b"J" + struct.pack("<i", value))
        elif isinstance(value, float):
            write(b"G" + struct.pack(">d", value))
        elif isinstance(value, str):
            write(b"X" + struct.pack("<I", len(value.encode())) + value.encode())
        elif isinstance(value, dict):
            write(b"}(")
            for key, item in value.items():
                self.put(key)
                self.put(item)
            write(b"u")
        elif isinstance(value, (list, tuple)):
            write(b"](" if isinstance(value, list) else b"(")
            for item in value:
                self.put(item)
            write(b"e" if isinstance(value, list) else b"t")
        elif isinstance(value, np.ndarray):
            self.tensor(value)
        elif isinstance(value, Global):
            module, name = value.name.split()
            write(f"c{module}\n{name}\n".encode())
        elif isinstance(value, Call):
            self.put(Global(value.name))
            self.put(value.args)
            write(b"R")
            if value.state is not None:
                self.put(value.state)
                write(b"b")
        else:
            raise TypeError(type(value))

    def tensor(self, value: np.ndarray[Any, Any]) -> None:
        strides = tuple(s // value.itemsize for s in value.strides)
        base = value if value.base is None else value.base
        offset = (value.__array_interface__["data"][0] - base.__array_interface__["data"][0]) // value.itemsize
        self.put(Global("torch._utils _rebuild_tensor_v2"))
        self.out.write(b"(")
        self.put(("storage", Global(f"torch {STORAGES[str(value.dtype)]}"), str(len(self.storages)), "cpu", base.size))
        self.out.write(b"Q")
        for item in (offset, value.shape, strides, False, Call("collections OrderedDict")):
            self.put(item)
        self.out.write(b"tR")
        self.storages.append(base.tobytes())


def torch_archive(value: Any, pickle: bytes | None = None) -> bytes:
    """The bytes of torch.save(value); or an archive around a pickle of one's own."""
    writer = Pickle()
    data = writer.dump(value) if pickle is None else pickle
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("archive/data.pkl", data)
        archive.writestr("archive/byteorder", "little")
        for number, storage in enumerate(writer.storages):
            archive.writestr(f"archive/data/{number}", storage)
        archive.writestr("archive/version", "3\n")
    return out.getvalue()


def save_torch(path: Path, value: Any, pickle: bytes | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(torch_archive(value, pickle))
    return path


def save_safetensors(
    path: Path, tensors: dict[str, np.ndarray[Any, Any]], metadata: dict[str, str] | None = None
) -> Path:
    codes = {"float32": "F32", "float64": "F64", "float16": "F16", "uint16": "BF16", "int64": "I64", "uint8": "F8_E4M3"}
    header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    body = b""
    for name, value in tensors.items():
        data = np.ascontiguousarray(value).tobytes()
        header[name] = {
            "dtype": codes[str(value.dtype)],
            "shape": list(value.shape),
            "data_offsets": [len(body), len(body) + len(data)],
        }
        body += data
    encoded = json.dumps(header).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(struct.pack("<Q", len(encoded)) + encoded + body)
    return path
