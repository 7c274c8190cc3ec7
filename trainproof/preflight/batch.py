"""One batch of a training run: the arrays that its loss is given, from a dump or from a function of the user's own script."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainproof.checkpoint.safetensors import read_safetensors
from trainproof.errors import InputError, UsageError
from trainproof.preflight.losses import CLASSES, CTC, arranged, loss_of

#: what the arrays are called elsewhere -> here
NAMES = {
    "logits": ("logits", "predictions", "outputs", "scores"),
    "labels": ("labels", "targets", "target", "label", "y"),
    "input_ids": ("input_ids", "inputs", "tokens", "x"),
}
MOST_BYTES = 8 * 1024**3
#: seconds that a script may take to make one batch
PATIENCE = 600

#: runs in a process of its own: what it returns is written as arrays, never pickled
_RUNNER = """
import importlib.util, sys
import numpy as np
path, name, out = sys.argv[1:]
sys.path.insert(0, path.rpartition("/")[0] or ".")
spec = importlib.util.spec_from_file_location("trainproof_batch", path)
module = importlib.util.module_from_spec(spec)
sys.modules["trainproof_batch"] = module
spec.loader.exec_module(module)
made = getattr(module, name)()
if isinstance(made, (tuple, list)):
    made = dict(zip(("logits", "labels", "input_ids"), made))
if not hasattr(made, "items"):
    sys.exit(f"it returned {type(made).__name__}, expected (logits, labels) or a dict of arrays")
def plain(value):
    for step in ("detach", "cpu", "float" if "bfloat16" in str(getattr(value, "dtype", "")) else "cpu", "numpy"):
        value = getattr(value, step)() if hasattr(value, step) else value
    return np.asarray(value)
arrays = {key: plain(value) for key, value in dict(made).items() if value is not None}
np.savez(out, **{key: value for key, value in arrays.items() if value.dtype != object})
"""


class Settings(NamedTuple):
    """What the user said of the loss; None where nothing was said."""

    ignore_index: int = -100
    eos: int | None = None
    pad: int | None = None
    shift: str | None = None  # who shifts the labels: "model" or "data"
    loss: str | None = None  # one of losses.LOSSES


class Batch(NamedTuple):
    """Arrays of one batch. labels, input_ids: (rows, length), or labels of (rows,) for classes; logits: labels' shape and (classes,).

    Logits of CTC are (rows, frames, classes); those of a binary loss and of regression have the labels' shape, and perhaps (1,).
    """

    labels: NDArray[Any]
    logits: NDArray[Any] | None
    input_ids: NDArray[Any] | None
    settings: Settings
    loss: str = CLASSES

    @property
    def kept(self) -> NDArray[np.bool_]:
        """Which labels count."""
        return np.asarray(self.labels != self.settings.ignore_index, bool)

    @property
    def classes(self) -> int | None:
        """Classes of the logits; None where the loss has none."""
        return None if self.logits is None or self.loss not in (CLASSES, CTC) else self.logits.shape[-1]


def read_batch(spec: str, settings: Settings) -> Batch:
    """The batch of a .npz or .safetensors file, or of FILE.py:FUNCTION, which is run. Raises InputError and UsageError."""
    script, _, function = spec.rpartition(":")
    if script.endswith(".py"):
        arrays = _made(script, function)
    elif spec.endswith(".safetensors"):
        arrays = _safetensors(spec)
    elif spec.endswith(".npz"):
        arrays = _npz(spec)
    else:
        raise UsageError(f"{spec}: expected a batch as .npz or .safetensors, or FILE.py:FUNCTION that makes one")
    found = {ours: next((arrays[name] for name in names if name in arrays), None) for ours, names in NAMES.items()}
    if found["labels"] is None:
        raise InputError(
            f"{spec}: no labels; it has {', '.join(sorted(arrays)[:8]) or 'nothing'}, expected labels and logits"
        )
    given, scored = found["labels"], found["logits"]
    loss = settings.loss or loss_of(given, scored, arrays)
    labels, logits = arranged(given, scored, loss, arrays, settings.ignore_index)
    if not labels.ndim or not len(labels):
        raise InputError(f"{spec}: labels of the shape {labels.shape}, expected one row at least")
    return Batch(labels, logits, found["input_ids"], settings, loss)


def _npz(path: str) -> dict[str, NDArray[Any]]:
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
        if size > MOST_BYTES:
            raise InputError(f"{path}: unpacks to more than {MOST_BYTES >> 30} GiB, expected one batch")
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; expected a batch as .npz") from None
    except (OSError, ValueError, zipfile.BadZipFile, EOFError) as error:
        raise InputError(f"{path}: no .npz that can be read without unpickling ({str(error)[:80]})") from None


def _safetensors(path: str) -> dict[str, NDArray[Any]]:
    try:
        tensors, _ = read_safetensors(Path(path))
        data = np.memmap(path, np.uint8, "r")
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    arrays = {}
    for tensor in tensors:
        raw = data[tensor.offset : tensor.offset + tensor.nbytes]
        if tensor.dtype == "bfloat16":
            values: NDArray[Any] = (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
        elif tensor.dtype.startswith("float8"):
            continue
        else:
            values = raw.view(tensor.dtype)
        arrays[tensor.name] = values.reshape(tensor.shape)
    return arrays


def _made(script: str, function: str) -> dict[str, NDArray[Any]]:
    """What the user's function returns: (logits, labels) or a dict of arrays. Its output goes to standard error."""
    if not Path(script).is_file():
        raise InputError(f"{script}: no such file; expected FILE.py:FUNCTION")
    with tempfile.TemporaryDirectory() as folder:
        out = str(Path(folder) / "batch.npz")
        command = [sys.executable, "-c", _RUNNER, str(Path(script).resolve()), function, out]
        try:
            done = subprocess.run(command, capture_output=True, timeout=PATIENCE, check=False)  # noqa: S603  the user's own script
        except subprocess.TimeoutExpired:
            raise InputError(f"{script}:{function}: made no batch in {PATIENCE} s") from None
        if done.returncode:
            said = done.stderr.decode("utf-8", "replace").strip().splitlines()
            raise InputError(f"{script}:{function}: {said[-1][:200] if said else f'ended with {done.returncode}'}")
        return _npz(out)
