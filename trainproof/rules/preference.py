"""Family TP8, its first two rules: rewards. A log that knows only rewards can be judged by them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trainproof import stats
from trainproof.frame import Frame
from trainproof.rules.registry import FAIL, INFO, WARN, CannotTell, Sighting, rule, sighting
from trainproof.thresholds import PreferenceThresholds

REWARD = frozenset({"rl"})
#: share of groups whose answers all scored the same, as trainers log it
ZERO_STD = ("frac_reward_zero_std", "zero_std_ratio")


@rule(
    "TP804",
    "no-advantage-signal",
    severity=FAIL,
    objectives=REWARD,
    fix="Use prompts of mixed difficulty, a reward with more levels, or larger groups: equal rewards give no gradient.",
)
def no_advantage_signal(frame: Frame, t: PreferenceThresholds) -> Iterator[Sighting]:
    """Nearly every group of answers scored the same: there is nothing to prefer.

    What it does
    Follows the share of groups without spread in their rewards, or the spread itself.

    Why it matters
    Group-relative advantages of equal rewards are 0: the step costs generation and teaches nothing.

    Formula
    Share of groups without spread >= 0.9, or reward_std == 0, in 10 of 20 records: WARN (INFO while
    the reward clearly rises all the same). Reward constant and gradient norm 0 for 50
    records: FAIL.

    False positives
    A policy that solved its task scores 1 in every group: look at the reward. A few such records are normal.

    What to try
    Filter prompts that are always or never solved.
    """
    for name in ZERO_STD:
        if name in frame:
            series, none = frame[name].finite, frame[name].finite.value >= t.signal_share
            break
    else:
        if "reward_std" not in frame:
            raise CannotTell("neither reward_std nor a share of groups without spread in the log")
        series, none = frame["reward_std"].finite, frame["reward_std"].finite.value == 0
    if len(series) < t.signal_window:
        raise CannotTell(f"{len(series)} records, needs {t.signal_window}")
    total = np.concatenate(([0], np.cumsum(none)))
    n = np.arange(t.signal_window, len(series) + 1)
    hits = np.flatnonzero(total[n] - total[n - t.signal_window] >= t.signal_records)
    if not len(hits):
        return
    flagged = int(n[hits[0]]) - 1
    severity = FAIL if _dead(frame, t) else INFO if _reward_rises(frame, t) else WARN
    yield sighting(
        severity,
        f"{series.name} says that the answers scored alike in {int(none.sum())} of {len(series)} records.",
        series,
        first=int(np.argmax(none)),
        last=len(series) - 1,
        flagged=flagged,
        threshold={"share": t.signal_share, "records": t.signal_records},
    )


def _reward_rises(frame: Frame, t: PreferenceThresholds) -> bool:
    """Whether the reward has a clear upward trend all the same."""
    if "reward" not in frame:
        return False
    return stats.mann_kendall(stats.block_medians(frame["reward"].finite.value)) > t.signal_rises


def _dead(frame: Frame, t: PreferenceThresholds) -> bool:
    """Whether the reward has not moved and no gradient has flowed for the last records."""
    if "reward" not in frame or "grad_norm" not in frame:
        return False
    reward, grads = frame["reward"].value[-t.signal_dead :], frame["grad_norm"].value[-t.signal_dead :]
    return len(reward) == len(grads) == t.signal_dead and not grads.any() and bool((reward == reward[0]).all())


@rule(
    "TP807",
    "reward-collapse",
    severity=FAIL,
    needs=("reward",),
    objectives=REWARD,
    min_records=40,
    stops=True,
    fix="Go back to the checkpoint with the best reward; lower the learning rate or raise the KL penalty.",
)
def reward_collapse(frame: Frame, t: PreferenceThresholds) -> Iterator[Sighting]:
    """The reward has given back a good part of what it had gained.

    What it does
    Compares the median of the last 10 rewards with the best such median so far.

    Why it matters
    A policy that falls off its reward rarely climbs back by itself.

    Formula
    Below the best by 50 % (WARN 40 %) of (best - first) and by 3 units of noise, for 20 records. FAIL or WARN. INFO is not given: a reward
    that came back by the end is not flagged.

    False positives
    A curriculum to harder prompts lowers the reward on purpose; noisy rewards (hence the units of noise).

    What to try
    Look at samples from before and after the best.
    """
    reward = frame["reward"].finite
    if len(reward) < t.collapse_min_records:
        raise CannotTell(f"{len(reward)} finite records, needs {t.collapse_min_records}")
    _, level = stats.trailing_median(reward.value, t.collapse_width)
    at = np.arange(t.collapse_width - 1, len(reward))
    best = np.maximum.accumulate(level)
    gained = best - level[0]
    noise = reward.memo(stats.noise_so_far)[at]
    for severity, share in ((FAIL, t.collapse_share), (WARN, t.collapse_share_warn)):
        fallen = (
            (gained > t.collapse_noise * noise)
            & (best - level >= share * gained)
            & (best - level >= t.collapse_noise * noise)
        )
        run = stats.last_run(fallen)
        if run and run[1] - run[0] >= t.collapse_records:
            top = int(np.argmax(level))
            yield sighting(
                severity,
                f"the reward went from {level[0]:.4g} to {best[-1]:.4g} and back to {level[-1]:.4g} (medians of {t.collapse_width} records).",
                reward,
                first=int(at[top]),
                last=len(reward) - 1,
                flagged=int(at[run[0] + t.collapse_records - 1]),
                threshold={"share": share, "noise": t.collapse_noise},
            )
            return
