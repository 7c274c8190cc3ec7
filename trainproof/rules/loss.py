"""Family TP2: the training loss. What its first values and a uniform guess say is here; the rest has modules of its own."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from trainproof import stats
from trainproof.frame import Frame, Series
from trainproof.rules import (  # noqa: F401  registers TP201 to TP205, TP208, TP210 and TP211
    components,
    divergence,
    loss_zero,
    never_learned,
    plateau,
    spikes,
)
from trainproof.rules.never_learned import check_begin
from trainproof.rules.registry import CROSS_ENTROPY, FAIL, WARN, CannotTell, Sighting, rule, sighting
from trainproof.thresholds import LossThresholds
from trainproof.verdict import Severity


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
    check_begin(frame, loss, t)
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
