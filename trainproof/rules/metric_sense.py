"""TP508 and TP511: a loss that falls while its metric says otherwise, and a best model that was not kept."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

import numpy as np

from trainproof import stats
from trainproof.frame import Frame, Series
from trainproof.rules.eval_series import eval_losses, task_metrics
from trainproof.rules.registry import INFO, SUPERVISED, WARN, CannotTell, Sighting, evidence, rule, sighting
from trainproof.rules.states import holds_since, lasting
from trainproof.thresholds import EvaluationThresholds

#: metrics whose value at chance is one half whatever the classes are
HALF = ("auc", "auroc", "roc_auc", "eval/auc", "eval/auroc", "eval/roc_auc")
_ACCURACY = re.compile(r"(?:^|[/_.])(?:acc|accuracy)$", re.IGNORECASE)


def is_accuracy(name: str) -> bool:
    """Whether the metric is an accuracy, of training or of an evaluation."""
    return _ACCURACY.search(name) is not None


@rule(
    "TP508",
    "loss-metric-disagree",
    severity=WARN,
    whole_run=True,
    objectives=SUPERVISED,
    fix="Check that metric and loss look at the same labels, decoding and split; then ask whether the target can be learned at all.",
)
def loss_metric_disagree(frame: Frame, t: EvaluationThresholds) -> Iterator[Sighting]:
    """The loss improves, and the metric that it stands for gets worse or stays at chance.

    What it does
    Compares the trends of the evaluation loss and of each task metric with a known direction; and looks for an area under the curve that
    never leaves one half, and for accuracies that never leave the low value they began with.

    Why it matters
    A loss can fall by learning the frequencies of the labels, or the padding, alone.

    Formula
    At the common judging points from 8 evaluations on: eval loss 10 % below its start with Mann-Kendall Z < -2.5, metric worse than its start
    by 10 % with Z < -2.5 in its own direction, to the end: WARN. AUC within 0.01 of 0.5 in 20 records to the end while the loss fell by
    5 %: WARN. Every accuracy, of training and evaluation, at most 0.25 in the median of 200 records or more, its change with two standard
    errors under 5 % of that and |Z| < 2.5, while the loss fell by 5 %: WARN.

    False positives
    Metrics that only wobble have no trend. An accuracy that starts high, as that of a pretrained model does, may stay. A metric that
    peaked and fell while the loss rose is TP501's and TP502's.

    What to try
    Print ten predictions beside their labels.
    """
    yield from [*_at_chance(frame, t)] or [*_idle(frame, t)] or [*_opposed(frame, t)]


def _opposed(frame: Frame, t: EvaluationThresholds) -> Iterator[Sighting]:
    losses, metrics = eval_losses(frame), task_metrics(frame)
    if not metrics:
        raise CannotTell("no task metric with a known direction")
    loss = losses[0].finite
    for metric in metrics:
        mine, theirs = loss.align(metric.series)
        x, gain = loss.value[mine], metric.gain[theirs]
        counts = sorted({*stats.renewals(len(x), t.disagree_evals).tolist(), len(x)} - set(range(t.disagree_evals)))
        since = holds_since(counts, partial(_apart, x, gain, t))
        if since:
            series = metric.series.take(theirs)
            yield sighting(
                WARN,
                f"{loss.name} improved from {x[0]:.4g} to {x[-1]:.4g} while {series.name} got worse, from {series.value[0]:.4g} to "
                f"{series.value[-1]:.4g}.",
                series,
                first=0,
                last=len(series) - 1,
                flagged=since - 1,
                threshold={"change": t.disagree_change, "z": t.disagree_z},
                more=evidence(loss, [int(mine[0]), int(mine[-1])]),
            )
            return


def _apart(losses: stats.Floats, gains: stats.Floats, t: EvaluationThresholds, count: int) -> bool:
    """Whether, over the first `count` evaluations, the loss fell and so did what is gained by the metric, both clearly."""
    x, gain = losses[:count], gains[:count]
    third = max(1, len(x) // 3)
    fell = (stats.median(y[:third]) - stats.median(y[-third:]) for y in (x, gain))
    if any(
        by < t.disagree_change * abs(stats.median(y[:third])) or by <= 0 for by, y in zip(fell, (x, gain), strict=True)
    ):
        return False
    return stats.trend_z(x) < -t.disagree_z and stats.trend_z(gain) < -t.disagree_z


def _at_chance(frame: Frame, t: EvaluationThresholds) -> Iterator[Sighting]:
    """An area under the curve at one half for 20 records to the end, while the loss fell."""
    for name in HALF:
        series = frame[name].finite if name in frame else None
        loss = frame.get("eval/loss" if name.startswith("eval/") else "loss")
        if series is None or loss is None or len(loss.finite) < t.chance_records:
            continue
        state = lasting(np.abs(series.value - 0.5) <= t.chance_near, t.chance_records)
        if state and state.since == 0 and _fell(loss.finite, t):
            yield sighting(
                WARN,
                f"{name} is {series.value[-1]:.4g}, chance, in each of {len(series)} records, while {loss.name} went from {loss.finite.value[0]:.4g} to "
                f"{loss.finite.value[-1]:.4g}: nothing but the frequencies of the labels is learned.",
                series,
                first=0,
                last=len(series) - 1,
                flagged=state.told,
                threshold={"near": t.chance_near, "records": t.chance_records},
            )
            return


def _idle(frame: Frame, t: EvaluationThresholds) -> Iterator[Sighting]:
    """Accuracies near those of a guess that have not moved since the run began, while the loss fell."""
    loss = frame["loss"].finite if "loss" in frame else None
    accuracies = [series.finite for name, series in frame.items() if is_accuracy(name)]
    least = min(map(len, accuracies), default=0)
    if loss is None or least < t.idle_records or len(loss) < t.chance_records or not _fell(loss, t):
        return
    series = accuracies[0]
    counts = sorted({*stats.renewals(least, t.idle_records).tolist(), least})
    since = holds_since(counts, lambda count: all(_still(each.value[:count], t) for each in accuracies))
    if since:
        names = " and ".join(each.name for each in accuracies)
        yield sighting(
            WARN,
            f"{names} stayed at {stats.median(series.value):.3g} from the first of {least} records to the last, while the loss went from "
            f"{loss.value[0]:.4g} to {loss.value[-1]:.4g}: this is consistent with nothing but the frequencies of the labels being learned.",
            series,
            first=0,
            last=len(series) - 1,
            flagged=since - 1,
            threshold={"accuracy": t.idle_level, "change": t.idle_change, "records": t.idle_records},
        )


def _still(accuracy: stats.Floats, t: EvaluationThresholds) -> bool:
    seen = stats.change_over(accuracy)
    still = abs(seen.change) + 2 * seen.se < t.idle_change * seen.level
    return seen.level <= t.idle_level and still and abs(stats.trend_z(accuracy)) < t.disagree_z


def _fell(loss: Series, t: EvaluationThresholds) -> bool:
    first = float(loss.value[0])
    return first - stats.median(loss.value[1 : t.chance_records]) >= t.chance_fell * abs(first)


@rule(
    "TP511",
    "best-not-kept",
    severity=INFO,
    needs=("eval/loss",),
    facts=("save_steps",),
    objectives=SUPERVISED,
    min_records=3,
    whole_run=True,
    fix="Save at each evaluation, keep the best (load_best_model_at_end), or make the save interval divide the evaluation interval.",
)
def best_not_kept(frame: Frame, t: EvaluationThresholds) -> Iterator[Sighting]:
    """The best evaluation was at a step of which no checkpoint was saved.

    What it does
    Compares the step of the best evaluation loss with the declared save interval.

    Why it matters
    The best model is known and gone.

    Formula
    The last eval loss is 5 % above the best, and the best one's step is no multiple of save_steps: INFO.

    False positives
    Trainers that save by epoch declare a save interval that they do not use, so it never moves the verdict, and is not asked where the
    best checkpoint's number says so.

    What to try
    List the checkpoints.
    """
    every, loss = frame.facts.number("save_steps"), frame["eval/loss"].finite
    if every is None or every < 1 or len(loss) < 3:
        raise CannotTell("the save interval is no number of steps, or there are too few evaluations")
    best = int(np.argmin(loss.value))
    low, last = float(loss.value[best]), float(loss.value[-1])
    if low > 0 and last >= t.rise_warn * low and int(loss.step[best]) % int(every):
        yield sighting(
            INFO,
            f"the best eval loss, {low:.4g}, was at step {loss.step[best]}, between checkpoints (every {every:g} steps); it is {last:.4g} at the end.",
            loss,
            first=best,
            last=len(loss) - 1,
            threshold={"rise": t.rise_warn},
        )
