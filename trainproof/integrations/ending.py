"""What the callbacks say and leave behind when a run ends, or is ended."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainproof.errors import TrainproofError
from trainproof.guardian import Guardian

logger = logging.getLogger("trainproof")


@contextmanager
def quietly() -> Iterator[None]:
    """Also as a decorator `@quietly()`: an error of our own is told, and never reaches the training."""
    try:
        yield
    except Exception:
        logger.warning("trainproof: an error of its own", exc_info=True)


def stop_message(guardian: Guardian, step: int, total: int | None) -> str:
    """Why the run was stopped, at which of how many steps, and how much of it that saves."""
    at = f"step {step}"
    if total and total > step:
        at += f" of {total}, which saves {1 - step / total:.0%} of the run"
    found = "; ".join(f"{f.rule} {f.name} at step {f.flagged_step}: {f.message}" for f in guardian.stopped_by)
    return f"trainproof stopped the run at {at}: {found}"


def tell_stop(guardian: Guardian, step: int, total: int | None) -> str:
    """`stop_message`, told through the logger "trainproof"."""
    message = stop_message(guardian, step, total)
    logger.error("%s", message)
    return message


def write_reports(guardian: Guardian, folder: str | Path) -> None:
    """The verdict as `trainproof.json` and the report as `trainproof.html` in `folder`; what cannot be written costs one line."""
    if not guardian.records:
        return
    from trainproof.output import write_whole
    from trainproof.report.html import render_html
    from trainproof.report.json import render_json

    report = guardian.report()
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        write_whole(Path(folder) / "trainproof.json", render_json(report))
        write_whole(Path(folder) / "trainproof.html", render_html(report))
    except (TrainproofError, OSError) as error:
        logger.warning("trainproof: no report: %s", error)
