"""Which rules may have something new to say after a record. The rules themselves decide; a screen only spares asking all of them.

Window rules are asked at the record at which something bears on them: a value that is not finite, zero or repeated, a level that left its
window, an evaluation, a metric that is missing, a step that goes back. Rules on long trends, and those that no screen knows, are asked on
the common schedule; every rule at powers of 2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from math import isfinite
from typing import NamedTuple

from trainproof import stats
from trainproof.facts import Facts
from trainproof.frame import Frame
from trainproof.live.asked import (
    ALL,
    CLOCKS,
    EVAL_SPLITS,
    OTHERS,
    PROGRESS,
    REPEATS,
    RESUMES,
    SCALER,
    Asked,
    See,
    SeeTogether,
    asked_at_each,
)
from trainproof.live.columns import Beside
from trainproof.live.counts import Counted, Counts
from trainproof.live.levels import LossScreen, NormScreen
from trainproof.live.scaling import RateScreen, ScalerScreen
from trainproof.live.schedule import judged_by
from trainproof.live.standing import PartStanding, Standing
from trainproof.rules.gradients import drifts_now
from trainproof.rules.loss import declared_classes, uniform_limit
from trainproof.rules.plateau import is_flat_now
from trainproof.rules.registry import CannotTell, Rule
from trainproof.rules.repeats import Repeats
from trainproof.rules.schedules import warmup_steps
from trainproof.rules.spikes import unrecovered_records
from trainproof.thresholds import Thresholds

#: counts of records at which what a screen should have missed is found
POWERS = frozenset(1 << k for k in range(64))
#: rules that look at all counts of the schedule each time, and what tells whether the newest one has anything for them
NEWEST_COUNT: dict[str, Callable[[Frame, Thresholds], bool]] = {
    "TP204": lambda frame, t: is_flat_now(frame, t.loss),
    "TP404": lambda frame, t: drifts_now(frame, t.gradients),
}
#: records after a step that went back at which the rules on resumes are asked
AFTER_FALL = 25
#: steps that went back beyond which a log is taken for disordered, and their share of its records
MOST_FALLS, FALLS_SHARE = 8, 0.05


class _Shape(NamedTuple):
    """What the names of a record say: what sees the value at which place, and what sees one there that is not finite; what sees several
    of them together; the rules that are asked at each such record; what is judged by their counts; whether the main metric is one."""

    sees: tuple[tuple[See, int], ...]
    broken: tuple[tuple[See, int], ...]
    together: tuple[SeeTogether, ...]
    often: frozenset[str]
    counted: tuple[Counted, ...]
    main: bool


class Screens:
    """All screens of one run. `standing` is what was said of it."""

    def __init__(self, thresholds: Thresholds, standing: Standing, rules: Iterable[Rule]) -> None:
        self._t, self._standing = thresholds, standing
        self._counts = Counts(tuple(rules))
        self._asked = Asked(set(), set())
        self._asks = stats.scheduled_counts() | POWERS
        self._known: dict[str, None] = {}  # every metric seen, in order
        self._main = ""
        self._shapes: dict[tuple[str, ...], _Shape] = {}
        self._later: dict[int, set[str]] = {}
        self._records = self._falls = 0
        self._points = 0  # records with the main metric
        self._furthest: int | None = None  # the last step before the run went back, until it is passed
        self._begun = 0  # the record with the main metric with which a stretch began, after the first one
        self._resumes = False  # with the next record
        self._total: float | None = None
        self._warmup: float | None = None
        self._uniform, self._early = uniform_limit(0.0, thresholds.loss), thresholds.loss.early_loss
        self._rate = RateScreen(thresholds)
        self._facts = Facts()
        self._begin()

    def _begin(self) -> None:
        """A stretch of the run begins: levels and counts are its own."""
        self._since = self._records
        self._shapes.clear()  # they hold the screens of the stretch before
        self._counts.begin()
        self._last_step: int | None = None
        self._first_step = 0
        self._smallest = 0
        self._next_event = -math.inf  # no step before it asks for a rule by itself
        self._losses: dict[str, LossScreen] = {}
        self._repeats: dict[str, Repeats] = {}
        self._beside = Beside(self._t)
        self._beside.declare(self._facts)
        self._last_epoch = -math.inf
        self._norms = NormScreen(self._t.gradients, self._standing.severity)
        self._rate = RateScreen(self._t, self._rate.top)
        self._rate.declare(self._total, self._warmup)
        self._scaler = ScalerScreen(self._t.numerics, SCALER)
        self._epoch: tuple[int, int] | None = None  # its number, and the record at which it began
        self._epochs = 0

    def calibrate(self, frame: Frame) -> None:
        """Take from the run, judged as a whole, what is known of it by now."""
        self._total = frame.facts.number("total_steps")
        self._warmup = warmup_steps(frame)
        self._facts = frame.facts
        self._beside.declare(frame.facts)
        self._counts.know(frame)
        self._rate.declare(self._total, self._warmup)
        self._next_event = -math.inf
        t = self._t.loss
        scratch = frame.objective == "lm" and frame.facts.get("pretrained") is False
        self._uniform = uniform_limit(declared_classes(frame), t)
        self._early = t.early_loss_scratch if scratch else t.early_loss
        for name, screen in self._losses.items():
            screen.limit(self._uniform, self._early)
            if name in frame:
                screen.lost = unrecovered_records(frame, frame[name].finite, t)

    def see(self, step: int, names: tuple[str, ...], values: Sequence[float]) -> Asked:
        """The rules to ask after one more record, under our names."""
        self._records += 1
        asked = self._asked
        if asked.now or asked.often:
            asked = self._asked = Asked(set(), set())
        shape = self._shapes.get(names) or self._shape(names)
        if shape.main:
            self._points += 1
            if self._later and self._points in self._later:
                asked.often.update(self._later.pop(self._points))
            if not self._see_step(step, asked):
                shape = self._shape(names)  # a stretch has begun
        if shape.often:
            asked.often.update(shape.often)
        if isfinite(sum(values)):
            if self._counts.calm and shape.counted is self._counts.latest:
                self._counts.calm -= 1
            else:
                self._counts.see(shape.counted, values, asked)
            for see, place in shape.sees:
                see(step, values[place], asked)
        else:
            self._see_broken(shape, step, values, asked)
        for see_together in shape.together:
            see_together(dict(zip(names, values, strict=True)), asked)
        count = self._records - self._since
        if count in self._asks or OTHERS in asked.often:
            asked.now.add(ALL if count in POWERS else OTHERS)
        return asked

    def _see_broken(self, shape: _Shape, step: int, values: Sequence[float], asked: Asked) -> None:
        """As for others, where some value is not finite, or may not be."""
        self._counts.see(shape.counted, values, asked)
        for sees, finite in (shape.sees, True), (shape.broken, False):
            for see, place in sees:
                if isfinite(values[place]) is finite:
                    see(step, values[place], asked)

    @property
    def held(self) -> frozenset[str]:
        """The rules that cannot tell yet: where steps went back just now, and where the run is among steps that were logged before."""
        if self._points == self._begun:
            return RESUMES
        return REPEATS if self._furthest is not None else frozenset()

    def is_lost(self, loss: str, waited: bool) -> bool:
        """Whether that loss, which TP203 has failed, is still away when one has waited, or still climbs; True where there is no screen."""
        screen = self._losses.get(loss)
        return screen is None or (screen.is_away() and (waited or screen.climbs()))

    def resume(self) -> None:
        """The next record is the first of a resumed run."""
        self._resumes = self._points > 0

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

    def _shape(self, names: tuple[str, ...]) -> _Shape:
        shape = self._shapes.get(names)
        if shape is None:
            named = tuple(name for name in names if name)  # others only repeat a fact
            if not self._known.keys() >= set(named):
                self._known.update(dict.fromkeys(named))
                self._shapes.clear()  # what the others lack may have changed
                self._choose_main()
            shape = self._shapes[names] = _Shape(
                _those(self._seer(name) if name else None for name in names),
                _those(self._seer_of_broken(name) for name in names),
                tuple(self._beside.together(named)),
                asked_at_each(named, self._known),
                tuple(
                    Counted(place, name, judged_by(name, self._known), name == self._main)
                    for place, name in enumerate(names)
                    if name
                ),
                self._main in named,
            )
        return shape

    def _choose_main(self) -> None:
        """The metric that carries the step axis: the loss, else the first one of training."""
        trained = [name for name in self._known if not name.startswith(EVAL_SPLITS) and name not in CLOCKS]
        main = "loss" if "loss" in self._known else next(iter(trained or self._known))
        if main != self._main:
            self._main, self._last_step = main, None

    def _seer(self, name: str) -> See | None:
        """What sees the finite values of a metric."""
        if name == "loss" or (name.startswith("loss/") and "loss" not in self._known):
            return self._seer_of_loss(name)
        seers: dict[str, See] = {
            "grad_norm": self._norms.see,
            "lr": self._rate.see,
            "loss_scale": self._scaler.see_scale,
            "skipped_steps": self._scaler.see_skipped,
            "epoch": self._see_epoch,
        }
        return seers.get(name) or self._beside.seer(name)

    def _seer_of_broken(self, name: str) -> See | None:
        """What sees the values of a metric that are not finite."""
        if name == "loss" or name.startswith("loss/"):
            return self._see_broken_loss
        return self._see_broken_norm if name == "grad_norm" else None

    def _see_broken_loss(self, _: int, __: float, asked: Asked) -> None:
        asked.often.update(("TP101", "TP102", "TP401"))
        self._ask_later(1, "TP101", "TP102")

    def _see_broken_norm(self, _: int, __: float, asked: Asked) -> None:
        asked.often.update(("TP102", "TP103"))
        self._ask_later(1, "TP102", "TP103")

    def _seer_of_loss(self, name: str) -> See:
        """The loss, or each of its parts where the whole is not known, has screens of levels and of repeats."""
        part = PartStanding(self._standing, name) if name != "loss" else None
        screen = self._losses.setdefault(name, LossScreen(self._t, part or self._standing.severity))
        screen.limit(self._uniform, self._early)
        repeats = self._repeats.setdefault(name, Repeats(self._t.data_order))

        def see(_: int, value: float, asked: Asked) -> None:
            screen.see(value, asked.often, asked.now)
            if repeats.see(value):
                asked.often.add("TP604")

        if part is None:
            return see
        also = self._beside.seer(name)

        def see_part(step: int, value: float, asked: Asked) -> None:
            if also is not None:
                also(step, value, asked)
            own = Asked(asked.now, set())
            see(step, value, own)
            if own.often:
                asked.now.update(part.often.due(own.often, self._records, {}))

        return see_part

    def _see_step(self, step: int, asked: Asked) -> bool:
        """Gaps, falls, and shares of the run that have passed; False when a stretch begins."""
        last, self._last_step = self._last_step, step
        if last is None:
            self._first_step, self._next_event = step, -math.inf
            return True
        distance = step - last
        if distance == self._smallest and step < self._next_event and not self._resumes and self._furthest is None:
            return True
        if distance <= 0:
            return not self._fell(step, last)
        if self._resumes:
            self._begin_again(step)
            return False
        if self._furthest is not None and step > self._furthest:
            self._furthest = None
            asked.often.update(REPEATS)
            for points in range(1, AFTER_FALL):
                self._ask_later(points, *REPEATS)
        t = self._t
        if not self._smallest or distance < self._smallest:
            self._smallest = distance
        elif distance >= t.log_quality.gap_times * self._smallest:
            for points in range(1, t.log_quality.gap_back + 2):
                self._ask_later(points, "TP002")
            asked.often.add("TP921")
        self._next_event = self._event_after(step)
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

    def _event_after(self, step: int) -> float:
        """A step before the next one at which a share of the run, the warm-up or the scaler's grace has passed."""
        t, total = self._t, self._total
        events: list[float] = [self._first_step + t.numerics.overflow_grace + t.numerics.overflow_min_steps]
        events += [total * (100 * step // total + 1) / 100] if total else []
        events += [times * self._warmup for times in (1, t.learning_rate.rising_warmups)] if self._warmup else []
        return min((event - 1 for event in events if event > step), default=math.inf)

    def _fell(self, step: int, last: int) -> bool:
        """A step went back: True when the run may have been resumed, or begun anew; a disordered log goes on as it is."""
        self._falls += 1
        if self._falls > MOST_FALLS and self._falls > FALLS_SHARE * self._records:
            return False
        self._furthest = max(last, self._furthest or last)
        self._begin_again(step)
        return True

    def _begin_again(self, step: int) -> None:
        """A resumed stretch, or another run, begins with this record."""
        self._begin()
        self._resumes, self._begun = False, self._points
        self._last_step = self._first_step = step
        for points in range(1, AFTER_FALL):
            self._ask_later(points, OTHERS)
        self._ask_later(self._t.resume.jump_records, "TP701")

    def _see_epoch(self, step: int, value: float, asked: Asked) -> None:
        """TP506 speaks some records after a new epoch has begun, TP902 when some epochs are over."""
        if value < self._last_epoch - self._t.resume.counter_least:
            asked.often.add("TP703")
        self._last_epoch = value
        if self._beside.expected is not None:
            self._beside.see_epoch(step, value, asked)
        number = math.floor(value - 1e-9)
        before = self._epoch
        if before is not None and number == before[0]:
            return
        self._epoch = (number, self._points)
        if before is not None and number > before[0]:
            self._epochs += 1
            if self._epochs >= self._t.throughput.creep_epochs:
                asked.now.add("TP902")
            t = self._t.evaluation
            wait = min(max((self._points - before[1]) // 5, t.staircase_least), t.staircase_most)
            for points in range(wait - 2, wait + 2):
                self._ask_later(points, "TP506")


def _those(seers: Iterable[See | None]) -> tuple[tuple[See, int], ...]:
    """Those that there are, each with its place."""
    return tuple((see, place) for place, see in enumerate(seers) if see is not None)


def _passes(last: int, step: int, warmup: float, t: Thresholds) -> bool:
    """Whether the warm-up, or as many of them as TP303 waits for, end between two steps."""
    return any(last < times * warmup <= step for times in (1, t.learning_rate.rising_warmups))
