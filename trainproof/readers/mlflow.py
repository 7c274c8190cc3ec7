"""MLflow's file store: a run is a folder, a metric a file in its `metrics`, a line `<unix ms> <value> <step>`.

A step of 0 throughout means that the run was logged without steps. `line` is the line in the metric's own file; where a
metric goes back, it is the record's number in the order of time: that tells which points of the others come before.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from trainproof.errors import FormatError
from trainproof.readers.beside import declare_setting, small_text, yaml_fields
from trainproof.readers.builder import FrameBuilder
from trainproof.readers.mlflow_points import Points, give_run
from trainproof.readers.source import HEAD_BYTES, LogInput
from trainproof.readers.values import as_step, clean_name, parse_number

#: `<unix ms> <value> [<step> [<data set> <digest>]]`; the oldest versions had no step
_LINE = re.compile(rb"\d{12,13} (?P<value>\S+)(?: -?\d+(?: \S+ \S+)?)?\r?")
#: the states of a run in meta.yaml (RunStatus in MLflow's service.proto)
STATES = {"1": "RUNNING", "2": "SCHEDULED", "3": "FINISHED", "4": "FAILED", "5": "KILLED"}
#: parameters and tags of one run that are looked at
MOST_SETTINGS = 2000


class MLflowReader:
    name = "mlflow"
    description = "MLflow: run folders, and the metric files in them"

    def sniff(self, head: bytes) -> float:
        lines = head.split(b"\n")
        if len(head) >= HEAD_BYTES:
            lines.pop()  # it may be cut
        matches = [_LINE.fullmatch(line) for line in lines if line]
        if not matches or None in matches:
            return 0.0
        values = [parse_number(match["value"].decode("ascii", "replace")) for match in matches if match]
        return 0.0 if None in values else 0.95

    def read(self, log: LogInput, out: FrameBuilder) -> None:
        self.read_run([log], out)

    def read_run(self, logs: Sequence[LogInput], out: FrameBuilder) -> None:
        """All the metrics of one run."""
        series: dict[str, Points] = {}
        run = None
        for log in logs:
            run, name = _place(log.path)
            points = _points(log, out)
            if len(points.steps):
                series[name] = points
        if not series:
            raise FormatError(
                f"{logs[0].path}: no `<unix ms> <value> <step>` line in it, expected an MLflow metric file"
            )
        give_run(series, out)
        if run is not None:
            _declare(run, out)


def _points(log: LogInput, out: FrameBuilder) -> Points:
    """The points of one metric file; a line that is none is dropped."""
    times, values, steps, lines = [], [], [], []
    widths: tuple[int, ...] = ()
    for line, text in log.lines():
        parts = text.split()
        if not parts:
            continue
        widths = widths or ((2,) if len(parts) == 2 else (3, 5))  # a line that was cut has no step either
        time = as_step(parts[0])
        value = parse_number(parts[1]) if len(parts) in widths else None
        step = as_step(parts[2]) if len(parts) > 2 else 0
        if time is None or value is None or step is None:
            out.drop(line, "not `<unix ms> <value> <step>`")
            continue
        times.append(time)
        values.append(value)
        steps.append(step)
        lines.append(line)
    return Points(
        np.array(times, np.int64), np.array(values, np.float64), np.array(steps, np.int64), np.array(lines, np.int64)
    )


def is_run_folder(folder: Path) -> bool:
    """Whether the folder holds a run (or a logged model, which looks the same): what it has beside its metrics says so."""
    return (folder / "meta.yaml").is_file() or ((folder / "params").is_dir() and (folder / "tags").is_dir())


def is_judged(run: Path) -> bool:
    """Whether a run folder is to be judged: not a deleted run, nor a logged model, which repeats values of its run."""
    meta = dict(yaml_fields(small_text(run / "meta.yaml")))
    return meta.get("lifecycle_stage") != "deleted" and "model_id" not in meta


def files_below(folder: Path) -> list[str]:
    """Paths below the folder, sorted: names of metrics, parameters and tags with a "/" in them lie in sub-folders."""
    found = []
    for root, below, names in os.walk(folder):
        below.sort()
        found += [Path(root, name).relative_to(folder).as_posix() for name in sorted(names)]
    return found


def _place(path: str) -> tuple[Path | None, str]:
    """The run folder that a metric file is in, if it is in one, and the metric: its path below the run's `metrics`.

    A metric's name may itself begin with "metrics/".
    """
    if path == "-":
        return None, "value"
    file = Path(path).absolute()
    homes = [folder for folder in reversed(file.parents) if folder.name == "metrics"]
    home = next((folder for folder in homes if is_run_folder(folder.parent)), None)
    name = file.relative_to(home or (homes[-1] if homes else file.parent)).as_posix()
    return home.parent if home else None, clean_name(name)


def _declare(run: Path, out: FrameBuilder) -> None:
    """What the run's parameters, tags and state say."""
    for kind in ("params", "tags"):
        for name, text in _settings(run / kind):
            declare_setting(out.facts, name, text, f"{kind}/{name}")
    meta = dict(yaml_fields(small_text(run / "meta.yaml")))
    declare_state(str(meta.get("status")), out, "meta.yaml")


def declare_state(state: str, out: FrameBuilder, where: str) -> None:
    """A run's state by name or by its number."""
    state = STATES.get(state, state)
    if state in STATES.values():
        out.facts.declare("status", state, where)
    if state == "FINISHED":
        out.end()


def _settings(folder: Path) -> Iterator[tuple[str, str]]:
    for name in files_below(folder)[:MOST_SETTINGS]:
        yield clean_name(name), small_text(folder / name)
