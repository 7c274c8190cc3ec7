"""Checkpoints of the recorder: a folder of `state.safetensors` and, written last, `manifest.json`. No pickle; whole or not there."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from trainproof.checkpoint.contents import Tensor
from trainproof.checkpoint.safetensors import CODES, read_safetensors
from trainproof.errors import InputError
from trainproof.record.codec import Raw, decode, encode

STATE, MANIFEST = "state.safetensors", "manifest.json"
#: what the manifest calls itself
KIND = "trainproof checkpoint 1"


def own_rank() -> int:
    """The number of this process among those of a run on several ranks."""
    return int(os.environ.get("RANK", "0"))


def place_of(folder: Path, rank: int) -> Path:
    """Where a rank keeps its part of the checkpoint whose folder, on rank 0, is `folder`."""
    return folder if rank == 0 else folder.with_name(f"rank-{rank}-{folder.name}")


def write_checkpoint(folder: Path, state: dict[str, Any], about: dict[str, Any], *, lasting: bool = True) -> None:
    """Write a checkpoint: beside its place, then renamed into it. about: what else the manifest says (step, cursor, fingerprint). lasting:
    wait until it is on the disk.

    Raises InputError when it cannot be written (nothing is left then), or holds what cannot be stored.
    """
    tensors: dict[str, Raw] = {}
    skeleton = {name: encode(part, name, tensors) for name, part in state.items()}
    digests = {name: hashlib.sha256(raw.data).hexdigest() for name, raw in tensors.items()}
    manifest = {"kind": KIND, **about, "state": skeleton, "sha256": digests}
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    try:
        temporary.mkdir(parents=True)
        _write(temporary / STATE, safetensors_of(tensors), lasting)
        _write(temporary / MANIFEST, [json.dumps(manifest).encode()], lasting)
        if folder.exists():
            shutil.rmtree(folder)
        temporary.rename(folder)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise InputError(f"{folder}: cannot be written ({error.strerror})") from None


def safetensors_of(tensors: dict[str, Raw]) -> list[Any]:
    """The parts of a safetensors file, in order."""
    header, at = {}, 0
    for name, raw in tensors.items():
        header[name] = {"dtype": CODES[raw.dtype], "shape": list(raw.shape), "data_offsets": [at, at + len(raw.data)]}
        at += len(raw.data)
    encoded = json.dumps(header).encode()
    return [struct.pack("<Q", len(encoded)), encoded, *(raw.data for raw in tensors.values())]


def _write(path: Path, parts: list[Any], lasting: bool) -> None:
    with path.open("xb") as file:
        for part in parts:
            file.write(part)
        if lasting:
            file.flush()
            os.fsync(file.fileno())


def read_manifest(folder: Path) -> dict[str, Any]:
    """Raises InputError for what is no checkpoint of the recorder, or was cut off."""
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
    except (OSError, ValueError, RecursionError):
        raise InputError(f"{folder}: no whole checkpoint of the recorder ({MANIFEST})") from None
    if not isinstance(manifest, dict) or manifest.get("kind") != KIND or not isinstance(manifest.get("state"), dict):
        raise InputError(f"{folder}: {MANIFEST} is of something else")
    return manifest


def open_state(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The manifest, and the state with a `Tensor` for every tensor: nothing of it is loaded. Raises InputError."""
    manifest = read_manifest(folder)
    places = {tensor.name: tensor for tensor in read_safetensors(folder / STATE)[0]}
    return manifest, _decoded(folder, manifest["state"], lambda name, _: _placed(places, name))


def _decoded(folder: Path, skeleton: dict[str, Any], tensor: Callable[[str, bool], Any]) -> dict[str, Any]:
    try:
        return {name: decode(part, tensor) for name, part in skeleton.items()}
    except RecursionError:
        raise InputError(f"{folder}: a broken checkpoint: its state is nested too deeply") from None


def _placed(places: dict[str, Tensor], name: str) -> Tensor:
    if name not in places:
        raise InputError(f"a broken checkpoint: it has no tensor {name[:80]!r}")
    return places[name]


def load_state(folder: Path) -> dict[str, Any]:
    """The state, as it was written. Raises InputError for a checkpoint that is damaged: every tensor's SHA-256 is compared."""
    from trainproof.record.framework import torch

    manifest = read_manifest(folder)
    try:
        data = (folder / STATE).read_bytes()
    except OSError as error:
        raise InputError(f"{folder / STATE}: cannot be read ({error.strerror})") from None
    places = {tensor.name: tensor for tensor in read_safetensors(folder / STATE)[0]}
    digests = manifest.get("sha256")
    digests = digests if isinstance(digests, dict) else {}

    def load(name: str, array: bool) -> Any:
        place = _placed(places, name)
        raw = bytearray(data[place.offset : place.offset + place.nbytes])
        if hashlib.sha256(raw).hexdigest() != digests.get(name):
            raise InputError(f"{folder}: the bytes of {name} are not those that were written")
        if array:
            return np.frombuffer(raw, place.dtype).reshape(place.shape)
        dtype = getattr(torch(), place.dtype)
        return (
            torch().frombuffer(raw, dtype=dtype).reshape(place.shape)
            if raw
            else torch().empty(place.shape, dtype=dtype)
        )

    return _decoded(folder, manifest["state"], load)
