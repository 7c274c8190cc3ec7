"""Family TP4: gradient norms. There is no absolute limit: healthy medians lie between 0.05 and 200,000.

TP402 and TP406, on steps that did not happen, are in `no_update`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from trainproof import stats
from trainproof.frame import Frame, Series
from trainproof.rules import no_update  # noqa: F401  registers TP402 and TP406
from trainproof.rules.no_update import logged_norms
from trainproof.rules.registry import FAIL, INFO, SUPERVISED, WARN, CannotTell, Sighting, rule, sighting
from trainproof.thresholds import GradientThresholds


@rule(
    "TP401",
    "grad-explosion",
    severity=FAIL,
    needs=("grad_norm",),
    min_records=60,
    fix="Lower the learning rate, clip gradients, and look at the data of the cited steps.",
)
def grad_explosion(frame: Frame, t: GradientThresholds) -> Iterator[Sighting]:
    """The gradient norm stands several times above where it stood.

    What it does
    Compares the median of 5 gradient norms with the median of the 64 before them.

    Why it matters
    A gradient norm that jumps and stays precedes a loss spike or a divergence.

    Formula
    After 50 records: median of 5 >= 5 x the median of the 64 before: WARN; >= 20 x, or a loss spike or a non-finite loss within 10
    records: FAIL, unless the last 20 norms are back within twice that level. Twice that for reinforcement learning. The logarithm of the ratio has to be 9 standard errors of the run's own
    noise as well, and the level a quarter of that of the first 50 records. A single norm 10 x its level is told as INFO.

    False positives
    Single large norms are normal (half of healthy runs have one at 10 x); the first records (249 at step 1 with a long context);
    heavy tails (hence the standard error). None of 11 healthy supervised runs passes 3.1.

    What to try
    Clip at a small multiple of the median.
    """
    grads = logged_norms(frame)
    factor = t.explosion_rl if frame.objective == "rl" else 1.0
    if not _may_explode(grads.value, t):
        return
    high = _above(grads, grads.memo(stats.median5), factor * t.explosion_ratio_warn, t)
    hits = high[_beyond_noise(grads, high, t)] if len(high) else high
    if len(hits):
        yield _exploded(frame, grads, hits, factor, t)
        return
    alone = _above(grads, grads.value, factor * t.explosion_single, t)
    if len(alone):
        yield sighting(
            INFO,
            f"{len(alone)} single gradient norm{'s' if len(alone) > 1 else ''} at {factor * t.explosion_single:g} x the level or more, the "
            f"largest {grads.value[alone].max():.4g}.",
            grads,
            first=int(alone[0]),
            last=int(alone[-1]),
            flagged=int(alone[0]),
            cite=alone[:3].tolist(),
            threshold={"ratio": factor * t.explosion_single},
        )


def _may_explode(x: stats.Floats, t: GradientThresholds) -> bool:
    """A cheap look that spares the long way. No median of 20 records or more is below the tenth value from below of all. Of a long log:
    against half the lower median of the two blocks of 64 that precede or hold a record.

    The median of any 64 records in two blocks is not so far below both medians unless the norms spread over decades within them.
    """
    width = stats.BASELINE_WINDOW
    if len(x) <= stats.BASELINE_EXACT:
        lowest = np.sort(x)[min(stats.BASELINE_MINIMUM // 2, len(x)) - 1]
        return bool(x.max() >= min(t.explosion_ratio_warn, t.explosion_single) * lowest)
    _, level = stats.trailing_median(x, width, width)
    lowest = np.minimum(level, np.concatenate((level[:1], level[:-1]))) / 2
    blocks = x[: len(level) * width].reshape(-1, width)
    high = np.flatnonzero(blocks >= t.explosion_ratio_warn * lowest[:, np.newaxis])
    return bool((high[2:] - high[:-2] < 5).any()) or bool((blocks.max(axis=1) >= t.explosion_single * lowest).any())


def _above(grads: Series, x: stats.Floats, ratio: float, t: GradientThresholds) -> stats.Ints:
    """Records after the grace period at which x is `ratio` x the median of the 64 norms before, and not far below the start."""
    base = grads.memo(stats.baseline).median
    with np.errstate(invalid="ignore", over="ignore"):
        above = (x >= ratio * base) & (base > 0)
    above[: t.explosion_grace] = False
    hits = np.flatnonzero(above)
    start = stats.median(grads.value[: t.explosion_grace]) if len(hits) else 0.0
    return hits[x[hits] >= t.explosion_start * start]


def _beyond_noise(grads: Series, hits: stats.Ints, t: GradientThresholds) -> stats.Bools:
    """Where the rise of the median of 5 is many standard errors of the noise of log grad_norm so far."""
    log = np.log(np.maximum(grads.value, np.finfo(np.float64).tiny))
    noise = stats.noise_so_far(log)[hits]
    rise = np.log(grads.memo(stats.median5)[hits]) - np.log(grads.memo(stats.baseline).median[hits])
    beyond: stats.Bools = rise >= t.explosion_se * stats.MEDIAN_SE / math.sqrt(5) * noise
    return beyond


def _exploded(frame: Frame, grads: Series, hits: stats.Ints, factor: float, t: GradientThresholds) -> Sighting:
    ratio = grads.memo(stats.median5)[hits] / grads.memo(stats.baseline).median[hits]
    flagged, worst = int(hits[0]), int(hits[np.argmax(ratio)])
    beside = _loss_moved(frame, int(grads.step[flagged]), t)
    severe = beside is not None or ratio.max() >= factor * t.explosion_ratio
    severity = FAIL if severe and not _came_back(grads, flagged, t) else WARN
    return sighting(
        severity,
        f"the gradient norm rose to {ratio.max():.3g} x its level (median of 5 against the 64 records before) by step {grads.step[worst]}"
        f"{f', and {beside}' if beside else ''}.",
        grads,
        first=max(0, flagged - 4),
        last=int(hits[-1]),
        flagged=flagged,
        cite=sorted({max(0, flagged - 4), flagged, worst}),
        threshold={"ratio": factor * t.explosion_ratio_warn, "ratio_fail": factor * t.explosion_ratio},
    )


def _came_back(grads: Series, flagged: int, t: GradientThresholds) -> bool:
    """Whether the norm ended near the level that it had before it rose."""
    level = float(grads.memo(stats.baseline).median[flagged])
    end = stats.median(grads.value[-t.explosion_end :])
    return flagged < len(grads) - t.explosion_end and end <= t.explosion_back * level


def _loss_moved(frame: Frame, step: int, t: GradientThresholds) -> str | None:
    """What the loss does within 10 records of `step`, when it spikes or is not finite there; not asked of reward objectives."""
    if "loss" not in frame or frame.objective not in SUPERVISED:
        return None
    raw = frame["loss"]
    lo, hi = _near(raw, step, t)
    if not np.isfinite(raw.value[lo:hi]).all():
        return "the loss is not finite there"
    loss = raw.finite
    near = slice(*_near(loss, step, t))
    base = loss.memo(stats.baseline)
    with np.errstate(invalid="ignore", over="ignore"):
        rise = loss.memo(stats.median5)[near] - base.median[near]
        spiked = (rise >= t.explosion_loss_z * base.scale[near]) & (
            rise >= (t.explosion_loss_ratio - 1) * np.abs(base.median[near])
        )
    return "the loss rose with it" if spiked.any() else None


def _near(loss: Series, step: int, t: GradientThresholds) -> tuple[int, int]:
    at = int(np.searchsorted(loss.step, step))
    return max(0, at - t.explosion_near), at + t.explosion_near + 1


@rule(
    "TP403",
    "grad-vanishing",
    severity=WARN,
    needs=("grad_norm", "loss"),
    objectives=SUPERVISED,
    min_records=50,
    fix="Check saturated activations, normalisation, and whether the loss still depends on the trained weights.",
)
def grad_vanishing(frame: Frame, t: GradientThresholds) -> Iterator[Sighting]:
    """Gradients have died out while the loss stands above its best.

    What it does
    Compares the median of 5 gradient norms with 1e-7, and with the run's own level after its first records.

    Why it matters
    Without gradients nothing changes any more, and the loss is not even at its best.

    Formula
    Median of 5 <= 1e-7, or <= 0.1 % of the median of records 20 to 50, for 20 records, while the median of 5 losses is above its best
    by more than S. WARN. Source of 1e-7: the default of Amazon SageMaker Debugger.

    False positives
    A converged run has small gradients at its best loss: it is not flagged. A placeholder of zeros is not asked.

    What to try
    Look at the norms layer by layer.
    """
    grads, loss = logged_norms(frame), frame["loss"].finite
    begin, end = t.vanishing_reference
    if len(grads) < end or len(loss) < end:
        return
    limit = max(t.vanishing_norm, t.vanishing_share * stats.median(grads.value[begin:end]))
    if not (grads.value <= limit).any():
        return
    low = grads.memo(stats.median5) <= limit
    low[:end] = False
    m5 = loss.memo(stats.median5)
    with np.errstate(invalid="ignore", over="ignore"):
        above = m5 > np.minimum.accumulate(np.fmin(m5, np.inf)) + loss.memo(stats.baseline).scale
    at = loss.upto(grads.step)
    run = stats.first_run(low & (at >= 0) & above[np.maximum(at, 0)], t.vanishing_records)
    if run:
        flagged = run[0] + t.vanishing_records - 1
        yield sighting(
            WARN,
            f"the gradient norm has been {grads.value[run[0]]:.3g} or about it since step {grads.step[run[0]]}, while the loss, "
            f"{m5[at[flagged]]:.4g}, stands above its best.",
            grads,
            first=run[0],
            last=run[1] - 1,
            flagged=flagged,
            threshold={"norm": t.vanishing_norm, "share": t.vanishing_share},
        )


@rule(
    "TP404",
    "grad-drift",
    severity=WARN,
    needs=("grad_norm", "loss"),
    objectives=SUPERVISED,
    min_records=100,
    fix="Lower the learning rate by a tenth, add weight decay or z-loss, and watch whether the norm stops growing.",
)
def grad_drift(frame: Frame, t: GradientThresholds) -> Iterator[Sighting]:
    """Gradient norms grow steadily while the loss no longer falls.

    What it does
    Fits a robust trend to the logarithm of the gradient norm over the last half, at the common judging points.

    Why it matters
    A slow rise of gradient norms comes before instabilities that a spike test sees too late.

    Formula
    Over the last half of the records: Theil-Sen growth of log grad_norm >= 3 x with Mann-Kendall Z > 3, and a loss that does not fall
    (Z > -2): WARN at the first judging point at which it holds; INFO when it no longer does at the last. Windows of more than 4,096
    records are thinned.

    False positives
    Norms that grow while the loss falls are normal late in fine-tuning.

    What to try
    Published runs cured it with a rate lower by 10 %.
    """
    grads, loss = _positive_norms(frame), frame["loss"].finite
    if len(grads) < t.drift_min_records or len(loss) < t.drift_min_records:
        return
    counts = [int(n) for n in stats.schedule(len(grads)) if n >= t.drift_min_records]
    flagged = next((n for n in counts if _drifts(grads, loss, n, t)), None)
    if flagged is None:
        return
    lasting = _drifts(grads, loss, counts[-1], t)
    growth = _growth(np.log(grads.value[flagged // 2 : flagged]))
    yield sighting(
        WARN if lasting else INFO,
        f"the gradient norm grew {math.exp(min(growth.change, 700.0)):.3g} x from step {grads.step[flagged // 2]} to "
        f"{grads.step[flagged - 1]}, while the loss did not fall{'' if lasting else '; it has stopped since'}.",
        grads,
        first=flagged // 2,
        last=len(grads) - 1 if lasting else flagged - 1,
        flagged=flagged - 1,
        threshold={"growth": t.drift_growth, "z": t.drift_z, "loss_z": t.drift_loss_z},
    )


def drifts_now(frame: Frame, t: GradientThresholds) -> bool:
    """Whether the rule's state holds at the last record, taken for a judging point."""
    if "loss" not in frame or "grad_norm" not in frame:
        return False
    grads, loss = _positive_norms(frame), frame["loss"].finite
    return min(len(grads), len(loss)) >= t.drift_min_records and _drifts(grads, loss, len(grads), t)


def _positive_norms(frame: Frame) -> Series:
    logged = logged_norms(frame)
    positive = logged.value > 0
    return logged if positive.all() else logged.take(positive)


def _growth(x: stats.Floats) -> stats.Trend:
    sample = stats.thinned(x)
    return stats.trend(sample, 0, len(sample))


def _drifts(grads: Series, loss: Series, count: int, t: GradientThresholds) -> bool:
    sample = np.log(stats.thinned(grads.value[count // 2 : count]))
    quarter = len(sample) // 4
    rise = stats.median(sample[-quarter:]) - stats.median(sample[:quarter])
    if rise < math.log(t.drift_screen):
        return False
    seen = stats.trend(sample, 0, len(sample))
    if seen.change < math.log(t.drift_growth) or seen.z <= t.drift_z:
        return False
    lo, hi = np.searchsorted(loss.step, [grads.step[count // 2], grads.step[count - 1] + 1])
    return int(hi - lo) > 2 and _growth(loss.value[lo:hi]).z > t.drift_loss_z


@rule(
    "TP405",
    "clipping-always",
    severity=INFO,
    needs=("grad_norm",),
    facts=("max_grad_norm",),
    min_records=50,
    fix="Nothing, if the run learns; otherwise raise the clipping norm or lower the rate and compare.",
)
def clipping_always(frame: Frame, t: GradientThresholds) -> Iterator[Sighting]:
    """Nearly every step is clipped.

    What it does
    Counts the records whose gradient norm is above the declared clipping norm.

    Why it matters
    A run that is always clipped trains at a rate that its gradients do not set; it explains other findings.

    Formula
    grad_norm > max_grad_norm in 95 % of at least 50 records: INFO, with median / max_grad_norm.

    False positives
    Healthy runs are clipped all the time (medians of 18 and 200,000 times the limit are public), so it never moves the verdict.

    What to try
    Compare a run with a larger limit.
    """
    grads, limit = logged_norms(frame), frame.facts.number("max_grad_norm")
    if limit is None:
        raise CannotTell("clipping is declared off")
    share = np.cumsum(grads.value > limit) / np.arange(1, len(grads) + 1)
    if len(grads) < t.clipping_min_records or share[-1] < t.clipping_share:
        return
    often = share >= t.clipping_share
    often[: t.clipping_min_records - 1] = False
    yield sighting(
        INFO,
        f"the gradient norm is above the clipping norm {limit:g} in {share[-1]:.0%} of the records; its median is "
        f"{stats.median(grads.value) / limit:.3g} x that.",
        grads,
        first=0,
        last=len(grads) - 1,
        flagged=int(np.argmax(often)),
        cite=[0, len(grads) - 1],
        threshold={"share": t.clipping_share},
    )
