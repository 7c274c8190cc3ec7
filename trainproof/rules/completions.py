"""TP812 to TP814: what a model writes: its alignment with its input, and the length of its answers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trainproof import stats
from trainproof.frame import Frame
from trainproof.rules.registry import FAIL, WARN, CannotTell, Sighting, evidence, rule, sighting
from trainproof.rules.rewards import REWARD
from trainproof.rules.states import finite, holds_since, lasting, level
from trainproof.thresholds import PreferenceThresholds

#: how badly attention is aligned with its input, and how well, as trainers of speech models log it
ERRORS = ("align_error", "alignment_error", "attention_error")
FOCUS = ("attention_focus", "alignment_score", "focus_rate", "alignment_diagonality")


@rule(
    "TP812",
    "alignment-not-learned",
    severity=WARN,
    needs=("loss",),
    min_records=100,
    fix="Check text and audio of one sample, trim silences, add guided attention, and train the short samples first.",
)
def alignment_not_learned(frame: Frame, t: PreferenceThresholds) -> Iterator[Sighting]:
    """The loss falls, but the attention of a speech model does not lock on to its input.

    What it does
    Compares the logged alignment error (or focus) with that of its first tenth.

    Why it matters
    Such a model copies its own last frame: the loss falls under teacher forcing, and nothing intelligible comes out without it.

    Formula
    At the common judging points from 100 records on: the error is not 10 % below that of the first tenth and has no downward trend (Z > -3),
    while the loss fell by 10 %, to the end: WARN.

    False positives
    Alignment comes suddenly and late: the warning ends when it does.

    What to try
    Look at the attention plots.
    """
    name = next((name for name in (*ERRORS, *FOCUS) if name in frame), None)
    if name is None:
        raise CannotTell("no alignment error or focus in the log")
    series = finite(frame, name, t.alignment_min_records)
    error = series.value if name in ERRORS else 1 - series.value
    loss = frame["loss"].finite
    counts = [int(n) for n in stats.schedule(len(series)) if n >= t.alignment_min_records]
    fell = loss.upto(series.step) + 1
    since = holds_since(counts, lambda n: _unaligned(error[:n], t) and _fell(loss.value[: fell[n - 1]], t))
    if since:
        tenth = max(1, len(error) // 10)
        yield sighting(
            WARN,
            f"{name} went from {stats.median(series.value[:tenth]):.4g} to {stats.median(series.value[-tenth:]):.4g} (medians of the first and last "
            "tenth), while the loss fell: the attention has not locked on.",
            series,
            first=0,
            last=len(series) - 1,
            flagged=since - 1,
            threshold={"share": t.alignment_share, "z": t.alignment_z},
        )


def _unaligned(error: stats.Floats, t: PreferenceThresholds) -> bool:
    tenth = len(error) // 10
    first, last = stats.median(error[:tenth]), stats.median(error[-tenth:])
    return last > (1 - t.alignment_share) * first > 0 and stats.trend_z(error) > t.alignment_z


def _fell(x: stats.Floats, t: PreferenceThresholds) -> bool:
    tenth = max(1, len(x) // 10)
    first, last = stats.median(x[:tenth]), stats.median(x[-tenth:])
    return first - last > t.alignment_loss * abs(first)


@rule(
    "TP813",
    "truncated-completions",
    severity=FAIL,
    needs=("truncated_ratio",),
    objectives=REWARD,
    min_records=10,
    fix="Raise the limit on the completion length, or teach the model to stop (end token in the data, a length penalty).",
)
def truncated_completions(frame: Frame, t: PreferenceThresholds) -> Iterator[Sighting]:
    """Nearly every completion is cut off at the length limit.

    What it does
    Follows the share of completions that reached the limit.

    Why it matters
    An answer that is cut off cannot be scored for what it would have said; the policy is taught on fragments.

    Formula
    Median of the last 10 shares >= 0.9, to the end: WARN; with a reward of exactly 0 in these 10 records: FAIL.

    False positives
    Runs that begin with long answers and learn to stop are not flagged once they do.

    What to try
    Print the end of a few completions.
    """
    share = finite(frame, "truncated_ratio", t.truncated_records)
    at, median = level(share.value, t.truncated_records)
    state = lasting(median >= t.truncated_share, 1)
    if state is None:
        return
    unpaid = _unpaid(frame, share.step, t)[at]
    dead = lasting((median >= t.truncated_share) & unpaid, 1)
    flagged = int(at[(dead or state).told])
    yield sighting(
        FAIL if dead else WARN,
        f"{stats.median(share.value[flagged:]):.0%} of the completions are cut off at the length limit since step {share.step[flagged]}"
        f"{', and no reward is given' if dead else ''}.",
        share,
        first=int(at[state.since]) - t.truncated_records + 1,
        last=len(share) - 1,
        flagged=flagged,
        threshold={"share": t.truncated_share, "records": t.truncated_records},
    )


def _unpaid(frame: Frame, steps: stats.Ints, t: PreferenceThresholds) -> stats.Bools:
    """Where the last 10 rewards are all exactly 0, at each step."""
    out = np.zeros(len(steps), bool)
    if "reward" in frame and len(reward := frame["reward"].finite) >= t.truncated_records:
        paid = np.concatenate(([0], np.cumsum(reward.value != 0)))
        at = reward.upto(steps) + 1
        out = (at >= t.truncated_records) & (paid[at] == paid[np.maximum(at - t.truncated_records, 0)])
    return out


@rule(
    "TP814",
    "length-without-reward",
    severity=WARN,
    needs=("completion_length", "reward"),
    objectives=REWARD,
    min_records=60,
    fix="Normalise the loss by a constant, not by the length; add a length penalty; look for a reward that length alone earns.",
)
def length_without_reward(frame: Frame, t: PreferenceThresholds) -> Iterator[Sighting]:
    """Completions grow longer and longer without earning more.

    What it does
    Follows the completion length beside the reward.

    Why it matters
    Length that earns nothing costs generation, and is a known bias of losses that are averaged over each answer.

    Formula
    At the common judging points from 60 records on: the median length of the last tenth is twice that of the first, with Mann-Kendall Z > 4,
    while the reward has Z < 1.96, to the end: WARN.

    False positives
    Reasoning that grows longer and earns more is what such training is for: the reward rises.

    What to try
    Plot the reward against the length within one batch.
    """
    length, reward = finite(frame, "completion_length", t.length_min_records), frame["reward"].finite
    counts = [int(n) for n in stats.schedule(len(length)) if n >= t.length_min_records]
    ends = reward.upto(length.step)
    since = holds_since(
        counts, lambda n: _grows(length.value[:n], t) and not _earns(reward.value[: ends[n - 1] + 1], t)
    )
    if since:
        tenth = len(length) // 10
        yield sighting(
            WARN,
            f"completions grew from {stats.median(length.value[:tenth]):.4g} to {stats.median(length.value[-tenth:]):.4g} (medians of the first and "
            "last tenth), and the reward did not rise.",
            length,
            first=0,
            last=len(length) - 1,
            flagged=since - 1,
            threshold={"times": t.length_times, "z": t.length_z},
            more=evidence(reward, [0, len(reward) - 1]) if len(reward) else (),
        )


def _grows(x: stats.Floats, t: PreferenceThresholds) -> bool:
    tenth = len(x) // 10
    first, last = stats.median(x[:tenth]), stats.median(x[-tenth:])
    return last >= t.length_times * first > 0 and stats.trend_z(x) > t.length_z


def _earns(reward: stats.Floats, t: PreferenceThresholds) -> bool:
    return stats.trend_z(reward) >= t.length_reward_z
