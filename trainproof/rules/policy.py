"""TP805, TP808 and TP809: how far a policy moves, from its reference and in one step, and what is left of its entropy."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trainproof import stats
from trainproof.frame import Frame, Series
from trainproof.rules.registry import FAIL, INFO, WARN, CannotTell, Sighting, rule, sighting
from trainproof.rules.rewards import REWARD
from trainproof.rules.states import finite, lasting, rises_no_more
from trainproof.stats import Bools
from trainproof.thresholds import PreferenceThresholds

#: probability ratio of new to old policy, as trainers log it
RATIOS = ("ratio", "policy/ratio", "eval/ratio", "ratio/mean")


@rule(
    "TP805",
    "kl-out-of-range",
    severity=FAIL,
    needs=("kl",),
    objectives=REWARD,
    min_records=25,
    stops=True,
    fix="Raise the KL penalty or lower the learning rate; for a negative KL check that generation and training use the same distribution.",
)
def kl_out_of_range(frame: Frame, t: PreferenceThresholds) -> Iterator[Sighting]:
    """The policy's divergence from its reference is impossible, or runs away without earning reward.

    What it does
    Follows the median of 5 of the logged KL.

    Why it matters
    A clearly negative estimate says that samples do not come from the policy that is trained; a divergence that grows without reward is
    a policy that leaves its language.

    Formula
    Median of 5 < -1: WARN, < -10: FAIL. After 50 records, 10 x the median of the 64 before and 5 scales S above it, above 0.5, with a
    reward not above its own median then: WARN. Above 10 for 20 records to the end, with a reward that is not above that of its first 10 records: FAIL.

    False positives
    Estimates scatter about 0 (-0.5 is noise). A KL that starts at 0 grows by factors while the reward grows: that is learning.

    What to try
    Read samples from before and after.
    """
    kl = finite(frame, "kl", t.kl_min_records)
    m5 = kl.memo(stats.median5)
    for severity, state, why in (
        (FAIL, m5 < t.kl_negative, "an estimate that low says that the samples do not come from this policy"),
        (FAIL, _lost(frame, kl, m5, t), "with no more reward than at the start"),
        (WARN, m5 < t.kl_negative_warn, "an estimate that low says that the samples do not come from this policy"),
        (WARN, _jumped(frame, kl, m5, t), "ten times its level before, and no more reward"),
    ):
        if state.any():
            i = int(np.argmax(state))
            yield sighting(
                severity,
                f"the KL is {m5[i]:.4g} (median of 5) at step {kl.step[i]}: {why}.",
                kl,
                first=max(0, i - 4),
                last=len(kl) - 1 if state[-1] else i,
                flagged=i,
                threshold={"negative": t.kl_negative_warn, "times": t.kl_times, "high": t.kl_high},
            )
            return


def _lost(frame: Frame, kl: Series, m5: stats.Floats, t: PreferenceThresholds) -> Bools:
    """True from where a high KL has held for 20 records, to the end, without reward."""
    out = np.zeros(len(kl), bool)
    if "reward" not in frame or not m5[-1] > t.kl_high:
        return out
    reward = frame["reward"].finite
    if len(reward) < 2 * t.entropy_first:
        return out
    start = stats.median(reward.value[: t.entropy_first])
    at = reward.upto(kl.step)
    poor = (at >= t.entropy_first) & ~(reward.memo(stats.median5)[np.maximum(at, 0)] > start)
    state = lasting((m5 > t.kl_high) & poor, t.kl_records)
    if state:
        out[state.told :] = True
    return out


def _jumped(frame: Frame, kl: Series, m5: stats.Floats, t: PreferenceThresholds) -> Bools:
    """Where the KL stands ten times above its level before while the reward does not stand above its own."""
    if not m5[t.kl_grace :].size or not np.nanmax(m5[t.kl_grace :]) > t.kl_least:
        return np.zeros(len(kl), bool)
    base = kl.memo(stats.baseline)
    high = (m5 > t.kl_least) & (m5 > t.kl_times * base.median) & (m5 > base.median + t.kl_scales * base.scale)
    high[: t.kl_grace] = False
    if "reward" not in frame or not len(reward := frame["reward"].finite):
        return high
    at = reward.upto(kl.step)
    gained = reward.memo(stats.median5) > reward.memo(stats.baseline).median
    return high & ~((at >= 0) & gained[np.maximum(at, 0)])


@rule(
    "TP808",
    "policy-step-too-large",
    severity=WARN,
    objectives=REWARD,
    fix="Lower the learning rate, use fewer optimisation epochs a batch, or larger batches.",
)
def policy_step_too_large(frame: Frame, t: PreferenceThresholds) -> Iterator[Sighting]:
    """Half of the policy's updates are clipped, or its probability ratio is far from 1.

    What it does
    Follows the share of clipped tokens and the ratio of new to old probabilities.

    Why it matters
    Clipped tokens give no gradient, and an update that large is no longer the one that was computed.

    Formula
    Median of 5 of clip_ratio >= 0.5, or of the ratio >= 10, for 20 records to the end: WARN.

    False positives
    A few clipped batches after a rise of the reward are normal: the state has to hold. A ratio may be logged as 1 throughout.

    What to try
    Compare the ratio at the first optimisation epoch of a batch: it has to be 1.
    """
    found = [(name, t.clip_ratio) for name in RATIOS if name in frame]
    if "clip_ratio" in frame:
        found.append(("clip_ratio", t.clip_share))
    if not found:
        raise CannotTell("neither clip_ratio nor a probability ratio in the log")
    for name, limit in found:
        series = finite(frame, name, t.clip_min_records)
        if not series.value[-1] >= 0:
            continue
        state = lasting(series.memo(stats.median5) >= limit, t.clip_records)
        if state:
            yield sighting(
                WARN,
                f"{name} is {stats.median(series.value[state.since :]):.3g} since step {series.step[state.since]} (median; the limit is {limit:g}).",
                series,
                first=state.since,
                last=len(series) - 1,
                flagged=state.told,
                threshold={"limit": limit, "records": t.clip_records},
            )
            return


@rule(
    "TP809",
    "entropy-collapse",
    severity=WARN,
    needs=("entropy",),
    objectives=REWARD,
    min_records=30,
    fix="Add an entropy bonus or a KL penalty, raise the sampling temperature, or lower the learning rate.",
)
def entropy_collapse(frame: Frame, t: PreferenceThresholds) -> Iterator[Sighting]:
    """The policy has stopped exploring, or has come apart.

    What it does
    Compares the median of 5 entropies with that of the first 10 records.

    Why it matters
    Samples without variety carry no advantage; an entropy that doubles is a policy that writes noise.

    Formula
    Median of 5 < 10 % of the median of the first 10 records (or < 0.02 nats from above 0.04), or > 2 x it and > 1 nat, for 20 records to the
    end: WARN; a collapse is INFO while the reward clearly rises.

    False positives
    A policy that solved its task is certain of it: the reward rose. Entropies of continuous actions are negative and are not judged.

    What to try
    Sample one prompt 16 times and count the different answers.
    """
    entropy = finite(frame, "entropy", t.entropy_min_records)
    start = stats.median(entropy.value[: t.entropy_first])
    if entropy.value[: t.entropy_first].min() < 0 or start <= 0:
        raise CannotTell("the entropy is negative: that of continuous actions, or of another sign")
    m5 = entropy.memo(stats.median5)
    low = m5 < max(t.entropy_share * start, t.entropy_floor if start > 2 * t.entropy_floor else 0.0)
    high = (m5 > t.entropy_times * start) & (m5 > t.entropy_high)
    for state, word in ((lasting(low, t.entropy_records), "fell"), (lasting(high, t.entropy_records), "rose")):
        if state:
            still = rises_no_more(frame, entropy, state.told, t.signal_rises) if word == "fell" else state.told
            yield sighting(
                INFO if still is None else WARN,
                f"the entropy {word} from {start:.4g} (median of the first {t.entropy_first} records) to {m5[-1]:.4g}.",
                entropy,
                first=state.since,
                last=len(entropy) - 1,
                flagged=state.told if still is None else still,
                cite=[0, state.since, state.told, len(entropy) - 1],
                threshold={"share": t.entropy_share, "times": t.entropy_times},
            )
