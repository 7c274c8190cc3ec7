"""TP974, TP979 to TP982: settings, learning rate, gradient norm, speed and memory beside the baselines'."""

from __future__ import annotations

import math
import re

import numpy as np

from trainproof import stats
from trainproof.comparing.comparison import Comparison
from trainproof.comparing.levels import Gap, level_gap
from trainproof.comparing.matching import Pairs
from trainproof.rules.registry import INFO, WARN, CannotTell, Sighting, rule
from trainproof.rules.standings import Against, Seen, against_all, outcome, told
from trainproof.thresholds import ComparisonThresholds

#: words of settings that describe where a run was made, not what it trains
_ENVIRONMENT = re.compile(
    r"version|python|torch|cuda|transformers|numpy|architecture|device|gpu|precision|dtype|hash|sha\d*|digest", re.I
)
#: facts that set the learning rate
_RATE_FACTS = ("learning_rate", "schedule", "warmup_steps", "warmup_ratio", "total_steps", "epochs")


@rule(
    "TP974",
    "environment-drift",
    severity=INFO,
    fix="Repeat the baseline in the environment of the run before looking for another cause.",
)
def environment_drift(seen: Comparison, t: ComparisonThresholds) -> Seen:
    """Versions, hardware, precision or data differ from the baselines'.

    What it does
    Looks through the declared facts and the settings beside both logs for versions, devices, precisions and hashes that differ.

    Why it matters
    A worse loss after an upgrade is another matter than a worse loss after a change of the code.

    Formula
    Any differing setting whose name speaks of a version, a device, an architecture, a precision or a hash.

    False positives
    It is told as INFO and never moves the verdict.

    What to try
    Pin the environment of the baseline.
    """
    changed = [change for change in seen.changes if _ENVIRONMENT.search(change.name)]
    if not changed:
        return
    named = "; ".join(f"{c.name} {c.baselines or 'not declared'} -> {c.run or 'not declared'}" for c in changed[:6])
    first, last = seen.frame.first_step or 0, seen.frame.last_step or 0
    yield Sighting(INFO, f"the environment or the data changed: {named}.", (), {}, first, last, first)


@rule(
    "TP979",
    "lr-differs",
    severity=WARN,
    needs=("lr",),
    min_records=5,
    fix="Look at the scheduler: units of its steps, total steps, warm-up, parameter groups.",
)
def lr_differs(seen: Comparison, t: ComparisonThresholds) -> Seen:
    """The learning rate is not the baselines' at the same place of the run.

    What it does
    Compares the learning rates at every matched record, in units of the peak.

    Why it matters
    A rate that differs explains a loss that differs. Where both runs declare the same schedule, it is a fault of the scheduler.

    Formula
    |run - baseline| > 1 % of the higher peak in more than 10 % of at least 5 matched records, for every baseline. INFO; WARN when both
    declare a learning rate and all facts that set it (schedule, warm-up, total steps, epochs) are the same.

    False positives
    Schedulers that are stepped before or after logging differ by one step: less than 1 % of the peak in runs of some length.

    What to try
    Print the scheduler's state of both runs at the first step told.
    """
    usable = seen.usable("lr", t.rate_records)
    if not usable:
        raise CannotTell(f"fewer than {t.rate_records} matched records of lr")
    differing = [(i, pairs, _differing(pairs, t)) for i, pairs in usable]
    if not all(len(indices) > 0.1 * len(pairs) for _, pairs, indices in differing):
        return
    i, pairs, indices = differing[0]
    declared = _declares_the_same(seen)
    peaks = float(np.max(pairs.run)), float(np.max(pairs.base))
    said = " though both declare the same schedule" if declared else ""
    yield Sighting(
        WARN if declared else INFO,
        f"the learning rate differs in {len(indices)} of {len(pairs)} matched records{said}: "
        f"its peak is {peaks[0]:.4g} against {peaks[1]:.4g}.",
        seen.cite("lr", i, pairs, int(indices[0])),
        {"differs": t.rate_differs},
        int(pairs.step[indices[0]]),
        int(pairs.step[indices[-1]]),
        int(pairs.step[indices[0]]),
    )


def _differing(pairs: Pairs, t: ComparisonThresholds) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    peak = max(float(np.max(np.abs(pairs.run))), float(np.max(np.abs(pairs.base))))
    return np.flatnonzero(np.abs(pairs.run - pairs.base) > t.rate_differs * peak)


def _declares_the_same(seen: Comparison) -> bool:
    mine = seen.frame.facts
    return "learning_rate" in mine and all(
        all(mine.get(name) == one.facts.get(name) for name in _RATE_FACTS) for one in seen.baselines
    )


@rule(
    "TP980",
    "grad-norm-level",
    severity=WARN,
    needs=("grad_norm",),
    min_records=20,
    fix="Check loss reduction, accumulation and clipping: a norm of another size is another effective learning rate.",
)
def grad_norm_level(seen: Comparison, t: ComparisonThresholds) -> Seen:
    """The gradient norm is twice the baselines' or half of it.

    What it does
    As TP971, for the gradient norm, in both directions.

    Why it matters
    A loss may agree while the gradients do not: scaled losses, changed clipping, layers that no longer train.

    Formula
    |median log(run / baseline)| over the last max(20, 20 %) matched records, less 3.5 SE, above log 2; several baselines as for TP971.

    False positives
    Norms of better trained models differ too, and some loggers print them before clipping and others after.

    What to try
    Compare the first records: a factor that is there from the start comes from the code, not from the training.
    """

    def look(i: int, pairs: Pairs) -> Against:
        pairs = _positive(pairs)
        if len(pairs) < t.end_records:
            raise CannotTell("too few gradient norms above 0")
        part = pairs.last(max(t.end_records, int(t.end_share * len(pairs))))
        return Against(
            i,
            part,
            stats.median(part.run),
            stats.median(part.base),
            level_gap(pairs.ratio, len(part), t),
        )

    each = against_all(seen, "grad_norm", t.end_records, look)
    below = math.fsum(one.gap.value for one in each) < 0
    if below:
        each = [one._replace(gap=one.gap._replace(value=-one.gap.value)) for one in each]
    found = outcome("grad_norm", "grad_norm", each, t.norm_warn, t, math.inf)
    yield from told("TP980", seen, found, t, worse="below" if below else "above", mirrored=below)


@rule(
    "TP981",
    "slower-than-baseline",
    severity=WARN,
    min_records=5,
    fix="Look at data loading, logging and the device of both runs; see whether another job shares the machine.",
)
def slower_than_baseline(seen: Comparison, t: ComparisonThresholds) -> Seen:
    """The throughput is a fifth lower than the baselines', or the step time a fifth longer.

    What it does
    Compares the median throughput, or where none is logged the median step time, of the matched records after the first tenth.

    Why it matters
    A change that costs a fifth of the speed costs a fifth of the budget.

    Formula
    |median log ratio| less 3.5 SE above log 1.25, in the slow direction; several baselines as for TP971. Only where both logs name the
    metric alike, since units are not logged.

    False positives
    Another machine, or one that is shared: told as WARN, never FAIL.

    What to try
    Profile a few steps of both.
    """
    metric = next((name for name in ("throughput", "step_time") if seen.usable(name, t.cost_records)), None)
    if metric is None:
        raise CannotTell("neither throughput nor step time in both logs")
    mine = seen.run.original_name(metric)
    if any(seen.baselines[i].original_name(metric) != mine for i, _ in seen.usable(metric, t.cost_records)):
        raise CannotTell(f"{metric} has another name in a baseline: its unit may differ")
    sign = -1 if metric == "throughput" else 1

    def look(i: int, pairs: Pairs) -> Against:
        part = _positive(pairs.last(len(pairs) - len(pairs) // 10))
        if not len(part):
            raise CannotTell(f"no {metric} above 0")
        return Against(
            i,
            part,
            stats.median(part.run),
            stats.median(part.base),
            level_gap(sign * part.ratio, len(part), t),
        )

    each = against_all(seen, metric, t.cost_records, look)
    found = outcome(metric, metric, each, t.speed_warn, t, math.inf)
    yield from told("TP981", seen, found, t, worse="below" if sign < 0 else "above")


@rule(
    "TP982",
    "more-memory",
    severity=WARN,
    needs=("memory",),
    min_records=5,
    fix="Compare batch size, sequence length, precision and checkpointing of activations.",
)
def more_memory(seen: Comparison, t: ComparisonThresholds) -> Seen:
    """The peak memory is a tenth higher than the baselines'.

    What it does
    Compares the highest memory that was logged in the matched records.

    Why it matters
    A tenth more may not fit on the next device, and leaks begin small.

    Formula
    log(peak of the run / peak of the baseline) above log 1.1; several baselines as for TP971.

    False positives
    Longer sequences in another order of the data raise the peak by chance.

    What to try
    See at which step the peak was reached in both.
    """

    def look(i: int, pairs: Pairs) -> Against:
        run, base = float(np.max(pairs.run)), float(np.max(pairs.base))
        if min(run, base) <= 0:
            raise CannotTell("no memory above 0")
        return Against(i, pairs, run, base, Gap(math.log(run) - math.log(base), 0.0, len(pairs)))

    each = against_all(seen, "memory", t.cost_records, look)
    yield from told("TP982", seen, outcome("memory", "peak memory", each, t.memory_warn, t, math.inf), t)


def _positive(pairs: Pairs) -> Pairs:
    positive = (pairs.run > 0) & (pairs.base > 0)
    return pairs if positive.all() else pairs.take(positive)
