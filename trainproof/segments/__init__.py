"""One file is not one run: appended runs, restarts, resumes, several writers, duplicated and shuffled lines.

Where a log goes back is decided within one series, the main one (the loss, else the longest), never across series: an
evaluation may be numbered by epochs beside a loss numbered by iterations. The other series are cut at the same lines.
"""

from __future__ import annotations

from trainproof.frame import Frame
from trainproof.segments.epochs import numbered_on
from trainproof.segments.falls import falls_of
from trainproof.segments.joining import by_step, cut, one_run, segment
from trainproof.segments.order import repeats, rises
from trainproof.segments.repairs import disorder, duplicates_told
from trainproof.segments.writers import split_writers


def split_runs(frame: Frame) -> list[Frame]:
    """The runs of one log, each with every series ordered by unique steps; what was done is in `repairs` and `segments`.

    The series given are in the order of the log. Of several values of one step the one that was logged last is kept.
    A log in order is handed on as it is, its arrays not copied.
    """
    main = frame.main
    if main is None or not len(main):
        return [frame]
    if all(rises(step) for step in {id(series.step): series.step for series in frame.values()}.values()):
        return [frame.replace(segments=(segment(main, "start"),))]
    frame, counted_on = numbered_on(frame, main)
    repairs = [*frame.repairs, *counted_on]
    main = frame[main.name]
    repeated = repeats(main)
    falls = falls_of(frame, main, repeated)
    writers = split_writers(frame, main, repeated, disorder=falls is None)
    if writers is not None:
        writers[0] = writers[0].replace(repairs=(*repairs, *duplicates_told(main, repeated), *writers[0].repairs))
        return [run for i, part in enumerate(writers, 1) for run in split_runs(_named(part, "writer", i))]
    if falls is None:
        return [by_step(frame, main, [*repairs, *duplicates_told(main, repeated), disorder(main.take(~repeated))])]
    runs = [
        one_run(run, main.name, [fall for fall in falls if line < fall.line < end and fall.kind != "run"])
        for run, line, end in cut(frame, main, [fall for fall in falls if fall.kind == "run"])
    ]
    runs[0] = runs[0].replace(repairs=(*repairs, *runs[0].repairs))
    return runs if len(runs) == 1 else [_named(run, "run", i) for i, run in enumerate(runs, 1)]


def _named(run: Frame, what: str, number: int) -> Frame:
    name = f"{run.source.name}, {what} {number}" if run.source.name else f"{what} {number}"
    return run.replace(source=run.source._replace(name=name))
