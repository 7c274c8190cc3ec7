"""TP978: evaluations beside those of the baselines."""

from __future__ import annotations

import math
from collections.abc import Iterator

from trainproof import stats
from trainproof.comparing.comparison import Comparison
from trainproof.comparing.levels import level_gap
from trainproof.comparing.matching import Pairs
from trainproof.names import higher_is_better
from trainproof.rules.registry import FAIL, CannotTell, rule
from trainproof.rules.standings import Against, Seen, against_all, outcome, told
from trainproof.thresholds import ComparisonThresholds
from trainproof.verdict import Severity

#: metrics of the training itself that say how good the model is
REWARDS = frozenset({"reward"})


@rule(
    "TP978",
    "eval-above-baseline",
    severity=FAIL,
    min_records=1,
    fix="Check that both evaluate the same data with the same template; then look at what changed.",
)
def eval_worse_than_baseline(seen: Comparison, t: ComparisonThresholds) -> Seen:
    """An evaluation (or the reward) is worse than the baselines' at the end of the shared range.

    What it does
    Compares every held-out metric whose direction its name tells, in that direction: losses and error rates from above, accuracies,
    scores and rewards from below.

    Why it matters
    This is what the run is for; the training loss only stands for it.

    Formula
    As TP971 over the last max(3, 20 %) matched evaluations, the noise taken from all matched ones. The limit for one baseline is 2 % for
    losses and 5 % for task metrics, which also have to differ by 0.01 where they are shares of 1. With fewer than 4 matched
    evaluations their noise is unknown: then three or more baselines are needed, whose spread has it.

    False positives
    Another evaluation set or template. Small sets move by whole percents between seeds: compare with several.

    What to try
    Evaluate both final checkpoints on the same data.
    """
    reasons = []
    compared = False
    for metric, higher in _directed(seen):
        try:
            yield from _one(seen, metric, higher, t)
            compared = True
        except CannotTell as reason:
            reasons.append(str(reason))
    if not compared:
        raise CannotTell(reasons[0] if reasons else "no evaluation metric with a known direction in both")


def _directed(seen: Comparison) -> Iterator[tuple[str, bool]]:
    """(metric, whether higher is better) of the metrics that both have."""
    for metric in seen.frame:
        held_out = metric.startswith(("eval/", "test/")) or metric in REWARDS
        higher = higher_is_better(metric) if held_out else None
        if higher is not None and seen.usable(metric):
            yield metric, higher


def _one(seen: Comparison, metric: str, higher: bool, t: ComparisonThresholds) -> Seen:
    loss = metric.startswith(("eval/loss", "test/loss"))

    def look(i: int, pairs: Pairs) -> Against:
        ratio = pairs.ratio * (-1 if higher else 1)
        part = pairs.last(max(t.eval_records, int(t.eval_share * len(pairs))))
        found = level_gap(ratio, len(part), t, share=1.0)
        return Against(i, part, stats.median(part.run), stats.median(part.base), found, pairs.scale is None)

    each = against_all(seen, metric, 1, look)
    if all(math.isnan(one.gap.se) for one in each) and len(each) < t.eval_seeds:
        raise CannotTell(f"{len(each[0].pairs)} matched evaluations of {metric}: their noise is unknown")
    found = outcome(metric, metric, each, t.loss_warn if loss else t.metric_warn, t)
    small = all(0 <= value <= 1 for one in each for value in (one.run, one.base)) and not loss
    slight = small and min(abs(one.run - one.base) for one in each) < t.metric_least
    severity = Severity.INFO if slight else None
    yield from told("TP978", seen, found, t, worse="below" if higher else "above", severity=severity)
