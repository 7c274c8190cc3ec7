"""Family TP2: the training loss. Divergence, plateau, and spikes and shifts have modules of their own, the rest is here."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from trainproof import stats
from trainproof.frame import Frame, Series
from trainproof.names import higher_is_better, is_perplexity
from trainproof.rules import components, divergence, plateau, spikes  # noqa: F401  registers TP201 to TP204, TP210, TP211
from trainproof.rules.eval_series import is_loss
from trainproof.rules.registry import (
    CROSS_ENTROPY,
    FAIL,
    INFO,
    SUPERVISED,
    WARN,
    CannotTell,
    Sighting,
    evidence,
    rule,
    sighting,
)
from trainproof.rules.states import holds_since
from trainproof.thresholds import LossThresholds
from trainproof.verdict import Evidence, Severity

NOT_PREFERENCE = SUPERVISED - {"preference"}


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
    training loss, and no clear downward trend.

    False positives
    A short adapter fine-tune of a strong base drops little but with a clear trend, which the Z sees; noise too large to exclude a drop
    of 10 % is skipped as "too noisy to tell", and so is a log that begins after the first tenth of its steps and after the warm-up: what
    was learned before is not in it. A preference loss starts at ln 2 and falls by little in good health: asked from 100 records on.

    What to try
    Overfit one batch: a healthy set-up drives its loss to zero.
    """
    loss = frame["loss"].finite
    _check_begin(frame, loss, t)
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
    if learned:
        return
    since = _not_learned_since(frame, loss, t)
    dead = _no_update(frame, t)
    first, last = _decile_medians(x)
    yield sighting(
        FAIL if dead else WARN,
        f"the loss went from {first:.4g} to {last:.4g} (medians of the first and last tenth of {len(x)} records after the warm-up), no more "
        f"than its noise{dead and f', and {dead}'}.",
        loss,
        first=start,
        last=len(loss) - 1,
        flagged=since - 1,
        threshold={"drop": t.never_drop, "z": t.never_z},
    )


def _check_begin(frame: Frame, loss: Series, t: LossThresholds) -> None:
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


def _not_learned_since(frame: Frame, loss: Series, t: LossThresholds) -> int:
    """The first of the judging points, up to the last one without a gap, at which nothing had been learned."""
    since = len(loss)
    for count in stats.schedule(len(loss))[-2::-1].tolist():
        begin = _warmup_end(frame, loss, count)
        if count - begin < t.never_min_records or _learned(loss.value[begin:count], t) is not False:
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


@rule(
    "TP206",
    "too-good-too-early",
    severity=WARN,
    needs=("loss",),
    objectives=CROSS_ENTROPY,
    min_records=20,
    fix="Check the causal mask, that the label is not in the input, and that the tokenizer does not map everything to one token.",
)
def too_good_too_early(frame: Frame, t: LossThresholds) -> Iterator[Sighting]:
    """The loss is near zero before the data has been seen once.

    What it does
    Looks for a median of 5 under 0.05 nats (1.0 for a language model trained from scratch) in the first epoch.

    Why it matters
    A model that predicts unseen data that well is usually told the answer.

    Formula
    median of 5 < 0.05 (from scratch, language model: < 1.0) before epoch 1 (else before 20 % of the planned steps), first loss >= 0.5.

    False positives
    Runs meant to overfit; templated data with hardly any entropy. Not asked of regression, density, preference or reward objectives.

    What to try
    Evaluate on held-out text; print one batch of inputs and labels.
    """
    loss = frame["loss"].finite
    if len(loss) < t.early_min_records:
        return
    limit = t.early_loss_scratch if frame.objective == "lm" and frame.facts.get("pretrained") is False else t.early_loss
    if stats.median(loss.value[:3]) < t.early_first:
        return
    early = loss.memo(stats.median5)[: _records_before_first_epoch(frame, loss, t)] < limit
    if not early.any():
        return
    at = int(np.argmax(early))
    yield sighting(
        WARN,
        f"the loss fell from {stats.median(loss.value[:3]):.4g} to {stats.median(loss.value[at - 4 : at + 1]):.4g} by step {loss.step[at]}, before "
        "the data had been seen once. This is consistent with the target being visible in the input.",
        loss,
        first=0,
        last=at,
        cite=[0, at - 4, at],
        threshold={"loss": limit},
    )


def _records_before_first_epoch(frame: Frame, loss: Series, t: LossThresholds) -> int:
    if "epoch" in frame:
        epoch = frame["epoch"].finite
        done = np.flatnonzero(epoch.value >= t.early_epoch)
        if len(done) or len(epoch):
            end = int(epoch.step[done[0]]) if len(done) else int(epoch.step[-1]) + 1
            return int(np.searchsorted(loss.step, end))
    if frame.total_steps is None:
        raise CannotTell("neither epochs nor the planned steps are known (--fact total_steps=N)")
    return int(np.searchsorted(loss.step, t.early_share * frame.total_steps))


@rule(
    "TP207",
    "init-loss-off",
    severity=FAIL,
    needs=("loss",),
    objectives=CROSS_ENTROPY,
    min_records=3,
    fix="Check the reduction of the loss against accumulation and world size, that the pretrained weights were loaded, and the label shift.",
)
def init_loss_off(frame: Frame, t: LossThresholds) -> Iterator[Sighting]:
    """The first loss is not what an untrained (or a pretrained) model of this vocabulary can have.

    What it does
    Compares the first losses with ln V, the loss of a uniform guess over V classes.

    Why it matters
    A factor that is a whole number is a loss summed where it should be averaged; a pretrained model above ln V was not loaded.

    Formula
    r = median of the first 3 / ln V. FAIL when r is within 5 % of the declared accumulation or world size; WARN when r is within 0.05
    of a whole number from 2 to 8, r > 2, pretrained and r > 1, or from scratch and r < 0.5. V unknown: a language model all of whose
    first 3 losses, and whose evaluation by then, if there is one, are above 15 nats.

    False positives
    A log that begins after the first tenth of its steps and after the warm-up is not asked. Public healthy runs start as high as 1.48 ln V, and overshoot to 2.2 times their first loss within ten steps; a first record
    averaged over many steps is lower than the first step was; losses with auxiliary terms are above their evaluation.

    What to try
    Evaluate the untrained model on one batch by hand.
    """
    loss = frame["loss"].finite
    if len(loss) < t.init_min_records:
        return
    _check_begin(frame, loss, t)
    first = stats.median(loss.value[:3])
    classes = declared_classes(frame)
    if classes > 1:
        verdict = _initial_ratio(frame, first / math.log(classes), t)
        limit = {"uniform": math.log(classes)}
    elif frame.objective == "lm":
        verdict = (
            (WARN, "is more than any usual vocabulary explains") if _above(frame, loss, t.init_loss_unknown) else None
        )
        limit = {"loss": t.init_loss_unknown}
    else:
        raise CannotTell("the number of classes is not declared (--fact num_classes=N)")
    if verdict:
        yield sighting(
            verdict[0],
            f"the first loss, {first:.4g}, {verdict[1]}.",
            loss,
            first=0,
            last=2,
            cite=[0, 1, 2],
            threshold=limit,
        )


def _above(frame: Frame, loss: Series, limit: float) -> bool:
    """Whether the first losses, and the evaluations that were done by then, are all above the limit."""
    evals = frame["eval/loss"].finite if "eval/loss" in frame else loss
    early = evals.value[evals.step <= loss.step[2]]
    return bool((loss.value[:3] > limit).all() and (early > limit).all())


def _initial_ratio(frame: Frame, r: float, t: LossThresholds) -> tuple[Severity, str] | None:
    """Severity and what is odd about a first loss of r x ln V."""
    for name in ("accumulation", "world_size"):
        n = frame.facts.number(name) or 0.0
        if n >= 2 and abs(r - n) <= t.init_integer * n:
            return (
                FAIL,
                f"is {r:.3g} x the loss of a uniform guess, and the declared {name} is {n:g}: consistent with a sum in place of a mean",
            )
    whole = round(r)
    if 2 <= whole <= t.init_integer_most and abs(r - whole) <= t.init_integer:
        return WARN, f"is {whole} x the loss of a uniform guess: consistent with a loss scaled by a whole number"
    if r > t.init_ratio:
        return WARN, f"is {r:.3g} x the loss of a uniform guess"
    if frame.facts.get("pretrained") is True and r > 1:
        return (
            WARN,
            f"is {r:.3g} x the loss of a uniform guess, though the model is declared pretrained: consistent with weights not loaded",
        )
    if frame.facts.get("pretrained") is False and r < t.init_ratio_scratch:
        return WARN, f"is {r:.3g} x the loss of a uniform guess, though the model is declared untrained"
    return None


@rule(
    "TP208",
    "loss-exactly-zero",
    severity=FAIL,
    needs=("loss",),
    objectives=NOT_PREFERENCE,
    stops=True,
    fix="Check that not every label is masked (-100), that truncation keeps the answer, and that the attention mask is not mutated.",
)
def loss_exactly_zero(frame: Frame, t: LossThresholds) -> Iterator[Sighting]:
    """The training loss is exactly zero.

    What it does
    Looks for a loss of exactly 0 twice in a row, or once beside a gradient norm that is 0 or not finite.

    Why it matters
    A cross-entropy over real targets is never exactly 0: every label is masked, or a non-finite loss was hidden by the logger.

    Formula
    2 consecutive records with loss == 0, or 1 with a gradient norm of 0 or non-finite. FAIL when the median of the 5 records before
    was above 0.05, the gradient norm is 0 or non-finite, or no loss of the run was ever anything but 0 in 10 records or more; otherwise
    WARN (a memorised set printed with 4 decimals).

    False positives
    Reward objectives and saturated preference losses are exactly 0 in health and are not asked. A loss that has been 0 from the first
    record on is a placeholder, told as INFO, where another loss or a gradient norm is not 0, or a task metric moves.

    What to try
    Count the labels that are not masked in one batch.
    """
    loss = frame["loss"]
    zero = loss.value == 0
    if not zero.any():
        return
    dead_grad = _dead_gradient(frame, loss)
    streak = stats.first_run(zero, t.zero_records)
    beside = np.flatnonzero(zero & dead_grad)
    hits = [start + t.zero_records - 1 for start, _ in [streak] if streak] if streak else []
    hits += [int(beside[0])] if len(beside) else []
    if not hits:
        return
    flagged = min(hits)
    begin = flagged - (t.zero_records - 1 if streak and flagged == streak[0] + t.zero_records - 1 else 0)
    before = loss.value[max(0, begin - 5) : begin]
    before = before[np.isfinite(before)]
    severity = WARN
    if dead_grad[begin : flagged + 1].any() or (len(before) and stats.median(before) > t.zero_before):
        severity = FAIL
    elif zero.all():
        severity = INFO
        if len(loss) >= t.zero_throughout and _all_losses_zero(frame):
            severity, flagged = FAIL, t.zero_throughout - 1
    gradient = " beside a gradient norm of 0 or not finite" if dead_grad[begin : flagged + 1].any() else ""
    yield sighting(
        severity,
        f"the loss is exactly 0 at step {loss.step[flagged]}{gradient}, in {int(zero.sum())} of {len(loss)} records. This is consistent with "
        "all labels masked, or with a non-finite loss that the logger replaced.",
        loss,
        first=begin,
        last=int(np.flatnonzero(zero)[-1]),
        flagged=flagged,
        cite=range(max(0, begin - 1), flagged + 1),
        more=_gradient_beside(frame, loss, flagged),
        threshold={"records": t.zero_records, "before": t.zero_before},
    )


def _all_losses_zero(frame: Frame) -> bool:
    """Whether no loss is anything but 0 or NaN (a perplexity: 1), and neither a gradient norm nor a task metric shows that the model
    learns."""
    for name, series in frame.items():
        value = series.finite.value
        if is_perplexity(name):
            learns = bool((value != 1).any())
        elif name == "grad_norm" or (is_loss(name) and name != "loss_scale"):
            learns = bool(value.any())
        else:
            learns = higher_is_better(name) is not None and bool((value != value[:1]).any())
        if learns:
            return False
    return True


def _dead_gradient(frame: Frame, loss: Series) -> stats.Bools:
    """Loss records whose gradient norm is 0 or not finite; a gradient norm that is 0 throughout is a placeholder."""
    dead = np.zeros(len(loss), dtype=bool)
    if "grad_norm" in frame and frame["grad_norm"].value.any():
        grads = frame["grad_norm"]
        mine, theirs = loss.align(grads)
        dead[mine] = ~np.isfinite(grads.value[theirs]) | (grads.value[theirs] == 0)
    return dead


def _gradient_beside(frame: Frame, loss: Series, index: int) -> tuple[Evidence, ...]:
    if "grad_norm" not in frame:
        return ()
    grads = frame["grad_norm"]
    return evidence(grads, np.flatnonzero(grads.step == loss.step[index])[-1:])


def declared_classes(frame: Frame) -> float:
    """Among how many classes the model chooses (of a language model: the size of its vocabulary); 0 where that is not declared."""
    return frame.facts.number("vocab_size" if frame.objective == "lm" else "num_classes") or 0.0


def uniform_limit(classes: float, t: LossThresholds) -> float:
    """The loss in nats above which TP209 calls a model worse than a uniform guess; of the largest vocabulary where `classes` is unknown."""
    return t.uniform_ratio * math.log(classes if classes > 1 else t.uniform_vocabulary)


@rule(
    "TP209",
    "worse-than-uniform",
    severity=FAIL,
    needs=("loss",),
    objectives=CROSS_ENTROPY,
    min_records=70,
    stops=True,
    fix="Check the reduction of the loss, the label shift and the label range; lower the learning rate.",
)
def worse_than_uniform(frame: Frame, t: LossThresholds) -> Iterator[Sighting]:
    """Well into the run, the loss is worse than guessing.

    What it does
    Compares the smoothed loss with ln V after the warm-up.

    Why it matters
    Guessing uniformly costs ln V: a model that stays above it has learned something wrong, or the loss is not what it seems.

    Formula
    median of 5 > 1.05 ln V for 20 records in a row, after max(50 records, 5 % of the planned steps): FAIL. Once the loss has been below
    that limit, also earlier: WARN. V unknown, language model: the limit of a vocabulary of 2^20, larger than any in use, 14.6 nats: WARN.

    False positives
    Sum-reduced or multi-term losses stand above ln V by design: declare the vocabulary only for the loss it belongs to.

    What to try
    Compare one batch's loss with the framework's own cross-entropy.
    """
    loss = frame["loss"].finite
    classes = declared_classes(frame)
    if classes <= 1 and frame.objective != "lm":
        raise CannotTell("the number of classes is not declared (--fact num_classes=N)")
    limit = uniform_limit(classes, t)
    level = loss.memo(stats.median5)
    above = level > limit
    grace = t.uniform_grace
    if frame.total_steps:
        grace = max(grace, int(np.searchsorted(loss.step, t.uniform_grace_share * frame.total_steps)))
    late = above & (np.arange(len(above)) >= grace)
    run, severity = stats.first_run(late, t.uniform_records), FAIL if classes > 1 else WARN
    if run is None:
        run, severity = stats.first_run(above & np.logical_or.accumulate(level <= limit), t.uniform_records), WARN
    if run is None:
        return
    flagged = run[0] + t.uniform_records - 1
    yield sighting(
        severity,
        f"the loss stayed above {limit:.4g}, {'the loss of a uniform guess over ' + format(classes, 'g') + ' classes and 5 %' if classes > 1 else 'more than any usual vocabulary explains'}, "
        f"from step {loss.step[run[0]]} to {loss.step[run[1] - 1]}.",
        loss,
        first=run[0],
        last=run[1] - 1,
        flagged=flagged,
        threshold={"loss": limit, "records": t.uniform_records},
    )
