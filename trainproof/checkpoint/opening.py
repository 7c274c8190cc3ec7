"""From a path to checkpoints: a file, a sharded checkpoint, a folder that a Trainer, torch.distributed.checkpoint or the Recorder wrote."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from trainproof.checkpoint.contents import Checked, Checkpoint, Tensor, role_of, spelled, step_of, walk
from trainproof.checkpoint.distributed import read_distributed
from trainproof.checkpoint.pickles import Opaque
from trainproof.checkpoint.safetensors import read_safetensors
from trainproof.checkpoint.torchfile import read_torch
from trainproof.errors import InputError
from trainproof.record.storage import MANIFEST, STATE, open_state

ENDINGS = (".pt", ".pth", ".ckpt", ".bin", ".safetensors")
#: the weights that a folder of transformers or peft holds, in the order in which they are looked for
_WEIGHTS = (
    "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json",
    "adapter_model.safetensors", "adapter_model.bin",
)  # fmt: skip
#: part -> the files in which the HF Trainer keeps it
_BESIDE = {"optimizer": "optimizer.pt", "scheduler": "scheduler.pt", "scaler": "scaler.pt"}
_MOST_JSON = 256 << 20
_NUMBERED = re.compile(r"(?:checkpoint|step|global_step|iter|epoch)[-_]?(\d+)")


def open_checkpoints(named: str) -> list[Checkpoint]:
    """The checkpoints that a path names, oldest first where a folder holds several. Raises InputError, its message with the path."""
    path = Path(named)
    try:
        if not path.exists():
            raise InputError("no such file or folder")
        return _folder(path) if path.is_dir() else [_file(path)]
    except InputError as error:
        message = str(error)
        raise InputError(message if message.startswith(f"{path}") else f"{named}: {message}") from None
    except OSError as error:
        raise InputError(f"{error.filename or named}: {error.strerror or error}") from None


def _folder(path: Path) -> list[Checkpoint]:
    kind = _kind(path)
    if kind is not None:
        return [kind(path)]
    below = sorted(
        (int(found[1]), child)
        for child in path.iterdir()
        if child.is_dir() and (found := _NUMBERED.fullmatch(child.name))
    )
    several = [kind(child) for _, child in below if (kind := _kind(child)) is not None]
    if several:
        return several
    files = sorted(child for child in path.iterdir() if child.suffix in ENDINGS and child.is_file())
    if not files and (path / "checkpoints").is_dir():  # of a recording, or of a Lightning run
        return _folder(path / "checkpoints")
    if not files:
        raise InputError(f"no checkpoint in this folder; expected {', '.join(ENDINGS)}, or a folder of a Trainer")
    return [_file(file) for file in files]


def _kind(path: Path) -> Callable[[Path], Checkpoint] | None:
    if (path / ".metadata").is_file():
        return _distributed
    if (path / MANIFEST).is_file() and (path / STATE).is_file():
        return _recorded
    return _hf if any((path / name).is_file() for name in _WEIGHTS) else None


def _file(path: Path) -> Checkpoint:
    with path.open("rb") as file:
        head = file.read(16)
    if path.name.endswith(".index.json"):
        return _assembled(path.parent, "sharded", [path])
    if head.startswith(b"PK"):
        return _torch(path)
    if path.suffix == ".safetensors" or (head[8:9] == b"{" and head[6:8] == b"\0\0"):
        tensors, metadata = read_safetensors(path)
        return Checkpoint(str(path), "safetensors", tuple(tensors), {}, _step_in(metadata))
    raise InputError(_refusal(head))


def _step_in(metadata: dict[str, str]) -> int | None:
    value = metadata.get("step", metadata.get("global_step", ""))
    return int(value) if value.isdecimal() and len(value) < 18 else None


def _refusal(head: bytes) -> str:
    kinds = (
        (b"\x89HDF", "an HDF5 file (Keras)"),
        (b"\x93NUMPY", "a NumPy array"),
        (b"\x80\x02\x8a\nl\xfc\x9c", "a checkpoint of PyTorch before 1.6; save it again with a newer one"),
        (b"\x80", "a bare pickle"),
        (b"GGUF", "a GGUF file"),
        (b"\x1f\x8b", "a gzip file; unpack it first"),
    )
    kind = next((kind for start, kind in kinds if head.startswith(start)), "" if head else "an empty file")
    return f"{kind or 'no checkpoint'}; expected a zip archive of torch.save or a .safetensors file"


def _torch(path: Path) -> Checkpoint:
    read = read_torch(path)
    data = read.data
    if not isinstance(data, dict) or _bare(data):
        tensors = _named(data, "", "model")
        return Checkpoint(str(path), "torch", tensors, {}, None, read.checked, read.unbuilt)
    lightning = "pytorch-lightning_version" in data
    tensors, state = split(data)
    expected = ("optimizer",) if lightning else ()
    return Checkpoint(
        str(path),
        "lightning" if lightning else "torch",
        tensors,
        state,
        step_of(data),
        read.checked,
        read.unbuilt,
        expected,
    )


def _bare(data: dict[Any, Any]) -> bool:
    """Whether the dictionary is a module's state_dict itself: tensors under names with dots."""
    tensors = sum(isinstance(value, Tensor) for value in data.values())
    return tensors > 0 and tensors >= 0.5 * len(data) and not any(isinstance(value, dict) for value in data.values())


def split(data: dict[Any, Any]) -> tuple[tuple[Tensor, ...], dict[str, Any]]:
    """The tensors of a saved dictionary, each with the part that it belongs to, and the parts beside the model."""
    tensors: list[Tensor] = []
    state: dict[str, Any] = {}
    for key, value in data.items():
        name = spelled(key)
        role = role_of(name) or ("model" if _weights(value) else "other")
        tensors += _named(value, name, role)
        if role not in ("model", "ema"):
            state.setdefault(role, {})[name] = value
    return tuple(tensors), state


def _weights(value: Any) -> bool:
    return any(isinstance(leaf, Tensor) and name.endswith(("weight", "bias")) for name, leaf in walk(value))


def _named(value: Any, name: str, role: str) -> tuple[Tensor, ...]:
    return tuple(leaf._replace(name=at, role=role) for at, leaf in walk(value, name) if isinstance(leaf, Tensor))


def _hf(path: Path) -> Checkpoint:
    """A folder of transformers or peft; a Trainer's checkpoint also has its optimizer, scheduler, RNG and state beside the weights."""
    weights = next(path / name for name in _WEIGHTS if (path / name).is_file())
    adapters = [path / name for name in _WEIGHTS[4:] if (path / name).is_file() and path / name != weights]
    whole = _assembled(path, "hf", [weights, *adapters[:1]])
    trainer = _json(path / "trainer_state.json") if (path / "trainer_state.json").is_file() else None
    tensors, checked, unbuilt = list(whole.tensors), list(whole.checked), set(whole.unbuilt)
    state: dict[str, Any] = {}
    beside = {part: path / name for part, name in _BESIDE.items() if (path / name).is_file()}
    rng = sorted(path.glob("rng_state*.pth"))
    for part, file in [*beside.items(), *(("rng", one) for one in rng)]:
        read = read_torch(file)
        tensors += _named(read.data, file.name, part)
        checked += read.checked
        unbuilt |= set(read.unbuilt)
        state.setdefault(part, {})[file.name] = read.data
    if isinstance(trainer, dict):
        state["trainer"] = {**trainer, "fp16": _fp16(path / "training_args.bin")}
    expected = ("optimizer", "scheduler", "rng") if isinstance(trainer, dict) and (beside or rng) else ()
    step = step_of(trainer)
    numbered = _NUMBERED.fullmatch(path.name)
    step = int(numbered[1]) if step is None and numbered else step
    return whole._replace(
        tensors=tuple(tensors),
        state=state,
        step=step,
        checked=tuple(checked),
        unbuilt=tuple(sorted(unbuilt)),
        expected=expected,
    )


def _fp16(arguments: Path) -> bool:
    """Whether the training's arguments, if they are there, declare training in float16."""
    if not arguments.is_file():
        return False
    declared = read_torch(arguments).data
    return isinstance(declared, Opaque) and declared.get("fp16") is True


def _assembled(folder: Path, form: str, weights: Sequence[Path]) -> Checkpoint:
    """The tensors of some files, an index among them standing for its shards."""
    tensors: list[Tensor] = []
    checked: list[Checked] = []
    unbuilt: set[str] = set()
    problems: list[str] = []
    for file in weights:
        if not file.name.endswith(".json"):
            one = _file(file)
            tensors, checked, unbuilt = [*tensors, *one.tensors], [*checked, *one.checked], unbuilt | set(one.unbuilt)
            continue
        index = _json(file)
        table = index.get("weight_map") if isinstance(index, dict) else None
        if not isinstance(table, dict) or not all(isinstance(name, str) for name in table.values()):
            raise InputError(f"{file}: a broken index: it has no weight_map of names to files")
        for shard in sorted(set(table.values())):
            if Path(shard).name != shard:
                raise InputError(f"{file}: the shard {shard[:80]!r} leads out of the folder; refused")
            if not (folder / shard).is_file():
                problems.append(f"the shard {shard} is missing")
                continue
            one = _within(folder / shard)
            tensors, checked, unbuilt = [*tensors, *one.tensors], [*checked, *one.checked], unbuilt | set(one.unbuilt)
            held = {tensor.name for tensor in one.tensors}
            lacking = [name for name, where in table.items() if where == shard and name not in held]
            if lacking:
                problems.append(
                    f"the shard {shard} lacks {len(lacking)} tensors that the index says it has, such as {lacking[0][:80]}"
                )
    if not tensors and problems:
        raise InputError(f"{folder}: {problems[0]}, and no tensor is left")
    return Checkpoint(
        str(folder), form, tuple(tensors), {}, None, tuple(checked), tuple(sorted(unbuilt)), problems=tuple(problems)
    )


def _within(path: Path) -> Checkpoint:
    try:
        return _file(path)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _json(path: Path) -> Any:
    if path.stat().st_size > _MOST_JSON:
        raise InputError(f"{path}: over {_MOST_JSON >> 20} MiB")
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        raise InputError(f"{path}: no JSON") from None


def _recorded(path: Path) -> Checkpoint:
    manifest, data = open_state(path)
    tensors, state = split(data)
    step = manifest.get("step")
    expected = ("optimizer", "rng", "sampler")
    state["sampler"] = {"stream": data.get("stream")}
    return Checkpoint(
        str(path), "recording", tensors, state, step if isinstance(step, int) else None, expected=expected
    )


def _distributed(path: Path) -> Checkpoint:
    data, checked, unbuilt = read_distributed(path)
    tensors, state = split(data)
    numbered = _NUMBERED.fullmatch(path.name)
    step = step_of(data)
    step = int(numbered[1]) if step is None and numbered else step
    return Checkpoint(str(path), "torch.distributed", tensors, state, step, checked, unbuilt)
