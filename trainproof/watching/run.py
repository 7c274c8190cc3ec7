"""One log that is watched: its runs, each with a guardian, and whether it stands still."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import NamedTuple

from trainproof.facts import Facts
from trainproof.frame import Source
from trainproof.guardian import Guardian
from trainproof.judge import Settings
from trainproof.readers.base import Reader
from trainproof.readers.beside import facts_beside
from trainproof.readers.values import clean_name
from trainproof.rules import all_rules
from trainproof.verdict import Finding, Severity, Verdict
from trainproof.watching.follow import Follower, News, Row

#: records at one look from which on they are judged together
MANY_RECORDS = 256
#: usual distances between records after which a run stands still, if that is longer than the time-out
STALL_TIMES = 10
#: looks that brought records, by whose distances the usual one is known
REMEMBERED_LOOKS = 20


class Watching(NamedTuple):
    """How logs are watched: by which rules, with which facts and names, and after how many seconds without a record one stands still."""

    settings: Settings
    facts: Facts
    mapping: dict[str, str]
    stall_timeout: float


class Run:
    """One run of a watched log: its guardian, its last records, and since when nothing has come."""

    def __init__(self, source: Source, watching: Watching, beside: Facts, now: float) -> None:
        self.name = f"{source.path} {source.name}" if source.name else source.path
        self.guardian = Guardian(
            on_finding=(),
            rank=0,
            facts=watching.facts,
            mapping=watching.mapping,
            settings=watching.settings,
            source=source,
        )
        self.guardian.log.beside = beside
        self.stalled: Finding | None = None
        self.step = 0
        self.loss: float | None = None
        self.losses: list[tuple[int, float]] = []
        self._timeout = watching.stall_timeout
        self._looks = [now]  # when records came
        self._first: tuple[float, int] | None = None

    @property
    def verdict(self) -> Verdict:
        return Verdict.FAIL if self.stalled is not None else self.guardian.verdict

    @property
    def findings(self) -> tuple[Finding, ...]:
        return self.guardian.findings if self.stalled is None else (self.stalled, *self.guardian.findings)

    def take(self, rows: list[Row], now: float) -> list[Finding]:
        """New records; the findings that are new with them. `now` is in seconds of a clock that never jumps."""
        self.stalled = None
        self._looks = [*self._looks, now][-REMEMBERED_LOOKS:]
        self._first = self._first or (now, rows[-1][1])
        self.step = rows[-1][1]
        names = self.guardian.log.names
        found: list[Finding] = []
        if len(rows) > MANY_RECORDS:
            found += self.guardian.extend(rows)
        else:
            for line, step, values in rows:
                found += self.guardian.record(step, values, line)
        names = self.guardian.log.names
        for _, step, values in rows:
            for name, value in values.items():
                if names.get(name) == "loss":
                    self.losses.append((step, value))
        self.losses = self.losses[-MANY_RECORDS:]
        self.loss = self.losses[-1][1] if self.losses else None
        return found

    def stall(self, now: float) -> list[Finding]:
        """The finding that the run stands still, once, if it does."""
        usual = median([b - a for a, b in zip(self._looks, self._looks[1:], strict=False)] or [0.0])
        limit = max(self._timeout, STALL_TIMES * usual)
        waited = now - self._looks[-1]
        if self.stalled is not None or not self.guardian.records or waited < limit:
            return []
        rule = all_rules()["TP907"]
        self.stalled = Finding(
            rule=rule.code,
            name=rule.name,
            severity=Severity.FAIL,
            message=f"no record has come for {waited:.0f} s, since step {self.step}.",
            first_step=self.step,
            last_step=self.step,
            flagged_step=self.step,
            evidence=(),
            threshold={"seconds": limit},
            fix=rule.fix,
            page=rule.page,
        )
        return [self.stalled]

    def eta(self, now: float) -> float | None:
        """Seconds that the run still needs at its pace since it has been watched; None when its planned steps or its pace are not known."""
        total = self.guardian.planned_steps
        if total is None or self._first is None or self.step <= self._first[1]:
            return None
        return max(0.0, (total - self.step) * (now - self._first[0]) / (self.step - self._first[1]))


class WatchedLog:
    """One log and its runs."""

    def __init__(self, path: str, files: list[str], reader: Reader, watching: Watching) -> None:
        self.path = clean_name(path)
        self.follower = Follower(files, reader, watching.mapping)
        self.runs: dict[str, Run] = {}
        self._watching = watching
        self._beside = facts_beside(Path(files[0]))

    @property
    def ended(self) -> bool:
        return bool(self.runs) and self.follower.ended

    def look(self, now: float, last: bool = False) -> Iterator[tuple[Run, Finding]]:
        """Read on; each new finding with its run."""
        for news in self.follower.look(last):
            run = self._run(news, now)
            run.guardian.log.notes.take_notes(self.follower.out, news.run)
            for finding in run.take(news.rows, now):
                yield run, finding
        for name, run in self.runs.items():
            notes = run.guardian.log.notes
            known = notes.event_count
            notes.take_notes(self.follower.out, name)
            new = run.guardian.ask("TP104") if notes.event_count > known else []
            new += run.guardian.ask() if last or self.ended else run.stall(now)
            for finding in new:
                yield run, finding

    def _run(self, news: News, now: float) -> Run:
        """The run that the news are of; a new one where another log, whose steps begin again, took the place of the one before."""
        run = self.runs.get(news.run)
        if run is None or (news.anew and news.rows[0][1] <= run.step):
            source = Source(self.path, self.follower.reader.name, news.run or None)
            run = self.runs[news.run] = Run(source, self._watching, self._beside, now)
        return run
