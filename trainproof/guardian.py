"""Guardian: the judge of a run while it burns, with the rules, the thresholds and the answers of the finished log."""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from trainproof.errors import UsageError
from trainproof.facts import Facts, FactValue
from trainproof.frame import Frame, Source
from trainproof.judge import Settings, ask_rule, judge_run, judges, report_of, selected_rules
from trainproof.live.asked import ALL, EVALUATION, NOTHING, OTHERS, REWARD, SCREENED, Asked
from trainproof.live.records import GrowingLog
from trainproof.live.schedule import TREND_RULES
from trainproof.live.screens import Screens
from trainproof.live.standing import Key, Often, Standing
from trainproof.rules.registry import Rule
from trainproof.verdict import SEVERITY_RANK, Finding, Report, RunReport, Severity, Verdict, fold_severities

logger = logging.getLogger("trainproof")

LIVE = Source("<live>", "live")
POLICIES = ("warn", "stop_on_fail")
#: rules that are asked at evaluations and at rewards, which are few and slow; they clear, and are asked again
SLOW = (EVALUATION | REWARD) - {"TP110", "TP402", "TP103"}
#: of how many records of a state that lasts they are asked about each
SLOW_RECORDS = dict.fromkeys(SLOW, 2000)
#: rules that stop a run only when a second record confirms them: some trainers skip one bad step by design
CONFIRMED = frozenset({"TP101"})
#: the rule that stops a run only when some more records have not come back: a deep spike looks as a diverged run does
WAITS = "TP203"

#: the types of most values, which are numbers without a question
PLAIN = frozenset({float, int})

Hook = Callable[[Finding], object]


class Guardian:
    """Watches one training run: `observe` each logged record, get the findings that are new.

    policy: "warn" (default) observes and never interferes; "stop_on_fail" sets `should_stop` when a rule that stops has failed the run.
    stop_rules: the rules (codes) that stop it; default: those of the catalogue that are marked as stopping. on_finding: called with each
    new finding; default: one line through the logger "trainproof". on_cleared: with each that no longer stands. facts: what the run declared (total_steps, vocab_size ...). rank: of
    this process (default: the environment's RANK); every other than 0 is quiet. select, ignore, thresholds, mapping: as for
    `trainproof.judge`; or `settings` in place of the first three. Raises UsageError for wrong arguments, and nothing later: an error inside is logged once, and silences it.
    """

    def __init__(
        self,
        *,
        policy: str = "warn",
        stop_rules: Sequence[str] | None = None,
        on_finding: Hook | Iterable[Hook] | None = None,
        on_cleared: Hook | Iterable[Hook] = (),
        facts: Mapping[str, FactValue] | None = None,
        rank: int | None = None,
        select: Sequence[str] = ("ALL",),
        ignore: Sequence[str] = (),
        thresholds: Mapping[str, float] | None = None,
        mapping: Mapping[str, str] | None = None,
        source: Source = LIVE,
        settings: Settings | None = None,
    ) -> None:
        if policy not in POLICIES:
            raise UsageError(f"policy {policy!r}: expected one of {', '.join(POLICIES)}")
        self._settings = settings or _settings(select, ignore, thresholds)
        self._rules = {rule.code: rule for rule in selected_rules(self._settings)}
        speaking = {code for code, rule in self._rules.items() if rule.severity is not Severity.INFO}
        self._every = speaking - TREND_RULES
        self._others = speaking - SCREENED
        self._stopping = _stopping(self._rules, stop_rules)
        self._policy = policy
        self._hooks = (tell,) if on_finding is None else _hooks(on_finding)
        self._cleared_hooks = _hooks(on_cleared)
        self._quiet = (_rank() if rank is None else rank) != 0
        self._left_out = False
        self._log = GrowingLog(source, facts if isinstance(facts, Facts) else Facts(facts), mapping)
        self._begin()

    def _begin(self, told: Mapping[Key, int] | None = None) -> None:
        self._standing = Standing(told)
        self._often = Often()
        self._screens = Screens(self._settings.thresholds, self._standing, self._rules.values())
        self._stopped_by: tuple[Finding, ...] = ()
        #: flagged step of a loss that may come back -> records that there were when it failed
        self._waits: dict[int, int] = {}
        self._runs = 1
        self._judged = False

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings that stand: a later record may clear one, or arm it again."""
        return self._standing.findings

    @property
    def verdict(self) -> Verdict:
        """FAIL, WARN or PASS by the findings that stand; SKIP until some rule could judge the run."""
        findings = self.findings
        return fold_severities(finding.severity for finding in findings) if findings or self._judged else Verdict.SKIP

    @property
    def should_stop(self) -> bool:
        """True once a stopping rule has failed the run, under the policy "stop_on_fail"."""
        return bool(self._stopped_by)

    @property
    def stopped_by(self) -> tuple[Finding, ...]:
        """The findings for which `should_stop` became True."""
        return self._stopped_by

    @property
    def records(self) -> int:
        """Number of records observed."""
        return self._log.count

    @property
    def planned_steps(self) -> int | None:
        """The planned optimizer steps, as far as the run has declared them."""
        log = self._log
        total = log.facts.merged(log.notes.facts).merged(log.beside).number("total_steps")
        return int(total) if total else None

    @property
    def log(self) -> GrowingLog:
        """The records so far, and what the log says beside them."""
        return self._log

    def observe(self, step: int, **metrics: float) -> list[Finding]:
        """Take one logged record under its logger's names; the findings (WARN and FAIL) that are new with it. Never raises."""
        return self.record(step, metrics)

    def record(self, step: int, metrics: Mapping[str, Any], line: int | None = None) -> list[Finding]:
        """As `observe`, for names that are no Python names; `line` is the record's in its log. Values that are no numbers are left out, and
        so is a record whose step is none, which is told once."""
        if self._quiet:
            return []
        try:
            number = int(step)
        except Exception:
            return self._leave_out(step)
        try:
            names, values = _numbers(metrics)
            return self._take(number, names, values, line) if names else []
        except Exception:
            return self._give_up()

    def extend(self, rows: Iterable[tuple[int, int, Mapping[str, float]]]) -> list[Finding]:
        """Many records at once, as (line, step, values): judged after the last, as if they had come one by one. Never raises."""
        if self._quiet:
            return []
        try:
            new: list[Finding] = []
            for line, step, values in rows:
                asked = self._see(step, tuple(values), tuple(values.values()), line)
                trends = asked.now & TREND_RULES & self._rules.keys()
                new += self._judge(trends, self._screens.held) if trends else []
            return new + self._judge(self._every, self._screens.held)
        except Exception:
            return self._give_up()

    def ask(self, *codes: str) -> list[Finding]:
        """Ask these rules now (none: every rule, as at the end of a log). Never raises."""
        if self._quiet or not self._log.count:
            return []
        try:
            return self._judge(set(codes) & self._rules.keys() if codes else set(self._rules))
        except Exception:
            return self._give_up()

    def run_report(self) -> RunReport:
        """The verdict on the records so far, as `trainproof epoch` gives it on their log."""
        return judge_run(self._log.frames()[-1], self._settings)

    def report(self) -> Report:
        """`run_report` as a report that the renderers take."""
        return report_of([self.run_report()], "watch")

    def state_dict(self) -> dict[str, Any]:
        """Everything that a resumed run needs, in plain types."""
        return {
            "version": 1,
            "rows": [[line, step, values] for line, step, values in self._log.rows()],
            "told": [[*key, severity] for key, severity in self._standing.told.items()],
            "resumed_after": [*self._log.resumed_after],
            "facts": dict(self._log.facts),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from `state_dict`: what was told is not told again. Raises UsageError for a state of another version, or for none."""
        version = state.get("version") if isinstance(state, Mapping) else None
        if version != 1:
            raise UsageError(f"guardian state of version {version!r}, expected 1")
        try:
            rows = deque((int(line), int(step), {**values}) for line, step, values in state["rows"])
            told = {(rule, metric, step): severity for rule, metric, step, severity in state["told"]}
            resumed_after, facts = [*state.get("resumed_after", ())], Facts(state["facts"])
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise UsageError(f"guardian state of version 1 that is damaged: {error!r}") from None
        self._log = GrowingLog(self._log.source, self._log.facts.merged(facts), self._log.mapping)
        self._begin(told)
        for line in resumed_after:
            self.extend(rows.popleft() for _ in range(sum(row[0] <= line for row in rows)))
            self.resume()
        self.extend(rows)

    def resume(self) -> None:
        """Say that the run was resumed here. A log shows it by steps that go back; a guardian whose state is as old as the checkpoint sees
        none, and has to be told: the rules on resumes look across, all others judge what follows as a stretch of its own."""
        self._log.resume()
        self._screens.resume()

    # inside

    def _take(self, step: int, names: tuple[str, ...], values: tuple[float, ...], line: int | None) -> list[Finding]:
        asked = self._see(step, names, values, line)
        due = self._due(asked) if asked.now or asked.often else None
        if due:
            return self._judge(due, self._screens.held)
        if self._waits:
            self._consider_stopping()
        return []

    def _see(self, step: int, names: tuple[str, ...], values: tuple[float, ...], line: int | None) -> Asked:
        """Keep a record; which rules it asks for."""
        columns = self._log.append(step, names, values, line)
        return self._screens.see(step, columns.ours, values) if columns else NOTHING

    def _due(self, asked: Asked) -> set[str]:
        """The rules to run: those that are asked for and can say something worse than what stands."""
        if ALL in asked.now:
            return self._every | asked.now & self._rules.keys()
        due = asked.now & self._rules.keys()
        if OTHERS in asked.now:
            due |= self._others | self._standing.rules - TREND_RULES
        often = [code for code in asked.often if code in self._rules and not self._has_said_all(code)]
        return due | self._often.due(often, self._log.count, SLOW_RECORDS) if often else due

    def _has_said_all(self, code: str) -> bool:
        """Whether a rule stands at the worst that it can say, and needs no second record to confirm it."""
        if code in SLOW or self._standing.severity.get(code, 0) < SEVERITY_RANK[self._rules[code].severity]:
            return False
        return code not in CONFIRMED or any(_is_sure(finding) for finding in self._standing.of(code))

    def _judge(self, codes: set[str], held: frozenset[str] = frozenset()) -> list[Finding]:
        """What is new in what these rules say, but for those that cannot tell yet."""
        frames = self._log.frames()
        if len(frames) > self._runs:  # what was said of the run before stands no longer
            self._standing.clear()
            self._judged = False
            codes = codes | self._every
        self._runs, frame = len(frames), frames[-1]
        new: list[Finding] = []
        with np.errstate(all="ignore"):
            for code in sorted(codes - held):
                if self._standing.has_told(code) or self._screens.may_begin(code, frame):
                    new += self._ask(self._rules[code], frame)
        if codes >= self._others:
            self._screens.calibrate(frame)
        self._consider_stopping()
        self._call(self._hooks, new)
        return new

    def _ask(self, rule: Rule, frame: Frame) -> list[Finding]:
        """What is new in what a rule says of the run."""
        found, skipped = ask_rule(rule, frame, self._settings)
        self._judged = self._judged or (skipped is None and judges(rule, frame, self._settings))
        new, cleared = self._standing.take(rule.code, [f for f in found if f.severity is not Severity.INFO])
        self._call(self._cleared_hooks, cleared)
        return new

    def _call(self, hooks: Iterable[Hook], findings: Iterable[Finding]) -> None:
        for finding in findings:
            for hook in hooks:
                try:
                    hook(finding)
                except Exception:
                    logger.warning("a hook of the guardian failed on %s", finding.rule, exc_info=True)

    def _consider_stopping(self) -> None:
        if self._policy != "stop_on_fail" or self._stopped_by:
            return
        sure = [f for f in self.findings if f.rule in self._stopping and _is_sure(f)]
        now = self._log.count
        self._waits = {f.flagged_step: self._waits.get(f.flagged_step, now) for f in sure if f.rule == WAITS}
        self._stopped_by = tuple(f for f in sure if f.rule != WAITS or self._is_lost(f))

    def _is_lost(self, finding: Finding) -> bool:
        """Whether the loss is still away, and climbs, or did not come back some records after it had failed: it may have been a spike that comes back."""
        waited = self._log.count - self._waits[finding.flagged_step]
        enough = waited >= self._settings.thresholds.loss.diverged_stop_records
        return all(self._screens.is_lost(point.metric, enough) for point in finding.evidence[:1])

    def _leave_out(self, step: object) -> list[Finding]:
        if not self._left_out:
            self._left_out = True
            logger.warning(
                "trainproof leaves out records whose step is no number, such as one of type %s", type(step).__name__
            )
        return []

    def _give_up(self) -> list[Finding]:
        """An error of our own costs the run nothing but its guardian."""
        self._quiet = True
        logger.warning("trainproof stops watching this run because of an error of its own", exc_info=True)
        return []


def _settings(select: Sequence[str], ignore: Sequence[str], thresholds: Mapping[str, float] | None) -> Settings:
    from trainproof.thresholds import Thresholds

    return Settings(tuple(select), tuple(ignore), Thresholds().with_overrides(dict(thresholds or {})))


def _is_sure(finding: Finding) -> bool:
    return finding.severity is Severity.FAIL and (
        finding.rule not in CONFIRMED or finding.last_step > finding.first_step
    )


def _stopping(rules: Mapping[str, Any], chosen: Sequence[str] | None) -> frozenset[str]:
    if chosen is None:
        return frozenset(code for code, rule in rules.items() if rule.stops)
    for code in chosen:
        if code not in rules:
            raise UsageError(f"stop_rules: no rule {code!r} among those selected; `trainproof rules` lists them")
    return frozenset(chosen)


def _hooks(given: Hook | Iterable[Hook]) -> tuple[Hook, ...]:
    return (given,) if callable(given) else tuple(given)


def tell(finding: Finding) -> None:
    """One line through the logger "trainproof"."""
    logger.warning("%s %s at step %d: %s", finding.severity.value, finding.rule, finding.flagged_step, finding.message)


def _rank() -> int:
    rank = os.environ.get("RANK", "0")
    return int(rank) if rank.isdecimal() else 0


def _numbers(metrics: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """The names and values of the metrics that are single numbers: tensors and numpy scalars too, texts and truth values not."""
    if PLAIN.issuperset(map(type, metrics.values())):
        with suppress(OverflowError):  # some integer is too large
            return tuple(metrics), tuple(map(float, metrics.values()))
    return _those_that_are(metrics)


def _those_that_are(metrics: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[float, ...]]:
    values = {}
    for name, value in metrics.items():
        if value is not None and not isinstance(value, (str, bytes, bool)):
            with suppress(Exception):  # whatever it is, it is no number
                values[name] = float(value)
    return tuple(values), tuple(values.values())


@contextmanager
def guard(**arguments: Any) -> Any:
    """`with trainproof.guard(...) as g: g.observe(step, loss=...)`: a Guardian, asked once more when the block ends."""
    guardian = Guardian(**arguments)
    try:
        yield guardian
    finally:
        guardian.ask()
