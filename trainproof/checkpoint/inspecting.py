"""Judge checkpoints: open, scan, compare, report."""

from __future__ import annotations

from collections.abc import Sequence

from trainproof.apart import Subject, judge_apart
from trainproof.checkpoint.contents import Checkpoint
from trainproof.checkpoint.opening import open_checkpoints
from trainproof.checkpoint.seen import Seen
from trainproof.judge import Settings
from trainproof.verdict import RunReport


def inspect_checkpoint(
    path: str, older: str | None, settings: Settings, *, frozen: Sequence[str] = (), verify: bool = False
) -> list[RunReport]:
    """The report on each checkpoint that a path names. The last of them is also compared with `older`, or, in a folder of several,
    with the first. Raises InputError."""
    found = open_checkpoints(path)
    other = open_checkpoints(older)[-1] if older is not None else found[0] if len(found) > 1 else None
    return [_judged(one, other if one is found[-1] else None, settings, frozen, verify) for one in found]


def _judged(
    checkpoint: Checkpoint, older: Checkpoint | None, settings: Settings, frozen: Sequence[str], verify: bool
) -> RunReport:
    seen = Seen(checkpoint, older, frozen=frozen, verify=verify)
    facts: dict[str, str | int | float | bool] = {
        "parameters": sum(tensor.elements for tensor in checkpoint.of("model")),
        "bytes": sum(tensor.nbytes for tensor in checkpoint.tensors),
        "parts": ", ".join(sorted({tensor.role for tensor in checkpoint.tensors} | set(checkpoint.state))),
        "checksums": "all" if verify else "of small records",
    }
    if older is not None:
        facts["compared with"] = older.path
    if checkpoint.unbuilt:
        facts["objects that were not built"] = ", ".join(name[:80] for name in checkpoint.unbuilt[:8])
    step = seen.known_step
    subject = Subject(checkpoint.path, "checkpoint", checkpoint.format, len(checkpoint.tensors), step, step, facts)
    return judge_apart("checkpoint", seen, subject, settings)
