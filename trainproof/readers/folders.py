"""Folders that a tracker fills for one run: which of their files are the run's log. The rest, and what lies below, is not read.

A tracker keeps a run's console text, its last values, its model and its artifacts beside its curves; the same run must
not be judged twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

from trainproof.errors import TrainproofError
from trainproof.readers.mlflow import files_below, is_judged, is_run_folder
from trainproof.readers.source import LogInput
from trainproof.readers.wandb import has_history

#: what W&B calls the history (until 2020), the text that a run printed, and what it keeps of every run
_OLD_HISTORY, _CONSOLE = "wandb-history.jsonl", "output.log"
_SUMMARIES = frozenset({"wandb-summary.json", "wandb-metadata.json"})

#: takes a folder, the names of the files in it and of the folders in it; gives the run's files, as paths below the folder,
#: or None for a folder that is not of its kind
Claim = Callable[[str, Collection[str], Collection[str]], list[str] | None]


def run_files(folder: str, files: Collection[str], below: Collection[str]) -> list[str] | None:
    """The files that are the log of the one run that `folder` is, as paths below it; None when it is no tracker's."""
    return next((found for claim in CLAIMS if (found := claim(folder, files, below)) is not None), None)


def mlflow_run(folder: str, files: Collection[str], below: Collection[str]) -> list[str] | None:
    """An MLflow run, or its `metrics` folder: one file a metric. Nothing of a deleted run, nor of a logged model."""
    path = Path(folder).absolute()
    if path.name == "metrics" and is_run_folder(path.parent):
        return files_below(path)
    if "metrics" not in below or not is_run_folder(path):
        return None
    return [f"metrics/{file}" for file in files_below(path / "metrics")] if is_judged(path) else []


def wandb_run(folder: str, files: Collection[str], below: Collection[str]) -> list[str] | None:
    """A W&B run, or its `files` folder: the history, else the console text that was captured beside it."""
    stores = [name for name in files if name.endswith(".wandb")]
    if any(_has_history(Path(folder, name)) for name in stores):
        return stores
    if _OLD_HISTORY in files:
        return [_OLD_HISTORY]
    if _SUMMARIES.intersection(files):
        return [_CONSOLE] if _CONSOLE in files else []
    if stores and "files" in below and Path(folder, "files", _CONSOLE).is_file():
        return [f"files/{_CONSOLE}"]
    return None


def _has_history(store: Path) -> bool:
    log = LogInput(str(store))
    try:
        return has_history(log)
    except TrainproofError:
        return False
    finally:
        log.close()


CLAIMS: tuple[Claim, ...] = (mlflow_run, wandb_run)
