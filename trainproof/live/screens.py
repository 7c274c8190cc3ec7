"""Which rules may have something new to say after a record. The rules themselves decide; a screen only spares asking all of them.

Window rules are asked at the record at which something bears on them: a value that is not finite, zero or repeated, a level that left its
window, an evaluation, a metric that is missing, a step that goes back. Rules on long trends, and those that no screen knows, are asked on
the common schedule; every rule at powers of 2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from trainproof import stats
from trainproof.frame import Frame
from trainproof.live.levels import LossScreen, NormScreen
from trainproof.live.scaling import RateScreen, ScalerScreen
from trainproof.rules.gradients import drifts_now
from trainproof.rules.log_quality import WATCHED
from trainproof.rules.loss import declared_classes, uniform_limit
from trainproof.rules.plateau import is_flat_now
from trainproof.rules.registry import CannotTell, Rule
from trainproof.rules.schedules import warmup_steps
from trainproof.thresholds import Thresholds

#: asks for every rule; for every rule that no screen knows
ALL, OTHERS = "ALL", "OTHERS"
#: rules that judge a trend of one metric at the common schedule's counts of it
TRENDS = {"loss": ("TP204", "TP205"), "grad_norm": ("TP404",), "lr": ("TP304",)}
TREND_RULES = frozenset(code for codes in TRENDS.values() for code in codes)
#: rules that look at all counts of the schedule each time, and what tells whether the newest one has anything for them
NEWEST_COUNT: dict[str, Callable[[Frame, Thresholds], bool]] = {
    "TP204": lambda frame, t: is_flat_now(frame, t.loss),
    "TP404": lambda frame, t: drifts_now(frame, t.gradients),
}
EVALUATION = frozenset("TP103 TP110 TP402 TP501 TP502 TP503 TP504 TP505 TP507 TP509".split())
REWARD = frozenset("TP801 TP802 TP803 TP804 TP805 TP807 TP808 TP809 TP810 TP811 TP813 TP814".split())
SCALER = frozenset({"TP102", "TP105", "TP106", "TP201"})
MISSING = frozenset({"TP005", "TP110"})
PROGRESS = frozenset({"TP206", "TP301", "TP302", "TP303", "TP305"})
#: rules on steps that were logged again: until a resumed run is beyond them, nobody can tell repeats from a resume
REPEATS = frozenset({"TP003", "TP004", "TP708"})
#: ... and by a screen of values or levels
VALUES = frozenset("TP002 TP101 TP107 TP202 TP203 TP207 TP208 TP209 TP210 TP401 TP403 TP406 TP506".split())
SCREENED = TREND_RULES | EVALUATION | REWARD | SCALER | MISSING | PROGRESS | VALUES | {"TP003", "TP004"}

#: values of a metric by which every rule of the catalogue has enough to be asked
MOST_FIRST = 200
#: records after a step that went back at which the rules on resumes are asked
AFTER_FALL = 25
#: steps that went back beyond which a log is taken for disordered, and their share of its records
MOST_FALLS, FALLS_SHARE = 8, 0.05

EVAL_SPLITS = ("eval/", "test/")
CLOCKS = frozenset({"epoch", "time", "tokens"})
#: how metrics begin that only reward, preference and adversarial objectives log
REWARDS = ("reward", "kl", "entropy", "frac_reward", "zero_std", "truncated_ratio", "completion_length", "loss/disc")

See = Callable[[int, float, "Asked"], None]


class Asked(NamedTuple):
    """Rules to ask now; `often` are those whose state may last, and who need not be asked at each of its records."""

    now: set[str]
    often: set[str]


class _Shape(NamedTuple):
    """What the names of a record say: each name with what sees its values and the trends judged by it; the rules that are asked at each
    such record; whether the main metric is among them."""

    sees: tuple[tuple[str, See | None, tuple[str, ...]], ...]
    often: frozenset[str]
    main: bool


class Screens:
    """All screens of one run. `standing` says how severe what each rule has said is: 1 WARN, 2 FAIL."""

    def __init__(self, thresholds: Thresholds, standing: Mapping[str, int], rules: Iterable[Rule]) -> None:
        self._t, self._standing = thresholds, standing
        self._first = _first_asks(rules)
        self._scheduled = stats.scheduled_counts()
        self._known: dict[str, None] = {}  # every metric seen, in order
        self._main = ""
        self._shapes: dict[tuple[str, ...], _Shape] = {}
        self._later: dict[int, set[str]] = {}
        self._records = self._falls = 0
        self._points = 0  # records with the main metric
        self._furthest: int | None = None  # the last step before the run went back, until it is passed
        self._total: float | None = None
        self._warmup: float | None = None
        self._uniform, self._early = uniform_limit(0.0, thresholds.loss), thresholds.loss.early_loss
        self._begin()

    def _begin(self) -> None:
        """A stretch of the run begins: levels and counts are its own."""
        self._since = self._records
        self._shapes.clear()  # they hold the screens of the stretch before
        self._counts: dict[str, int] = {}  # finite values of each metric
        self._last_step: int | None = None
        self._first_step = 0
        self._smallest = 0
        self._losses: dict[str, LossScreen] = {}
        self._norms = NormScreen(self._t.gradients, self._standing)
        self._rate = RateScreen(self._t.learning_rate)
        self._scaler = ScalerScreen(self._t.numerics, SCALER)
        self._epoch: tuple[int, int] | None = None  # its number, and the record at which it began

    def calibrate(self, frame: Frame) -> None:
        """Take from the run, judged as a whole, what is known of it by now."""
        self._total = frame.facts.number("total_steps")
        self._warmup = warmup_steps(frame)
        t = self._t.loss
        scratch = frame.objective == "lm" and frame.facts.get("pretrained") is False
        self._uniform = uniform_limit(declared_classes(frame), t)
        self._early = t.early_loss_scratch if scratch else t.early_loss
        for screen in self._losses.values():
            screen.uniform, screen.early = self._uniform, self._early

    def see(self, step: int, record: Mapping[str, float]) -> Asked:
        """The rules to ask after one more record, under our names."""
        self._records += 1
        asked = Asked(set(), set())
        shape = self._shape(record)
        if shape.main:
            self._points += 1
            if self._points in self._later:
                asked.often.update(self._later.pop(self._points))
            if not self._see_step(step, asked):
                shape = self._shape(record)  # a stretch has begun
        if shape.often:
            asked.often.update(shape.often)
        counts, scheduled = self._counts, self._scheduled
        for (name, see, trends), value in zip(shape.sees, record.values(), strict=True):
            if value - value == 0.0:  # finite
                count = counts[name] = counts.get(name, 0) + 1
                if count <= MOST_FIRST:
                    self._see_first(name, count, asked)
                if trends and count in scheduled:
                    asked.now.update(trends)
            if see is not None:
                see(step, value, asked)
        count = self._records - self._since
        if not count & (count - 1):  # what a screen should have missed is found at powers of 2
            asked.now.add(ALL)
        elif count in scheduled or OTHERS in asked.often:
            asked.now.add(OTHERS)
        return asked

    @property
    def repeating(self) -> bool:
        """Whether the run is among steps that were logged before."""
        return self._furthest is not None

    def due_trends(self) -> set[str]:
        """The trend rules whose metric stands at a count of the common schedule."""
        return {
            code for name, codes in TRENDS.items() if self._counts.get(name, 0) in self._scheduled for code in codes
        }

    def may_begin(self, code: str, frame: Frame) -> bool:
        """False when a rule that has said nothing of the counts before has nothing to say of the newest one."""
        tells = NEWEST_COUNT.get(code)
        if tells is None:
            return True
        last = frame.segments[-1] if frame.segments else None
        try:
            return tells(frame if last is None else frame.between(last.start, last.end), self._t)
        except CannotTell:
            return False

    def _ask_later(self, points: int, *rules: str) -> None:
        """Ask when so many more records with the main metric have come."""
        self._later.setdefault(self._points + points, set()).update(rules)

    def _shape(self, record: Mapping[str, float]) -> _Shape:
        key = tuple(record)
        shape = self._shapes.get(key)
        if shape is None:
            if not self._known.keys() >= record.keys():
                self._known.update(dict.fromkeys(key))
                self._shapes.clear()  # what the others lack may have changed
                self._choose_main()
            often = _asked_at_each(key, self._known)
            sees = tuple((name, self._seer(name), TRENDS.get(name, ())) for name in key)
            shape = self._shapes[key] = _Shape(sees, often, self._main in record)
        return shape

    def _choose_main(self) -> None:
        """The metric that carries the step axis: the loss, else the first one of training."""
        trained = [name for name in self._known if not name.startswith(EVAL_SPLITS) and name not in CLOCKS]
        main = "loss" if "loss" in self._known else next(iter(trained or self._known))
        if main != self._main:
            self._main, self._last_step = main, None

    def _seer(self, name: str) -> See | None:
        """What sees the values of a metric."""
        if name == "loss" or name.startswith("loss/"):
            return self._seer_of_loss(name)
        seers: dict[str, See] = {
            "grad_norm": self._see_norm,
            "lr": self._see_rate,
            "loss_scale": self._scaler.see_scale,
            "skipped_steps": self._scaler.see_skipped,
            "epoch": self._see_epoch,
        }
        return seers.get(name)

    def _seer_of_loss(self, name: str) -> See:
        """The loss, or each of its parts where the whole is not known, has a screen of levels; every part may be not finite."""
        screen = None
        if name == "loss" or "loss" not in self._known:
            screen = self._losses.setdefault(name, LossScreen(self._t.loss, self._standing))
            screen.uniform, screen.early = self._uniform, self._early

        def see(_: int, value: float, asked: Asked) -> None:
            if not math.isfinite(value):
                asked.often.update(("TP101", "TP102", "TP401"))
                self._ask_later(1, "TP101", "TP102")
            elif screen is not None:
                if value == 0:
                    asked.often.add("TP208")
                if abs(value) > self._t.numerics.absurd_loss:
                    asked.often.add("TP107")
                screen.see(value, asked.often)

        return see

    def _see_first(self, name: str, count: int, asked: Asked) -> None:
        """Rules that need that many values of a metric."""
        asked.now.update(self._first.get((name, count), ()))
        if name == self._main:
            asked.now.update(self._first.get(("", count), ()))

    def _see_step(self, step: int, asked: Asked) -> bool:
        """Gaps, falls, and shares of the run that have passed; False when a stretch begins."""
        last, self._last_step = self._last_step, step
        if last is None:
            self._first_step = step
            return True
        distance = step - last
        if distance <= 0:
            return not self._fell(step, last)
        if self._furthest is not None and step > self._furthest:
            self._furthest = None
            for points in range(1, AFTER_FALL):
                self._ask_later(points, *REPEATS)
        t = self._t
        if not self._smallest or distance < self._smallest:
            self._smallest = distance
        elif distance >= t.log_quality.gap_times * self._smallest:
            for points in range(1, t.log_quality.gap_back + 2):
                self._ask_later(points, "TP002")
        if self._total and 100 * step // self._total != 100 * last // self._total:
            asked.now.update(PROGRESS)
        if (
            self._warmup
            and last < t.learning_rate.rising_warmups * self._warmup
            and _passes(last, step, self._warmup, t)
        ):
            asked.now.update(PROGRESS)
        if last < self._first_step + t.numerics.overflow_grace + t.numerics.overflow_min_steps <= step:
            asked.now.update(SCALER)
        return True

    def _fell(self, step: int, last: int) -> bool:
        """A step went back: True when the run may have been resumed, or begun anew; a disordered log goes on as it is."""
        self._falls += 1
        if self._falls > MOST_FALLS and self._falls > FALLS_SHARE * self._records:
            return False
        self._furthest = max(last, self._furthest or last)
        self._begin()
        self._last_step = self._first_step = step
        for points in range(1, AFTER_FALL):
            self._ask_later(points, OTHERS)
        return True

    def _see_norm(self, _: int, value: float, asked: Asked) -> None:
        if math.isfinite(value):
            self._norms.see(value, asked.often)
        else:
            self._ask_later(1, "TP102", "TP103")
            asked.often.update(("TP102", "TP103"))

    def _see_rate(self, step: int, value: float, asked: Asked) -> None:
        if math.isfinite(value):
            self._rate.see(step, value, self._total, asked.now, asked.often)

    def _see_epoch(self, _: int, value: float, asked: Asked) -> None:  # noqa: ARG002  the shape of a See
        """TP506 speaks some records after a new epoch has begun."""
        if not math.isfinite(value):
            return
        number = math.floor(value - 1e-9)
        before = self._epoch
        if before is not None and number == before[0]:
            return
        self._epoch = (number, self._points)
        if before is not None and number > before[0]:
            t = self._t.evaluation
            wait = min(max((self._points - before[1]) // 5, t.staircase_least), t.staircase_most)
            for points in range(wait - 2, wait + 2):
                self._ask_later(points, "TP506")


def _passes(last: int, step: int, warmup: float, t: Thresholds) -> bool:
    """Whether the warm-up, or as many of them as TP303 waits for, end between two steps."""
    return any(last < times * warmup <= step for times in (1, t.learning_rate.rising_warmups))


def _first_asks(rules: Iterable[Rule]) -> dict[tuple[str, int], list[str]]:
    """(metric, or "" for the main one; its number of values) -> the rules that may speak from there on."""
    first: dict[tuple[str, int], list[str]] = {}
    for rule in rules:
        if rule.code not in TREND_RULES:
            metric = "" if not rule.needs or rule.needs[0].endswith("*") else rule.needs[0]
            first.setdefault((metric, rule.min_records), []).append(rule.code)
    return first


def _asked_at_each(names: tuple[str, ...], known: Iterable[str]) -> frozenset[str]:
    """The rules that are asked at each record of these names: of evaluations, of rewards, and where others have a metric more."""
    asked = frozenset[str]()
    for held_out in (True, False):
        here = [name for name in names if name.startswith(EVAL_SPLITS) is held_out and name not in CLOCKS]
        if here and held_out:
            asked |= EVALUATION
        others = (name for name in known if name.startswith(EVAL_SPLITS) is held_out and _is_watched(name))
        if here and any(name not in here for name in others):
            asked |= MISSING
    return asked | REWARD if any(name.startswith(REWARDS) for name in names) else asked


def _is_watched(name: str) -> bool:
    """Whether the log would be the poorer without it: what TP005 and TP110 look for."""
    bare = name.partition("/")[2] if name.startswith(EVAL_SPLITS) else name
    return bare in WATCHED or bare == "loss" or bare.startswith(("lr/", "loss/"))
