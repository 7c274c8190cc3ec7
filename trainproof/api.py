"""The public functions: read a log, judge anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trainproof.errors import UsageError
from trainproof.facts import Facts, FactValue
from trainproof.frame import Frame
from trainproof.judge import Settings, judge_frames
from trainproof.readers.discover import read_path
from trainproof.thresholds import Thresholds
from trainproof.verdict import Report


def read_all(
    path: str | Path,
    *,
    format: str | None = None,  # noqa: A002  the command line's own word for it
    mapping: Mapping[str, str] | None = None,
    facts: Mapping[str, FactValue] | None = None,
) -> list[Frame]:
    """Every run of a log file, or of every log below a directory.

    format: the reader to use (default: whichever recognises the content). mapping: our metric name -> the log's. facts: what the run
    is known to have declared. Raises InputError, FormatError or UsageError.
    """
    return read_path(str(path), format_name=format, mapping=mapping, facts=Facts(facts))


def read(
    path: str | Path,
    *,
    format: str | None = None,  # noqa: A002  the command line's own word for it
    mapping: Mapping[str, str] | None = None,
    facts: Mapping[str, FactValue] | None = None,
) -> Frame:
    """The one run of a log; as `read_all`, but UsageError when the log holds several."""
    frames = read_all(path, format=format, mapping=mapping, facts=facts)
    if len(frames) != 1:
        raise UsageError(f"{path} holds {len(frames)} runs; read them with trainproof.api.read_all(path)")
    return frames[0]


def judge(
    run: str | Path | Frame | Any,
    *,
    format: str | None = None,  # noqa: A002  the command line's own word for it
    mapping: Mapping[str, str] | None = None,
    facts: Mapping[str, FactValue] | None = None,
    select: Sequence[str] = ("ALL",),
    ignore: Sequence[str] = (),
    thresholds: Mapping[str, float] | None = None,
) -> Report:
    """Judge a log (path), a Frame, a DataFrame, or a dict of columns. Raises InputError, FormatError or UsageError."""
    settings = Settings(tuple(select), tuple(ignore), Thresholds().with_overrides(dict(thresholds or {})))
    if isinstance(run, Frame):
        frames = [run.replace(facts=Facts(facts).merged(run.facts))] if facts else [run]
    elif isinstance(run, (str, Path)):
        frames = read_all(run, format=format, mapping=mapping, facts=facts)
    else:
        from trainproof.readers.memory import frames_of

        frames = frames_of(run, mapping=mapping, facts=Facts(facts))
    return judge_frames(frames, settings)
