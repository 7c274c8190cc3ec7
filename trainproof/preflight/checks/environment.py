"""The machine against what the run needs."""

from __future__ import annotations

from collections.abc import Iterator

from trainproof.preflight.checks.registry import FAIL, WARN, check
from trainproof.preflight.found import seen
from trainproof.preflight.known_faults import known_faults
from trainproof.preflight.machine import PATIENCE, Machine
from trainproof.rules.registry import CannotTell, Sighting
from trainproof.thresholds import MachineThresholds
from trainproof.verdict import Severity


def _outcome(found: Machine, outcome: str, severity: Severity, says: str) -> Iterator[Sighting]:
    if not found.imports:
        raise CannotTell("no modules; name them with --module")
    for one in found.imports:
        if one.outcome == outcome:
            yield seen(severity, f"{one.module} {says}: {one.said}", ())


@check("TPE101", "module-missing", FAIL, fix="Install it in the environment that the run uses.")
def module_missing(found: Machine, t: MachineThresholds) -> Iterator[Sighting]:
    """A module that the run needs is not installed.

    Why it matters
    The run ends at its import, perhaps only when it is first used, hours later.

    False positives
    Another environment than that of the run.
    """
    yield from _outcome(found, "missing", FAIL, "is not installed")


@check("TPE102", "import-fails", FAIL, fix="Read the last line; often two versions do not go together.")
def import_fails(found: Machine, t: MachineThresholds) -> Iterator[Sighting]:
    """A module is installed, and its import raises.

    Why it matters
    The run ends there.

    False positives
    Modules that need a GPU or a variable that only the run has.
    """
    yield from _outcome(found, "error", FAIL, "cannot be imported")


@check("TPE103", "import-crashes", FAIL, fix="Install a build for this processor and these drivers.")
def import_crashes(found: Machine, t: MachineThresholds) -> Iterator[Sighting]:
    """The import of a module kills the process.

    Why it matters
    The run dies without a message.

    False positives
    A machine that ran out of memory.
    """
    yield from _outcome(found, "crash", FAIL, "kills the process that imports it")


@check("TPE104", "import-hangs", FAIL, fix="Look for locks, network look-ups at import, and slow network drives.")
def import_hangs(found: Machine, t: MachineThresholds) -> Iterator[Sighting]:
    """The import of a module does not end within two minutes.

    Why it matters
    The run waits, and so do all its workers.

    False positives
    The first import from a cold network drive.
    """
    yield from _outcome(found, "hang", FAIL, f"was not imported within {PATIENCE:g} s")


def _short(need: float | None, has: float | None, option: str, what: str) -> Iterator[Sighting]:
    if need is None:
        raise CannotTell(f"give {option}")
    if has is None:
        raise CannotTell(f"the system does not tell its {what}")
    if has < need:
        yield seen(FAIL, f"{has:.1f} GiB of {what}, needed {need:g}", (), needed=need)


@check("TPE105", "memory", FAIL, fix="Free memory, or ask for a larger machine.")
def memory(found: Machine, t: MachineThresholds) -> Iterator[Sighting]:
    """Less memory can be had than the run needs; the limit of a control group (a container) counts.

    Why it matters
    The system kills the run without a message.

    False positives
    Caches that the system would give up are counted as free.
    """
    yield from _short(found.needs.memory, found.memory, "--need-memory", "free memory")


@check("TPE106", "disk", FAIL, fix="Free space, or write elsewhere.")
def disk(found: Machine, t: MachineThresholds) -> Iterator[Sighting]:
    """The folder has less space than the run needs: --need-disk, and --checkpoint-size times --checkpoints.

    One more checkpoint is counted: trainers write the new one before they delete the oldest.

    Why it matters
    A checkpoint that is cut off is lost, and often the run with it.

    False positives
    Quotas that the system does not tell are missed.
    """
    needs = found.needs
    checkpoints = None if needs.checkpoint is None else needs.checkpoint * (needs.checkpoints + 1)
    total = None if needs.disk is None and checkpoints is None else (needs.disk or 0) + (checkpoints or 0)
    yield from _short(total, found.disk, "--need-disk or --checkpoint-size", "free space")


@check("TPE107", "gpu", FAIL, fix="Free the GPU, or choose one that is large enough.")
def gpu(found: Machine, t: MachineThresholds) -> Iterator[Sighting]:
    """No GPU has as much free memory as the run needs.

    Why it matters
    The run ends at its first large batch.

    False positives
    GPUs that nvidia-smi does not know.
    """
    has = 0.0 if found.gpus is None else max(found.gpus, default=0.0)
    yield from _short(found.needs.gpu, has, "--need-gpu", "free GPU memory")


@check(
    "TPE108",
    "shared-memory",
    WARN,
    fix="Start the container with more (docker run --shm-size=8g), or use fewer loader processes.",
)
def shared_memory(found: Machine, t: MachineThresholds) -> Iterator[Sighting]:
    """The shared memory, /dev/shm, has little space, such as the 64 MiB of containers by default.

    Why it matters
    Data loaders pass their batches through it; they die of a bus error when it is full.

    False positives
    Runs without loader processes.
    """
    if found.shared is None:
        raise CannotTell("no /dev/shm")
    if found.shared < t.shared_warn:
        yield seen(WARN, f"{found.shared:.2f} GiB of shared memory", (), shared_warn=t.shared_warn)


@check("TPE109", "open-files", WARN, fix="Raise it: ulimit -n 65536.")
def open_files(found: Machine, t: MachineThresholds) -> Iterator[Sighting]:
    """A process may open few files.

    Why it matters
    Loaders hold many; "too many open files" ends a run after hours.

    False positives
    Small runs.
    """
    if found.files is None:
        raise CannotTell("the system has no such limit")
    if 0 <= found.files < t.files_warn:
        yield seen(WARN, f"a process may open {found.files:,} files", (), files_warn=t.files_warn)


@check("TPE110", "clock", WARN, fix="Set the clock.")
def clock(found: Machine, t: MachineThresholds) -> Iterator[Sighting]:
    """The clock is before this program was made, or before the newest file in the folder.

    Why it matters
    Certificates and tokens are refused, and the newest checkpoint is not the newest.

    False positives
    Files that came from a machine whose clock is ahead.
    """
    if found.now < t.made:
        yield seen(WARN, f"the clock says {found.now:.0f} s since 1970", (), made=t.made)
    elif found.newest is not None and found.newest > found.now + t.ahead:
        yield seen(
            WARN, f"a file in the folder is from {found.newest - found.now:.0f} s in the future", (), ahead=t.ahead
        )


@check("TPE111", "known-fault", FAIL, fix="Install another version; the source says since which it is repaired.")
def known_fault(found: Machine, t: MachineThresholds) -> Iterator[Sighting]:
    """A version of a package is installed that has a known fault: harmful code, a wrong loss, or a pair that does not go together.

    The table is small and dated; versions are read from the packages' metadata, and harmful ones are not imported.

    Why it matters
    Some steal credentials when they are imported; others train on a wrong loss without a word.

    False positives
    Builds that carry the repair under the old number.
    """
    if not found.versions:
        raise CannotTell("none of the packages with known faults is installed")
    for fault in known_faults(found.versions):
        pair = f" with {fault.beside[0]} {found.versions[fault.beside[0]]}" if fault.beside else ""
        what = f"{fault.package} {found.versions[fault.package]}{pair}: {fault.what} ({fault.source}, {fault.date})"
        yield seen(FAIL if fault.harmful else WARN, what, ())


@check(
    "TPE112", "checkpoints-fill-the-disk", FAIL, fix="Keep fewer checkpoints (save_total_limit), or write elsewhere."
)
def checkpoints_fill_the_disk(found: Machine, t: MachineThresholds) -> Iterator[Sighting]:
    """The folder has no room for one more checkpoint as large as the newest, or will be full soon at the pace of those that are there.

    Why it matters
    The run ends in the middle of writing a checkpoint, and that one is lost.

    False positives
    Runs that are over; trainers that delete old checkpoints are told from those that do not by what is left in the folder.
    """
    if found.disk is None or not found.saved:
        raise CannotTell("no checkpoints in the folder")
    newest, first = found.saved[-1], found.saved[0]
    if found.disk < newest.size:
        message = f"{found.disk:.2f} GiB are free, the newest checkpoint has {newest.size:.2f}"
        yield seen(FAIL, message, ())
        return
    hours = (newest.when - first.when) / 3600
    written = sum(one.size for one in found.saved[1:])
    if len(found.saved) < t.checkpoints_least or hours <= 0 or written <= 0:
        raise CannotTell(f"under {t.checkpoints_least} checkpoints: no pace")
    left = found.disk / (written / hours)
    if left < t.hours_left:
        more = int(found.disk / newest.size)
        message = f"{len(found.saved)} checkpoints in {hours:.1f} h: full in {left:.1f} h, after {more} more"
        yield seen(WARN, message, (), hours_left=t.hours_left)
