"""Folders that a tracker fills for one run: which of their files are the run's log. The rest, and what lies below, is not read.

A tracker keeps a run's console text, its last values, its model and its artifacts beside its curves; the same run must
not be judged twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

from trainproof.readers.mlflow import files_below, is_judged, is_run_folder

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


CLAIMS: tuple[Claim, ...] = (mlflow_run,)
