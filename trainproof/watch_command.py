"""`trainproof watch`: the options, and the loop around logs that grow."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from trainproof.command import mapping_of, rules_of
from trainproof.errors import InputError, TrainproofError, UsageError
from trainproof.facts import parse_fact_options
from trainproof.judge import Settings, report_of, selected_rules
from trainproof.output import colored, tell, write_whole
from trainproof.readers.base import reader_for
from trainproof.readers.discover import Found, find_logs
from trainproof.verdict import RunReport, Verdict
from trainproof.watching.display import Display
from trainproof.watching.finding import files_at, written_by
from trainproof.watching.hooks import Commands
from trainproof.watching.process import is_running
from trainproof.watching.run import Run, WatchedLog, Watching


class WatchOptions(NamedTuple):
    """The options of `trainproof watch`, as they were typed."""

    paths: tuple[str, ...]
    until_fail: bool = False
    once: bool = False
    interval: float = 10.0
    stall_timeout: float = 600.0
    pid: int | None = None
    exec_command: str | None = None
    html: str | None = None
    format_name: str | None = None
    mapping: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    color: str = "auto"


def run_watch(
    options: WatchOptions, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
) -> int:
    """Watch until the logs end, or a run fails and --until-fail was asked for; the exit code. Raises TrainproofError."""
    watch = Watch(options, clock)
    try:
        while (code := watch.look()) is None:
            sleep(options.interval)
    finally:
        watch.close()
    return code


class Watch:
    """The logs that the inputs name, now and later, and what is to be done about their findings."""

    def __init__(self, options: WatchOptions, clock: Callable[[], float]) -> None:
        if options.pid is not None and os.name != "posix":
            raise UsageError("--pid asks for processes in the way of POSIX, which this system does not know")
        if "-" in options.paths:
            raise UsageError("watch follows files; judge a stream at its end with `trainproof epoch -`")
        settings = Settings(rules_of(options.select) or ("ALL",), rules_of(options.ignore))
        selected_rules(settings)  # a wrong selector is told at once
        self._forced = reader_for(options.format_name) if options.format_name else None
        self._watching = Watching(
            settings, parse_fact_options(options.facts), mapping_of(options.mapping), options.stall_timeout
        )
        self._options, self._clock = options, clock
        self._logs: dict[str, WatchedLog] = {}  # by the path of their first file
        self._looked: dict[str, object] = {}  # inputs, and what was there when logs were last looked for in them
        self._problems: dict[str, str] = {}
        self._commands = Commands(options.exec_command)
        self._display = Display(sys.stdout is not None and sys.stdout.isatty(), colored(options.color))
        self._written: dict[int, tuple[Verdict, int]] = {}

    @property
    def runs(self) -> list[Run]:
        return [run for log in self._logs.values() for run in log.runs.values()]

    @property
    def bytes_read(self) -> int:
        """Bytes read of the logs that are followed as streams."""
        return sum(log.follower.bytes_read for log in self._logs.values())

    def look(self) -> int | None:
        """One look at everything; the exit code when there is nothing more to wait for."""
        pid = self._options.pid
        now, once = self._clock(), self._options.once or (pid is not None and not is_running(pid))
        self._find()
        for log in self._logs.values():
            for run, finding in log.look(now, last=once):
                self._commands.run(run.name, finding)
        self._commands.look_after()
        self._display.show(self.runs, now)
        self._write_html()
        failed = any(run.verdict is Verdict.FAIL for run in self.runs)
        if failed and self._options.until_fail:
            return 1
        if once or (self._logs and all(log.ended for log in self._logs.values())):
            self._tell_problems()
            return 1 if failed else 0 if any(_was_judged(run) for run in self.runs) else 2
        return None

    def close(self) -> None:
        """Let go of all files, once the commands have ended."""
        self._commands.wait()
        for log in self._logs.values():
            log.follower.close()

    def _find(self) -> None:
        """Logs that have appeared since the last look. One that cannot be read yet may be so later."""
        followed = {path for log in self._logs.values() for path in log.follower.paths}
        for named in self._options.paths:
            there = [(path, 0 if path in followed else size) for path, size in files_at(named)]
            if self._looked.get(named) == there:
                continue
            self._looked[named] = there
            try:
                self._follow(list(find_logs(named, self._forced)))
                self._problems.pop(named, None)
            except TrainproofError as error:
                self._problems[named] = str(error)

    def _follow(self, logs: list[Found]) -> None:
        """Follow these logs; of an output folder's checkpoints the furthest one, as what the run has written by now."""
        taken: set[str] = set()
        for found in logs:
            files = [log.path for log in found.files]
            for log in found.files:
                log.close()
            key = written_by(files[0])
            known = self._logs.get(key)
            if key in taken:
                continue
            taken.add(key)
            if known is None or known.follower.reader.name != found.reader.name:
                self._logs[key] = WatchedLog(found.path, files, found.reader, self._watching)
            elif known.follower.paths != files:
                known.follower.move_to(files)

    def _tell_problems(self) -> None:
        own = [str(log.follower.problem) for log in self._logs.values() if log.follower.problem and not log.runs]
        for problem in (*self._problems.values(), *own):
            tell(problem)

    def _write_html(self) -> None:
        """The report, when a verdict has changed or a run has grown by a twentieth."""
        if not self._options.html:
            return
        state = {id(run): (run.verdict, run.guardian.records) for run in self.runs}
        if not state or not any(_is_news(self._written.get(key), now) for key, now in state.items()):
            return
        from trainproof.report.html import render_html

        self._written = state
        page = render_html(report_of([_report(run) for run in self.runs], "watch"))
        refresh = f'<head>\n<meta http-equiv="refresh" content="{max(1, round(self._options.interval))}">'
        try:
            write_whole(Path(self._options.html), page.replace("<head>", refresh, 1))
        except InputError as error:
            tell(f"no HTML report: {error}")


def _report(run: Run) -> RunReport:
    from msgspec.structs import replace

    report = run.guardian.run_report()
    if run.stalled is None:
        return report
    return replace(report, verdict=Verdict.FAIL, findings=(run.stalled, *report.findings))


def _is_news(before: tuple[Verdict, int] | None, now: tuple[Verdict, int]) -> bool:
    return before is None or before[0] is not now[0] or (now[1] >= 1.05 * before[1] > 0 and now[1] > before[1])


def _was_judged(run: Run) -> bool:
    return run.guardian.run_report().verdict is not Verdict.SKIP
