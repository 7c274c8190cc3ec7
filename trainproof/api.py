"""The public functions: read a log, judge anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from trainproof.errors import FormatError, TrainproofError, UsageError
from trainproof.facts import FACT_NAMES, Facts, FactValue, canonical_fact
from trainproof.frame import Frame
from trainproof.readers.discover import read_logs

if TYPE_CHECKING:
    from trainproof.judge import Settings
    from trainproof.verdict import Report


class Judged(NamedTuple):
    """The report on some inputs, what could not be read, and whether nothing of some named input could be judged."""

    report: Report
    problems: tuple[TrainproofError, ...]
    unjudged: bool


def read_all(
    path: str | Path,
    *,
    format: str | None = None,  # noqa: A002  the command line's own word for it
    mapping: Mapping[str, str] | None = None,
    facts: Mapping[str, FactValue] | None = None,
) -> list[Frame]:
    """Every run of a log file, or of every log below a directory.

    format: the reader to use (default: whichever recognises the content). mapping: our metric name -> the log's.
    facts: what the run is known to have declared. Raises InputError or FormatError when there is nothing to read in
    it, UsageError for wrong arguments.
    """
    logs = list(read_logs([str(path)], format_name=format, mapping=mapping, facts=_facts(facts)))
    frames = [frame for log in logs for frame in log.frames]
    if not frames:
        raise next((log.problem for log in logs if log.problem), FormatError(f"{path}: no training log"))
    return frames


def read(
    path: str | Path,
    *,
    format: str | None = None,  # noqa: A002  the command line's own word for it
    mapping: Mapping[str, str] | None = None,
    facts: Mapping[str, FactValue] | None = None,
) -> Frame:
    """The one run of a log; as `read_all`, but UsageError when there are several."""
    frames = read_all(path, format=format, mapping=mapping, facts=facts)
    if len(frames) != 1:
        raise UsageError(f"{path} holds {len(frames)} runs, expected one; read them with trainproof.read_all(path)")
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
    profile: str | None = None,
) -> Report:
    """Judge a log or a directory of logs (a path), a Frame, a DataFrame, or a dict of columns.

    select, ignore: rule codes or prefixes. profile: a name of `trainproof.profiles.PROFILES`. thresholds: `family.field` ->
    value, on top of it. For the rest see `read_all`; a file in a directory that cannot be read is a run with the verdict SKIP. Raises InputError or FormatError when there is
    nothing to read, UsageError for wrong arguments.
    """
    from trainproof.judge import Settings, judge_frames
    from trainproof.profiles import thresholds_for

    settings = Settings(tuple(select), tuple(ignore), thresholds_for(profile, thresholds))
    if isinstance(run, (str, Path)):
        judged = judge_logs([str(run)], settings, format_name=format, mapping=mapping, facts=_facts(facts))
        if len(judged.problems) == len(judged.report.runs):
            raise judged.problems[0]
        return judged.report
    return judge_frames(_frames(run, mapping, _facts(facts)), settings)


def judge_logs(
    paths: Sequence[str],
    settings: Settings,
    *,
    format_name: str | None = None,
    mapping: Mapping[str, str] | None = None,
    facts: Facts | None = None,
    seen: Callable[[str], None] | None = None,
    processes: int = 1,
) -> Judged:
    """Judge everything that the inputs name, one log at a time; what cannot be read is a run with the verdict SKIP.

    seen: called with the path of each log when it was judged. processes: how many may judge where there are many logs. Raises
    UsageError for an unknown format or rule.
    """
    from trainproof.judge import report_of, selected_rules
    from trainproof.many import Asked, judged_logs
    from trainproof.verdict import Verdict

    selected_rules(settings)  # a wrong selector is told before anything is read
    runs, problems = [], []
    judged: dict[str, bool] = {}
    for log in judged_logs(paths, Asked(settings, format_name, mapping, facts), processes):
        if log.problem is not None:
            problems.append(log.problem)
        runs += log.runs
        judged[log.named] = judged.get(log.named, False) or any(run.verdict is not Verdict.SKIP for run in log.runs)
        if seen is not None:
            seen(log.path)
    return Judged(report_of(runs), tuple(problems), not all(judged.values()))


def compare(
    run: str | Path | Frame | Any,
    baselines: Any,
    *,
    align: str | None = None,
    format: str | None = None,  # noqa: A002  the command line's own word for it
    mapping: Mapping[str, str] | None = None,
    facts: Mapping[str, FactValue] | None = None,
    select: Sequence[str] = ("ALL",),
    ignore: Sequence[str] = (),
    profile: str | None = None,
    thresholds: Mapping[str, float] | None = None,
) -> Report:
    """Judge a run by itself and beside the runs that are trusted.

    run: as for `judge`, one run. baselines: one or a list of such runs, of folders of logs, or of stored baselines (the files that
    `trainproof baseline add` writes). align: "step", "tokens", "samples" or "epoch"; default: chosen from what all have. facts: what
    the run declared. The verdict is SKIP when no baseline can be compared with; the run's `compared` says why. Raises InputError,
    FormatError or UsageError.
    """
    from trainproof.comparing.compare import compare_run
    from trainproof.comparing.load import Reading, as_loaded, load_baselines, load_run, table_baselines
    from trainproof.judge import Settings, report_of
    from trainproof.profiles import thresholds_for

    settings = Settings(tuple(select), tuple(ignore), thresholds_for(profile, thresholds))
    reading = Reading(format, mapping, settings)
    if isinstance(run, (str, Path)):
        own = load_run(str(run), reading, _facts(facts))
    else:
        own = as_loaded(_frames(run, mapping, _facts(facts)), settings)
    found = []
    for one in baselines if isinstance(baselines, (list, tuple)) else [baselines]:
        if isinstance(one, (str, Path)):
            found += load_baselines([str(one)], reading)
        else:
            found += table_baselines(_frames(one, mapping, Facts()), len(found) + 1, reading)
    return report_of(
        [compare_run(own.frame, found, settings, own=own.report, beside=own.beside, align=align)], "compare"
    )


def _facts(given: Mapping[str, FactValue] | None) -> Facts:
    unknown = [name for name in given or {} if canonical_fact(name) is None]
    if unknown:
        raise UsageError(f"{unknown[0]!r} is not a known fact; known: {', '.join(FACT_NAMES)}")
    return Facts(given)


def _frames(run: Any, mapping: Mapping[str, str] | None, facts: Facts) -> list[Frame]:
    if isinstance(run, Frame):
        return [run.replace(facts=facts.merged(run.facts))] if facts else [run]
    from trainproof.readers.memory import frames_of

    return frames_of(run, mapping=mapping, facts=facts)
