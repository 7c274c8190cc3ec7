"""Family TP8: preference training here; rewards, policies, completions, adversaries and alignments in modules of their own."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from trainproof import stats
from trainproof.frame import Frame
from trainproof.rules import adversarial, completions, policy, rewards  # noqa: F401  registers TP804 to TP814
from trainproof.rules.registry import FAIL, INFO, WARN, CannotTell, Sighting, evidence, rule, sighting
from trainproof.rules.states import finite, lasting
from trainproof.thresholds import PreferenceThresholds
from trainproof.verdict import Evidence, Severity

PREFERENCE = frozenset({"preference"})
#: declared losses whose first value is ln 2
SIGMOID = ("sigmoid", "dpo", "['sigmoid']")
#: metrics of preference losses that have no reference model, or other terms
OTHER_LOSSES = ("nll_loss", "loss/nll", "sft_loss", "loss/sft", "odds_ratio_loss", "loss/odds_ratio", "log_odds_ratio")


@rule(
    "TP801",
    "preference-init-off",
    severity=FAIL,
    needs=("loss",),
    objectives=PREFERENCE,
    whole_run=True,
    fix="Check that the reference model is the policy before training (same weights, adapters off, no dropout), and the chat template.",
)
def preference_init_off(frame: Frame, t: PreferenceThresholds) -> Iterator[Sighting]:
    """The first preference loss is not ln 2: policy and reference do not start alike.

    What it does
    Compares the first logged loss and margin with those of two equal models: ln 2 and 0.

    Why it matters
    Against another reference the implied reward measures the difference of two models, not what training changed.

    Formula
    First record of one step (step 0 or 1): |loss - ln 2| > 10 % of it, or |margin| > 0.1. First record averaged over up to 50 steps: loss
    outside 0.5 to 0.7625 and |margin| > 1. FAIL when the sigmoid loss is declared (preference_loss), otherwise WARN.

    False positives
    Other losses start elsewhere: skipped when another one is declared, and when the log has the terms of losses without a reference.
    A first record averaged over many steps has learned already, hence the wide range.

    What to try
    Log the first step; compare log-probabilities of policy and reference on one batch.
    """
    declared = _declared_sigmoid(frame)
    loss = finite(frame, "loss", 1)
    first, step = float(loss.value[0]), int(loss.step[0])
    margin = frame["rewards/margins"].at(step) if "rewards/margins" in frame else None
    one = step <= 1
    if step > t.init_steps or (margin is None and not declared):
        raise CannotTell(
            f"the first record, of step {step}, does not show the start" if step > t.init_steps else "no margins"
        )
    off = (
        abs(first - math.log(2)) > t.init_near * math.log(2) if one else not t.init_range[0] <= first <= t.init_range[1]
    )
    apart = margin is not None and abs(margin) > (t.init_margin if one else t.init_margin_averaged)
    if (off or apart) if one else (off and apart):
        cited = () if margin is None else (Evidence("rewards/margins", step, margin, int(loss.line[0])),)
        yield sighting(
            FAIL if declared else WARN,
            f"the first loss, at step {step}, is {first:.4g}{'' if margin is None else f' with a margin of {margin:.4g}'}; two equal models have "
            "ln 2 = 0.6931 and 0. This is consistent with a reference model other than the start of the policy.",
            loss,
            first=0,
            last=0,
            threshold={"near": t.init_near, "margin": t.init_margin if one else t.init_margin_averaged},
            more=cited,
        )


def _declared_sigmoid(frame: Frame) -> bool:
    """Whether the sigmoid loss is declared; False where none is. Raises CannotTell for another one."""
    declared = frame.facts.text("preference_loss")
    if declared and declared not in SIGMOID:
        raise CannotTell(f"the declared loss {declared!r} does not start at ln 2")
    if any(name in frame for name in OTHER_LOSSES):
        raise CannotTell("the loss has other terms than the sigmoid one")
    return bool(declared)


@rule(
    "TP802",
    "chosen-reward-falling",
    severity=WARN,
    needs=("rewards/chosen", "rewards/margins"),
    objectives=PREFERENCE,
    min_records=30,
    fix="Add a term on the chosen answers (NLL), raise beta, or lower the learning rate.",
)
def chosen_reward_falling(frame: Frame, t: PreferenceThresholds) -> Iterator[Sighting]:
    """The margin is made by pushing both answers down, the chosen one too.

    What it does
    Follows the reward of the chosen answers where the pairs are already told apart.

    Why it matters
    The policy makes the answers that were preferred less likely than its reference does: probability goes elsewhere.

    Formula
    Mann-Kendall Z of rewards/chosen < -3 and its last median of 5 < -1: INFO. Below -5 with an accuracy of 0.9: WARN.

    False positives
    A negative reward of the chosen answers alone is common in healthy runs, hence INFO above -5.

    What to try
    Sample from the policy: does it still write the chosen kind of answer?
    """
    chosen = finite(frame, "rewards/chosen", t.chosen_min_records)
    m5 = chosen.memo(stats.median5)
    if not m5[-1] < t.chosen_level or stats.trend_z(chosen.value) >= t.chosen_z:
        return
    accuracy = frame.get("rewards/accuracies")
    sure = accuracy is not None and len(accuracy) and stats.median(accuracy.value[-5:]) >= t.chosen_accuracy
    severity: Severity = WARN if m5[-1] < t.chosen_level_warn and sure else INFO
    limit = t.chosen_level_warn if severity is WARN else t.chosen_level
    below = m5 < limit
    below[: t.chosen_min_records - 1] = False
    since = stats.last_run(below)
    flagged = since[0] if since else len(chosen) - 1
    yield sighting(
        severity,
        f"the reward of the chosen answers fell to {m5[-1]:.4g} (median of 5), while the margin is "
        f"{frame['rewards/margins'].value[-1]:.4g}: both answers are pushed down.",
        chosen,
        first=0,
        last=len(chosen) - 1,
        flagged=flagged,
        threshold={"level": limit, "z": t.chosen_z},
    )


@rule(
    "TP803",
    "preference-saturated",
    severity=WARN,
    needs=("loss",),
    objectives=PREFERENCE,
    min_records=10,
    fix="Check that the pairs differ in more than their form (length, template, language); lower the learning rate or raise beta.",
)
def preference_saturated(frame: Frame, t: PreferenceThresholds) -> Iterator[Sighting]:
    """The pairs are told apart perfectly before half of the data has been seen.

    What it does
    Looks for a loss near 0 with an accuracy of 1 early in the run.

    Why it matters
    Something trivial separates the pairs, or the rate is too high; the gradient is gone, and so is what there was to learn.

    Formula
    Median of 5 losses < 0.001 with median of 5 accuracies 1 (no accuracy logged: median of 5 margins >= 5) before half of the first epoch
    (else of the planned steps): WARN.

    False positives
    A late loss near 0 on training pairs is over-fitting and is left to the evaluation rules.

    What to try
    Look at ten pairs; train a classifier on the length alone.
    """
    loss = finite(frame, "loss", t.saturated_min_records)
    early = _early(frame, loss.step, t)
    low = (loss.memo(stats.median5) < t.saturated_loss) & early
    low[: t.saturated_min_records - 1] = False
    if not low.any():
        return
    name, least = (
        ("rewards/accuracies", 1.0) if "rewards/accuracies" in frame else ("rewards/margins", t.saturated_margin)
    )
    if name not in frame:
        raise CannotTell("neither accuracies nor margins in the log")
    told = frame[name].finite
    at = told.upto(loss.step)
    sure = (
        (at >= 0) & (told.memo(stats.median5)[np.maximum(at, 0)] >= least) if len(told) else np.zeros(len(loss), bool)
    )
    hits = np.flatnonzero(low & sure)
    if len(hits):
        i = int(hits[0])
        yield sighting(
            WARN,
            f"the loss is {stats.median(loss.value[i - 4 : i + 1]):.3g} (median of 5) by step {loss.step[i]}, with {name} at {least:g} or above: the "
            "pairs are already told apart.",
            loss,
            first=i - 4,
            last=i,
            threshold={"loss": t.saturated_loss, "epoch": t.saturated_epoch},
            more=evidence(told, [int(at[i])]),
        )


@rule(
    "TP806",
    "preference-worse-than-guess",
    severity=FAIL,
    needs=("loss",),
    objectives=PREFERENCE,
    min_records=20,
    fix="Lower the learning rate; check that chosen and rejected are not swapped, and that beta is what you meant.",
)
def preference_worse_than_guess(frame: Frame, t: PreferenceThresholds) -> Iterator[Sighting]:
    """The preference loss stays above that of a model that tells nothing apart.

    What it does
    Compares the smoothed loss with ln 2 = 0.693, what two equal models have.

    Why it matters
    Above it the policy is surer of the wrong answers than of the right ones: it lost more than it learned, most often by too high a rate.

    Formula
    Median of 5 losses > 1.25 ln 2 for 20 records, and to the end: WARN; FAIL when the median accuracy of the first 20 of them is below
    0.5.

    False positives
    Other losses have other levels: asked only where the sigmoid loss is declared (preference_loss), or the first record lies between 0.5
    and 0.7625. A stretch that the loss came down from again is not told.

    What to try
    Start again at a tenth of the rate; log rewards/chosen and rewards/rejected beside the accuracy.
    """
    declared = _declared_sigmoid(frame)
    loss = finite(frame, "loss", t.guess_records)
    if not declared and not (loss.step[0] <= t.init_steps and t.init_range[0] <= loss.value[0] <= t.init_range[1]):
        raise CannotTell(
            "neither a declaration (--fact preference_loss=sigmoid) nor the first loss tell that it is the sigmoid one"
        )
    limit = t.guess_ratio * math.log(2)
    state = lasting(loss.memo(stats.median5) > limit, t.guess_records)
    if state is None:
        return
    sure = _accuracy(frame, int(loss.step[state.since]), int(loss.step[state.told]))
    wrong = sure is not None and sure < 0.5  # of two answers, by a guess
    yield sighting(
        FAIL if wrong else WARN,
        f"the loss is above {limit:.4g}, {t.guess_ratio:g} times that of two equal models, from step {loss.step[state.since]} to the end"
        f"{'' if sure is None else f', with an accuracy of {sure:.2g}'}: the policy is surer of the wrong answers.",
        loss,
        first=state.since,
        last=len(loss) - 1,
        flagged=state.told,
        threshold={"loss": limit, "records": t.guess_records},
    )


def _accuracy(frame: Frame, first_step: int, last_step: int) -> float | None:
    """The median accuracy between two steps, where it was logged."""
    if "rewards/accuracies" not in frame:
        return None
    told = frame["rewards/accuracies"].finite
    between = told.value[(told.step >= first_step) & (told.step <= last_step)]
    return stats.median(between) if len(between) else None


def _early(frame: Frame, steps: stats.Ints, t: PreferenceThresholds) -> stats.Bools:
    """Which steps come before half of the first epoch, or of the planned steps. Raises CannotTell when neither is known."""
    if "epoch" in frame and len(epoch := frame["epoch"].finite):
        at = epoch.upto(steps)
        early: stats.Bools = (at < 0) | (epoch.value[np.maximum(at, 0)] < t.saturated_epoch)
        return early
    if frame.total_steps is None:
        raise CannotTell("neither epochs nor the planned steps are known (--fact total_steps=N)")
    return steps < t.saturated_epoch * frame.total_steps
