"""TP205: the loss never fell."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from trainproof import stats
from trainproof.frame import Frame, Series
from trainproof.rules.registry import FAIL, SUPERVISED, WARN, CannotTell, Sighting, evidence, rule, sighting
from trainproof.rules.states import holds_since
from trainproof.thresholds import LossThresholds


@rule(
    "TP205",
    "never-learned",
    severity=FAIL,
    needs=("loss",),
    objectives=SUPERVISED,
    min_records=30,
    whole_run=True,
    fix="Check that parameters require gradients and reach the optimizer, that the learning rate is not zero, and that labels match inputs.",
)
def never_learned(frame: Frame, t: LossThresholds) -> Iterator[Sighting]:
    """After the warm-up the loss did not fall.

    What it does
    Compares the first tenth of the records after the warm-up with the last tenth, with the noise of both.

    Why it matters
    Frozen parameters, a zero learning rate or labels that do not belong to the inputs leave the loss where it was.

    Formula
    Drop between decile medians plus two standard errors under 10 %, and no clear downward trend (Mann-Kendall Z > -3). WARN; FAIL
    when the learning rate is exactly 0 in a fifth of the records or more, or every gradient norm is 0. WARN too when the loss of a
    classification stood at the logarithm of the number of classes (ln 2 where none is declared) over the last half of the records:
    the median within 0.1 %, each within 0.5 %. WARN where a density or ratio estimator, whose loss may be negative, stands at 0, no
    information: the medians of the training loss in both halves and 5 or more evaluations no further from 0 than the noise of the
    training loss, and no clear downward trend. In the first fifth of the planned steps only a learning rate or gradient norms of 0 tell.

    False positives
    A loss that fell to a tenth of its first three records at once, and stays there, was learned before the first tenth ended: not told. A
    short adapter fine-tune of a strong base drops little but with a clear trend, which the Z sees; noise too large to exclude a drop
    of 10 % is skipped as "too noisy to tell", and so is a log that begins after the first tenth of its steps and after the warm-up: what
    was learned before is not in it. A preference loss starts at ln 2 and falls by little in good health: asked from 100 records on.

    What to try
    Overfit one batch: a healthy set-up drives its loss to zero.
    """
    loss = frame["loss"].finite
    check_begin(frame, loss, t)
    start = _warmup_end(frame, loss, len(loss))
    x = loss.value[start:]
    least = t.never_preference_records if frame.objective == "preference" else t.never_min_records
    if len(x) < least:
        raise CannotTell(f"{len(x)} records after the warm-up, needs {least}")
    learned = _learned(x, t)
    if stands := _at_chance(frame, loss, t) or _at_zero(frame, loss, t):
        yield stands
        return
    if learned is None:
        raise CannotTell("too noisy to tell")
    if learned or _fell_at_once(loss.value, t):
        return
    dead = _no_update(frame, t)
    if not dead and (done := _planned(frame, loss, len(loss))) < t.never_planned:
        raise CannotTell(f"too early to tell: the log has {done:.0%} of its planned steps")
    since = _not_learned_since(frame, loss, 0.0 if dead else t.never_planned, t)
    first, last = _decile_medians(x)
    yield sighting(
        FAIL if dead else WARN,
        f"the loss went from {first:.4g} to {last:.4g} (medians of the first and last tenth of {len(x)} records"
        f"{' after the warm-up' if start else ''}), no more than its noise{dead and f', and {dead}'}.",
        loss,
        first=start,
        last=len(loss) - 1,
        flagged=since - 1,
        threshold={"drop": t.never_drop, "z": t.never_z},
    )


def check_begin(frame: Frame, loss: Series, t: LossThresholds) -> None:
    """Raises CannotTell when the log begins late in its run: a resumed run, or a log that was cut at its start.

    A learning rate that rises from the first record on is still in its warm-up: such a log begins early enough.
    """
    rate = frame["lr"].finite.value if "lr" in frame else loss.value[:0]
    if len(loss) < 2 or (len(rate) > 1 and rate[1] > rate[0]):
        return
    first, last = int(loss.step[0]), int(loss.step[-1])
    interval = (last - first) / (len(loss) - 1)
    if first > max(t.late_share * last, t.late_intervals * interval):
        raise CannotTell(f"the log begins at step {first}: what came before is not in it")


def _at_chance(frame: Frame, loss: Series, t: LossThresholds) -> Sighting | None:
    """A classification whose loss stood at that of a guess: it left its first values behind and learned nothing since."""
    classes = frame.facts.number("num_classes") or 2
    if frame.objective != "classification" or classes <= 1:
        return None
    chance = math.log(classes)

    def stands(count: int) -> bool:
        off = np.abs(loss.value[count // 2 : count] / chance - 1)
        return stats.median(off) <= t.never_chance and float(off.max()) <= t.never_chance_each

    since, half = _stands_since(loss, stands, t), len(loss) // 2
    if since is None:
        return None
    return sighting(
        WARN,
        f"the loss stands at {stats.median(loss.value[half:]):.4g} over the last {len(loss) - half} records; ln {classes:g} = {chance:.4g} is "
        "that of a guess among the classes.",
        loss,
        first=half,
        last=len(loss) - 1,
        flagged=since - 1,
        threshold={"share": t.never_chance},
    )


def _at_zero(frame: Frame, loss: Series, t: LossThresholds) -> Sighting | None:
    """An estimator of a density or a ratio whose loss and evaluations stay at 0, that of one which knows nothing."""
    evals = frame["eval/loss"].finite if "eval/loss" in frame else None
    if frame.objective != "density" or evals is None:
        return None
    x = loss.value

    def stands(count: int) -> bool:
        seen = evals.value[evals.step <= loss.step[count - 1]]
        noise = stats.difference_noise(x[:count])
        highest = max(
            np.abs(seen).max(initial=0.0), *(abs(stats.median(part)) for part in np.array_split(x[:count], 2))
        )
        return len(seen) >= t.never_evals and highest <= noise and stats.trend_z(x[:count]) > t.never_z

    since = _stands_since(loss, stands, t)
    if since is None:
        return None
    noise = stats.difference_noise(x)
    return sighting(
        WARN,
        f"the loss stands at 0 from the first record to the last: it and all {len(evals)} evaluations are no further from it than its noise, "
        f"{noise:.2g}. A loss of 0 is that of an estimator that knows nothing.",
        loss,
        first=0,
        last=len(loss) - 1,
        flagged=since - 1,
        threshold={"noise": noise},
        more=evidence(evals, [0, len(evals) - 1]),
    )


def _stands_since(loss: Series, stands: Callable[[int], bool], t: LossThresholds) -> int | None:
    """The first of the judging points from which on the loss stands where it is; None when it does not at the last."""
    return holds_since([n for n in stats.schedule(len(loss)).tolist() if n >= t.never_min_records], stands)


def _planned(frame: Frame, loss: Series, count: int) -> float:
    """The share of the planned steps that `count` records cover; 1 where no plan is declared."""
    return int(loss.step[count - 1]) / frame.total_steps if frame.total_steps else 1.0


def _not_learned_since(frame: Frame, loss: Series, share: float, t: LossThresholds) -> int:
    """The first of the judging points, from `share` of the planned steps on and up to the last one without a gap, at which nothing had
    been learned."""
    since = len(loss)
    for count in stats.schedule(len(loss))[-2::-1].tolist():
        begin = _warmup_end(frame, loss, count)
        early = count - begin < t.never_min_records or _planned(frame, loss, count) < share
        if early or _learned(loss.value[begin:count], t) is not False:
            break
        since = count
    return since


def _warmup_end(frame: Frame, loss: Series, count: int) -> int:
    """Index of the first loss record at or after the learning rate's peak, of the first `count`; 0 without a warm-up."""
    if "lr" not in frame or not count:
        return 0
    lr = frame["lr"].finite
    rates = lr.value[: int(np.searchsorted(lr.step, loss.step[count - 1], side="right"))]
    if not len(rates) or bool((rates == rates[0]).all()):
        return 0
    start = int(np.searchsorted(loss.step, lr.step[int(np.argmax(rates))]))
    return start if start < count / 2 else 0


def _fell_at_once(x: stats.Floats, t: LossThresholds) -> bool:
    """Whether all that was learned was learned within the first records, by which the first tenth does not stand."""
    first = stats.median(x[:3])
    return first - _decile_medians(x)[1] >= t.never_at_once * abs(first)


def _decile_medians(x: stats.Floats) -> tuple[float, float]:
    tenth = max(1, len(x) // 10)
    return stats.median(x[:tenth]), stats.median(x[-tenth:])


def _learned(x: stats.Floats, t: LossThresholds) -> bool | None:
    """False when the loss stayed where it was, True when it moved, None when its noise hides the answer."""
    first, last = _decile_medians(x)
    tenth = max(1, len(x) // 10)
    se = math.sqrt(2) * stats.MEDIAN_SE * stats.difference_noise(x) / math.sqrt(tenth)
    scale = abs(first) or 1.0
    drop = (first - last) / scale
    ever = (first - float(stats.block_medians(x, 10).min())) / scale
    if -drop >= t.never_drop or drop >= t.never_drop or ever - t.never_se * se / scale >= t.never_drop:
        return True  # a loss that rose, or fell and rose again, is the business of other rules
    if stats.trend_z(x) <= t.never_z:
        return True
    return False if drop + t.never_se * se / scale < t.never_drop else None


def _no_update(frame: Frame, t: LossThresholds) -> str:
    """Why nothing can have been learned, if the log says so: empty otherwise."""
    lr = frame["lr"].finite if "lr" in frame else None
    if lr is not None and len(lr) and float((lr.value == 0).mean()) >= t.never_lr_zero_share:
        return f"the learning rate is 0 in {(lr.value == 0).mean():.0%} of the records"
    grads = frame["grad_norm"].finite if "grad_norm" in frame else None
    if grads is not None and len(grads) and not grads.value.any():
        return "every logged gradient norm is 0"
    return ""
