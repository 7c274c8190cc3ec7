"""Folders that torch.distributed.checkpoint wrote: a pickled table of contents, and files of archives laid end to end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trainproof.checkpoint import pickles
from trainproof.checkpoint.contents import Checked
from trainproof.checkpoint.torchfile import read_torch
from trainproof.errors import InputError


def read_distributed(path: Path) -> tuple[dict[str, Any], tuple[Checked, ...], tuple[str, ...]]:
    """The saved dictionary, its checksums, and the classes whose objects were not built. A tensor in several pieces is a list of them.

    Raises InputError, without the path.
    """
    metadata = path / ".metadata"
    if metadata.stat().st_size > pickles.MOST_BYTES:
        raise InputError(f".metadata is over {pickles.MOST_BYTES >> 20} MiB")
    table = pickles.load(metadata.read_bytes())
    places = table.get("storage_data") if isinstance(table, pickles.Opaque) else None
    if not isinstance(places, dict):
        raise InputError(".metadata is no table of torch.distributed.checkpoint")
    pieces: dict[str, list[Any]] = {}
    checked: list[Checked] = []
    unbuilt: set[str] = set()
    for index, place in places.items():
        name = _field(index, "fqn", str)
        read = read_torch(*_place(path, place, name))
        pieces.setdefault(name, []).append(read.data)
        checked += read.checked
        unbuilt |= set(read.unbuilt)
    return (
        _nested({name: found[0] if len(found) == 1 else found for name, found in pieces.items()}),
        tuple(checked),
        tuple(sorted(unbuilt)),
    )


def _place(path: Path, place: Any, name: str) -> tuple[Path, int, int]:
    relative = _field(place, "relative_path", str)
    if Path(relative).name != relative:
        raise InputError(f".metadata places {name[:80]!r} outside of the folder; refused")
    file = path / relative
    offset, length = _field(place, "offset", int), _field(place, "length", int)
    if not file.is_file():
        raise InputError(f"{relative} is missing, which holds {name[:80]!r}")
    if not 0 <= offset <= offset + length <= file.stat().st_size:
        raise InputError(f"{relative} is cut: {name[:80]!r} ends after the file does")
    return file, offset, length


def _field(value: Any, name: str, kind: type) -> Any:
    found = value.get(name) if isinstance(value, pickles.Opaque) else None
    if not isinstance(found, kind):
        raise InputError(f".metadata is broken: an entry without {name}")
    return found


def _nested(flat: dict[str, Any]) -> dict[str, Any]:
    """Dotted names as dictionaries: what stands before the first dot tells the part of the checkpoint. An optimizer gets back the
    shape that its state_dict() had: state of parameters, and a list of groups."""
    nested: dict[str, Any] = {}
    for name, value in flat.items():
        first, dot, rest = name.partition(".")
        if not dot:
            nested[first] = value
        elif isinstance(nested.setdefault(first, {}), dict):
            kind, _, inner = rest.partition(".")
            parameter, last_dot, key = inner.rpartition(".")
            if kind in ("state", "param_groups") and last_dot:
                nested[first].setdefault(kind, {}).setdefault(parameter, {})[key] = value
            else:
                nested[first][rest] = value
    for part in nested.values():
        if isinstance(part, dict) and isinstance(part.get("param_groups"), dict):
            part["param_groups"] = list(part["param_groups"].values())
    return nested
