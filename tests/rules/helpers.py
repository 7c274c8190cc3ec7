"""Frames made by hand, and one rule run as the judge runs it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from trainproof.facts import Facts, FactValue
from trainproof.frame import Event, Floats, Frame, Repair, Segment, Series
from trainproof.judge import DEFAULTS, Settings, _run_rule
from trainproof.rules import all_rules
from trainproof.rules.registry import CannotTell, Sighting
from trainproof.stats import schedule
from trainproof.verdict import SEVERITY_RANK, Severity


def make_series(name: str, values: Any, steps: Sequence[int] | None = None) -> Series:
    """A series at `steps` (default 1, 2, ...); `values` may also be a pair (steps, values). A record's line is its ordinal."""
    if isinstance(values, tuple):
        steps, values = values
    value = np.asarray(values, dtype=np.float64)
    step = np.arange(1, len(value) + 1) if steps is None else np.asarray(steps)[: len(value)]
    return Series(name, step.astype(np.int64), value, np.arange(1, len(value) + 1, dtype=np.int64))


def make_frame(
    named: Mapping[str, Any] | None = None,
    /,
    *,
    facts: Mapping[str, FactValue] | None = None,
    objective: str = "unknown",
    steps: Sequence[int] | None = None,
    repairs: Iterable[Repair] = (),
    events: Iterable[Event] = (),
    segments: Iterable[Segment] = (),
    masked: Iterable[str] = (),
    **series: Any,
) -> Frame:
    """`make_frame(loss=[2.0, 1.9], facts={"total_steps": 100})`; other names as `make_frame({"eval/loss": ([10, 20], [1.9, 1.8])})`."""
    return Frame(
        {name: make_series(name, values, steps) for name, values in {**series, **(named or {})}.items()},
        facts=Facts(facts),
        objective=objective,
        repairs=tuple(repairs),
        events=tuple(events),
        segments=tuple(segments),
        masked=frozenset(masked),
    )


def run_rule(code: str, frame: Frame, settings: Settings = DEFAULTS) -> list[Sighting]:
    """What rule `code` says of `frame`. Raises CannotTell when the judge would skip it."""
    with np.errstate(all="ignore"):
        return list(_run_rule(all_rules()[code], frame, settings))


def only(code: str, frame: Frame) -> Sighting:
    """The one sighting of rule `code`."""
    [seen] = run_rule(code, frame)
    return seen


def severities(code: str, frame: Frame) -> list[Severity]:
    return [seen.severity for seen in run_rule(code, frame)]


def learning_rate(n: int, schedule: str = "linear", peak: float = 1e-3, warmup: float = 0.05) -> Floats:
    """A healthy schedule over n steps with a linear warm-up: linear, cosine, constant or wsd (decay over the last fifth)."""
    step = np.arange(1, n + 1, dtype=np.float64)
    rise = np.minimum(1.0, step / max(1.0, warmup * n))
    progress = np.clip((step - warmup * n) / max(1.0, n - warmup * n), 0.0, 1.0)
    shape = {
        "linear": 1 - progress,
        "cosine": (1 + np.cos(np.pi * progress)) / 2,
        "constant": np.ones(n),
        "wsd": np.minimum(1.0, (1 - progress) / 0.2),
    }[schedule]
    rates: Floats = peak * rise * shape
    return rates


def healthy_frame(
    n: int, sigma: float, seed: int, schedule: str = "linear", heavy_tails: bool = False, **more: Any
) -> Frame:
    """A synthetic healthy run: (1.15 + .65 exp(-i / (n / 5))) x lognormal(0, sigma), with a learning rate and gradient norms.

    Gradient norms are log-normal (.3), or with `heavy_tails` the exponential of a Student t with 3 degrees of freedom (.3).
    """
    rng = np.random.default_rng(seed)
    loss = (1.15 + 0.65 * np.exp(-np.arange(n) / (n / 5))) * rng.lognormal(0, sigma, n)
    grad_norm = np.exp(0.3 * (rng.standard_t(3, n) if heavy_tails else rng.standard_normal(n)))
    facts = {"total_steps": n, **more.pop("facts", {})}
    return make_frame(loss=loss, lr=learning_rate(n, schedule), grad_norm=grad_norm, facts=facts, **more)


def says_so_live(code: str, frame: Frame, scheduled: bool = False, resumed: bool = False) -> Sighting:
    """The one sighting of the rule, after checking that a reader of the log so far says it at that step and not before.

    Before is the step before, or with `scheduled` the judging point before: trends are judged at those and at the end of a log; or with
    `resumed` the last step before the last segment, which is known for one with its second record.
    """
    whole = only(code, frame)
    [live] = run_rule(code, frame.between(0, whole.flagged_step))
    assert (live.severity, live.flagged_step) == (whole.severity, whole.flagged_step)
    before = whole.flagged_step - 1
    if scheduled:
        assert frame.main is not None
        counts = schedule(int(np.searchsorted(frame.main.step, before, side="right")))
        before = int(frame.main.step[counts[-2] - 1]) if len(counts) > 1 else before
    if resumed:
        assert frame.main is not None
        assert whole.flagged_step == frame.main.step[np.searchsorted(frame.main.step, frame.segments[-1].start) + 1]
        before = frame.segments[-1].start - 1
    try:
        said = run_rule(code, frame.between(0, before))
    except CannotTell:
        return whole
    assert not [seen for seen in said if SEVERITY_RANK[seen.severity] >= SEVERITY_RANK[whole.severity]]
    return whole
