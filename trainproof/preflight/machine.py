"""The machine as a run will find it: imports, memory, disk, GPUs, limits, clock. Each import happens in a process of its own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from trainproof.preflight.known_faults import KNOWN_FAULTS, known_faults

#: seconds that one import may take
PATIENCE = 120.0
GIB = 1024**3
#: what trainers call a checkpoint: checkpoint-500, epoch=3-step=900.ckpt, step_1000, best_model_50.pth
CHECKPOINT = re.compile(r"(?i)checkpoint|ckpt|(?:^|[_-])(?:step|epoch|iter)[_=-]?\d|\.(?:pth?|safetensors|nemo)$")


class Imported(NamedTuple):
    """What came of an import: outcome is ok, missing, error, crash, hang, or unsafe (not tried); `said` is the last line, or the version."""

    module: str
    outcome: str
    said: str


class Needs(NamedTuple):
    """What the run needs, as the user declared it; GiB."""

    memory: float | None = None
    disk: float | None = None
    gpu: float | None = None
    checkpoint: float | None = None
    checkpoints: int = 1


class Saved(NamedTuple):
    """A checkpoint in the folder: when it was written (seconds since 1970), and its size in GiB."""

    when: float
    size: float


class Machine(NamedTuple):
    """What is there; None where the system does not tell. Sizes in GiB, the time in seconds since 1970."""

    imports: tuple[Imported, ...]
    memory: float | None
    disk: float | None
    shared: float | None
    gpus: tuple[float, ...] | None
    files: int | None
    now: float
    newest: float | None
    needs: Needs
    versions: Mapping[str, str] = {}
    saved: tuple[Saved, ...] = ()  # by time


def look(modules: Sequence[str], folder: str, needs: Needs) -> Machine:
    """The machine, seen from the folder that the run writes to. What is known to be harmful is not imported."""
    versions = installed_versions()
    harmful = {fault.package.replace("-", "_") for fault in known_faults(versions) if fault.harmful}
    return Machine(
        tuple(
            Imported(module, "unsafe", "known to be harmful")
            if module.partition(".")[0] in harmful
            else imported(module)
            for module in modules
        ),
        free_memory(Path("/proc/meminfo"), Path("/sys/fs/cgroup")),
        _space(folder),
        _space("/dev/shm"),  # noqa: S108  only looked at
        gpu_memory(),
        _open_files(),
        time.time(),
        _newest(Path(folder)),
        needs,
        versions,
        saved_below(Path(folder)),
    )


def installed_versions() -> dict[str, str]:
    """Versions of the packages that the table of known faults speaks of, by their metadata: nothing is imported."""
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    names = {fault.package for fault in KNOWN_FAULTS} | {fault.beside[0] for fault in KNOWN_FAULTS if fault.beside}
    for name in sorted(names):
        with suppress(PackageNotFoundError):
            found[name] = str(version(name))
    return found


def saved_below(folder: Path) -> tuple[Saved, ...]:
    """The checkpoints in a folder, files or folders by their names, in the order of time; links are not followed."""
    found: list[Saved] = []
    try:
        for entry in os.scandir(folder):
            if CHECKPOINT.search(entry.name) and not entry.is_symlink():
                size = _size(entry.path) if entry.is_dir() else entry.stat().st_size
                found.append(Saved(entry.stat().st_mtime, size / GIB))
    except OSError:
        return ()
    return tuple(sorted(found))


def _size(folder: str) -> int:
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += (Path(root) / name).lstat().st_size
    return total


def imported(module: str, patience: float = PATIENCE) -> Imported:
    """Import a module in a fresh interpreter, and say what came of it."""
    code = "import importlib, sys; m = importlib.import_module(sys.argv[1]); print(getattr(m, '__version__', ''))"
    try:
        done = subprocess.run([sys.executable, "-c", code, module], capture_output=True, timeout=patience, check=False)  # noqa: S603  our own code
    except subprocess.TimeoutExpired:
        return Imported(module, "hang", f"not done in {patience:g} s")
    if done.returncode == 0:
        return Imported(module, "ok", _last(done.stdout))
    if done.returncode < 0:
        return Imported(module, "crash", f"killed by signal {-done.returncode}")
    said = _last(done.stderr)
    missing = said.startswith("ModuleNotFoundError") and f"'{module.partition('.')[0]}'" in said
    return Imported(module, "missing" if missing else "error", said)


def _last(output: bytes) -> str:
    lines = output.decode("utf-8", "replace").strip().splitlines()
    return lines[-1][:200] if lines else ""


def free_memory(meminfo: Path, group: Path) -> float | None:
    """Memory that can still be had: of the system, or less where a control group limits it."""
    free: list[float] = []
    try:
        line = next(line for line in meminfo.read_text().splitlines() if line.startswith("MemAvailable:"))
        free.append(int(line.split()[1]) * 1024 / GIB)
    except (OSError, StopIteration, ValueError, IndexError):
        pass
    try:
        most, used = (group / "memory.max").read_text().strip(), (group / "memory.current").read_text()
        if most != "max":
            free.append((int(most) - int(used)) / GIB)
    except (OSError, ValueError):
        pass
    return min(free, default=None)


def _space(folder: str) -> float | None:
    try:
        return shutil.disk_usage(folder).free / GIB
    except OSError:
        return None


def gpu_memory() -> tuple[float, ...] | None:
    """Free memory of each GPU, as nvidia-smi tells it; None where there is no nvidia-smi."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    command = [program, "--query-gpu=memory.free", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=30, check=True)  # noqa: S603  as it was found
        return tuple(float(line) / 1024 for line in done.stdout.decode().split())
    except (OSError, subprocess.SubprocessError, ValueError):
        return ()


def _open_files() -> int | None:
    try:
        import resource
    except ImportError:  # not on Windows
        return None
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def _newest(folder: Path) -> float | None:
    """When the youngest file of the folder was written."""
    try:
        return max((entry.stat().st_mtime for entry in os.scandir(folder) if entry.is_file()), default=None)
    except OSError:
        return None
