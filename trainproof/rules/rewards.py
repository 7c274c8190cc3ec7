"""TP804, TP807 and TP810: the reward itself. A log that knows only rewards can be judged by them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trainproof import stats
from trainproof.frame import Frame, Series
from trainproof.rules.registry import FAIL, INFO, WARN, CannotTell, Sighting, rule, sighting
from trainproof.rules.states import finite, holds_since, lasting, rises_no_more
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
    Share of groups without spread >= 0.9, or reward_std == 0, in 10 of 20 records: WARN (INFO while the reward clearly rises all the
    same). The same, with the reward constant and the gradient norm 0 for 50 records: FAIL. Where neither is logged: the reward is
    exactly the lowest so far in 75 % of the last 100 (at least 50) records, to the end: WARN; INFO while it rises.

    False positives
    A policy that solved its task scores 1 in every group: its reward has risen. A few such records are normal. A sparse reward that is
    found late is flagged until it is found, and not after.

    What to try
    Filter prompts that are always or never solved.
    """
    name = next((name for name in (*ZERO_STD, "reward_std") if name in frame), None)
    if name is None:
        yield from _floor(frame, t)
        return
    series = finite(frame, name, t.signal_window)
    none = series.value == 0 if name == "reward_std" else series.value >= t.signal_share
    total = np.concatenate(([0], np.cumsum(none)))
    n = np.arange(t.signal_window, len(series) + 1)
    hits = np.flatnonzero(total[n] - total[n - t.signal_window] >= t.signal_records)
    if not len(hits):
        return
    flagged, dead = int(n[hits[0]]) - 1, _dead(frame, series, t)
    severity = FAIL
    if dead is None:
        still = rises_no_more(frame, series, flagged, t.signal_rises)
        severity, flagged = (INFO, flagged) if still is None else (WARN, still)
    yield sighting(
        severity,
        f"{series.name} says that the answers scored alike in {int(none.sum())} of {len(series)} records.",
        series,
        first=int(np.argmax(none)),
        last=len(series) - 1,
        flagged=max(flagged, dead or 0),
        threshold={"share": t.signal_share, "records": t.signal_records},
    )


def _dead(frame: Frame, series: Series, t: PreferenceThresholds) -> int | None:
    """The point of `series` by which the reward had not moved and no gradient had flowed for 50 records, to the end."""
    if "reward" not in frame or "grad_norm" not in frame:
        return None
    reward, grads = frame["reward"], frame["grad_norm"]
    mine, theirs = reward.align(grads)
    still = (grads.value[theirs] == 0) & (reward.value[mine] == reward.value[-1])
    dead = lasting(still, t.signal_dead)
    return None if dead is None else int(series.upto(reward.step[mine[dead.told : dead.told + 1]])[0])


def _floor(frame: Frame, t: PreferenceThresholds) -> Iterator[Sighting]:
    """A log of rewards alone: is the reward nearly always the lowest there is?"""
    if "reward" not in frame:
        raise CannotTell("neither reward_std nor a share of groups without spread in the log")
    reward = finite(frame, "reward", t.floor_min_records)
    lowest = np.minimum.accumulate(reward.value)
    total = np.concatenate(([0], np.cumsum(reward.value == lowest)))
    n = np.arange(1, len(reward) + 1)
    window = np.minimum(n, t.floor_window)
    often = (total[n] - total[n - window] >= t.floor_share * window) & (n >= t.floor_min_records)
    state = lasting(often, 1)
    if state is None:
        return
    latest = reward.value[-t.floor_window :]
    still = rises_no_more(frame, reward, state.told, t.signal_rises)
    yield sighting(
        INFO if still is None else WARN,
        f"the reward is exactly {lowest[-1]:.4g}, the lowest there is, in {int((latest == lowest[-1]).sum())} of the last {len(latest)} "
        "records: nothing is being rewarded.",
        reward,
        first=state.since,
        last=len(reward) - 1,
        flagged=state.told if still is None else still,
        threshold={"share": t.floor_share, "records": t.floor_window},
    )


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
    reward = finite(frame, "reward", t.collapse_min_records)
    _, recent = stats.trailing_median(reward.value, t.collapse_width)
    at = np.arange(t.collapse_width - 1, len(reward))
    best = np.maximum.accumulate(recent)
    gained = best - recent[0]
    noise = reward.memo(stats.noise_so_far)[at]
    for severity, share in ((FAIL, t.collapse_share), (WARN, t.collapse_share_warn)):
        fallen = (
            (gained > t.collapse_noise * noise)
            & (best - recent >= share * gained)
            & (best - recent >= t.collapse_noise * noise)
        )
        run = stats.last_run(fallen)
        if run and run[1] - run[0] >= t.collapse_records:
            top = int(np.argmax(recent))
            yield sighting(
                severity,
                f"the reward went from {recent[0]:.4g} to {best[-1]:.4g} and back to {recent[-1]:.4g} (medians of {t.collapse_width} records).",
                reward,
                first=int(at[top]),
                last=len(reward) - 1,
                flagged=int(at[run[0] + t.collapse_records - 1]),
                threshold={"share": share, "noise": t.collapse_noise},
            )
            return


@rule(
    "TP810",
    "reward-never-rises",
    severity=WARN,
    needs=("reward",),
    objectives=REWARD,
    min_records=300,
    whole_run=True,
    fix="Check the exploration, the scale of the reward and the learning rate; compare with a random policy.",
)
def reward_never_rises(frame: Frame, t: PreferenceThresholds) -> Iterator[Sighting]:
    """After many episodes the reward is where it was, with room to improve.

    What it does
    Compares the first quarter of the rewards with the last, with the noise of both, and looks for a trend.

    Why it matters
    The policy does not learn from its reward: everything after this is spent on noise.

    Formula
    At the common judging points from 300 records on: median of the last quarter - median of the first + 2 standard errors < 0.25 of the
    rewards' robust spread, no twentieth of the run a whole spread above the first, and Mann-Kendall Z < 1.96, to the end: WARN.

    False positives
    A policy that was good from the start has little spread about its level: asked only where the spread is 20 % of the level or more.
    Two-valued rewards (games against itself) stand still by construction: 5 different values are needed. A fall is TP807's.

    What to try
    Train on one easy task first.
    """
    reward = finite(frame, "reward", t.still_min_records)
    counts = [int(n) for n in stats.schedule(len(reward)) if n >= t.still_min_records]
    since = holds_since(counts, lambda n: _stands(reward.value[:n], t))
    if since is None:
        return
    quarter = len(reward) // 4
    yield sighting(
        WARN,
        f"the reward went from {stats.median(reward.value[:quarter]):.4g} to {stats.median(reward.value[-quarter:]):.4g} (medians of the first and "
        f"last quarter of {len(reward)} records), less than its spread can hide.",
        reward,
        first=0,
        last=len(reward) - 1,
        flagged=since - 1,
        threshold={"gain": t.still_gain, "z": t.still_z},
    )


def _stands(x: stats.Floats, t: PreferenceThresholds) -> bool:
    """Whether the rewards stand where they stood, though they are spread enough to improve."""
    sample = stats.thinned(x)
    middle = stats.median(sample)
    spread = stats.MAD_TO_SIGMA * stats.median(np.abs(sample - middle))
    if not spread > t.still_spread * abs(middle) or len(stats.distinct(sample)[0]) < t.still_values:
        return False
    quarter = len(x) // 4
    gain = stats.median(x[-quarter:]) - stats.median(x[:quarter])
    se = stats.MEDIAN_SE * spread * (2 / quarter) ** 0.5
    blocks = stats.block_medians(x, t.still_blocks)
    if abs(gain) + 2 * se >= t.still_gain * spread or float(blocks.max() - blocks[0]) > spread:
        return False
    return stats.trend_z(x) < t.still_z
