"""Family TP4: gradient norms. There is no absolute limit: healthy medians lie between 0.05 and 200,000."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trainproof import stats
from trainproof.frame import Frame, Series
from trainproof.rules.registry import FAIL, INFO, SUPERVISED, WARN, CannotTell, Sighting, evidence, rule, sighting
from trainproof.thresholds import GradientThresholds


def logged_norms(frame: Frame) -> Series:
    """The finite gradient norms. Raises CannotTell for a placeholder: a column that never moves is no evidence."""
    grads = frame["grad_norm"].finite
    if not len(grads):
        raise CannotTell("no finite gradient norm in the log")
    if grads.constant and len(grads) > 1:
        raise CannotTell(f"the gradient norm is {grads.value[0]:g} throughout, a placeholder")
    return grads


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
    After 50 records: median of 5 / median of 64 >= 5 and 5 scales of the logarithm: WARN; >= 20, or a loss spike within 10 records, FAIL; WARN when the norm has come back to twice its level or less by the end. Twice that for reward
    objectives. A single norm 10 x its level is told as INFO.

    False positives
    Single large norms are normal (half of healthy runs have one at 10 x); the first records (249 at step 1 with a long context).
    None of 11 healthy supervised runs passes 3.1.

    What to try
    Clip at a small multiple of the median.
    """
    grads = logged_norms(frame)
    if len(grads) < t.explosion_min_records:
        return
    factor = t.explosion_rl if frame.objective == "rl" else 1.0
    ratio, z, single = (x.copy() for x in grads.derived(_growth))
    for x in (ratio, single):
        x[: t.explosion_grace] = 0.0
    with np.errstate(invalid="ignore"):
        hits = np.flatnonzero((ratio >= factor * t.explosion_warn) & (z >= t.explosion_z))
    if len(hits):
        flagged = int(hits[0])
        worst = int(hits[np.argmax(ratio[hits])])
        spiked = frame.objective in SUPERVISED and _loss_spike(frame, grads, flagged, t)
        over = _came_back(grads, flagged, t)
        severity = FAIL if (ratio[worst] >= factor * t.explosion_fail or spiked) and not over else WARN
        yield sighting(
            severity,
            f"the gradient norm rose to {ratio[worst]:.3g} x its level (median of 5 against the 64 records before) at step {grads.step[worst]}"
            f"{', together with the loss' if spiked else ''}.",
            grads,
            first=max(0, flagged - 4),
            last=int(hits[-1]),
            flagged=flagged,
            cite=sorted({max(0, flagged - 4), flagged, worst}),
            threshold={"ratio": factor * (t.explosion_warn if severity is WARN else t.explosion_fail)},
        )
        return
    with np.errstate(invalid="ignore"):
        alone = np.flatnonzero(single >= factor * t.explosion_single)
    if len(alone):
        yield sighting(
            INFO,
            f"{len(alone)} single gradient norm{'s' if len(alone) > 1 else ''} at {factor * t.explosion_single:g} x its level or more, the largest "
            f"{grads.value[alone].max():.4g}.",
            grads,
            first=int(alone[0]),
            last=int(alone[-1]),
            flagged=int(alone[0]),
            cite=alone[:3].tolist(),
            threshold={"ratio": factor * t.explosion_single},
        )


def _growth(grads: Series) -> tuple[stats.Floats, stats.Floats, stats.Floats]:
    """Each record against the 64 before it, in logarithms: ratio of the median of 5, its z, and the ratio of the record alone."""
    log = np.log(np.maximum(grads.value, np.finfo(float).tiny))
    base = stats.baseline(log)
    with np.errstate(invalid="ignore", over="ignore"):
        rise = stats.median5(log) - base.median
        return np.exp(rise), rise / base.scale, np.exp(log - base.median)


def _came_back(grads: Series, flagged: int, t: GradientThresholds) -> bool:
    """Whether the norm ended near the level that it had before it rose."""
    before = float(np.median(grads.value[max(0, flagged - 4 - stats.BASELINE_WINDOW) : flagged - 4]))
    end = float(np.median(grads.value[-t.explosion_end :]))
    return flagged < len(grads) - t.explosion_end and end <= t.explosion_back * before


def _loss_spike(frame: Frame, grads: Series, flagged: int, t: GradientThresholds) -> bool:
    """Whether the loss rose with it: its median of 5 far above its baseline within 10 records."""
    if "loss" not in frame:
        return False
    loss = frame["loss"].finite
    base = loss.memo(stats.baseline)
    at = int(np.searchsorted(loss.step, grads.step[flagged]))
    near = slice(max(0, at - t.explosion_near), at + t.explosion_near)
    with np.errstate(invalid="ignore", over="ignore"):
        high = loss.memo(stats.median5)[near] >= base.median[near] + t.explosion_loss_z * base.scale[near]
    return bool(high.any())


@rule(
    "TP402",
    "grad-zero-no-update",
    severity=FAIL,
    needs=("grad_norm",),
    min_records=5,
    stops=True,
    fix="Check requires_grad, enable_input_require_grads() with gradient checkpointing, and that the optimizer holds the trained weights.",
)
def grad_zero_no_update(frame: Frame, t: GradientThresholds) -> Iterator[Sighting]:
    """The gradient norm is exactly zero and nothing moves.

    What it does
    Looks for gradient norms of exactly 0 in a row, at a learning rate above 0, while the loss shows no trend.

    Why it matters
    No gradient reaches the trained weights: the run costs and does not learn.

    Formula
    grad_norm == 0 in 5 consecutive records with lr > 0 and a loss without trend (|Mann-Kendall Z| < 3; reward objectives: kl == 0). FAIL.

    False positives
    A norm of 0 in every record while the loss falls is a placeholder. A sixth of the records at 0 is normal for rewards in tiny groups.

    What to try
    Print the norm of each parameter's gradient after one backward pass.
    """
    grads = frame["grad_norm"]
    zero = grads.value == 0
    run = stats.first_run(zero, t.zero_records)
    if run is None:
        return
    if not _rate_was_on(frame, grads, run):
        raise CannotTell("the learning rate is 0 there too")
    if frame.objective == "rl":
        if "kl" not in frame or frame["kl"].value.any():
            return
    elif not _loss_stands_still(frame, grads, run, t):
        return
    yield sighting(
        FAIL,
        f"the gradient norm is exactly 0 in {int(zero.sum())} of {len(zero)} records, {run[1] - run[0]} in a row from step {grads.step[run[0]]}, and the "
        "loss does not move.",
        grads,
        first=run[0],
        last=run[1] - 1,
        flagged=run[0] + t.zero_records - 1,
        threshold={"records": t.zero_records},
    )


def _rate_was_on(frame: Frame, grads: Series, run: tuple[int, int]) -> bool:
    if "lr" not in frame:
        return True
    lr = frame["lr"]
    lo, hi = np.searchsorted(lr.step, [grads.step[run[0]], grads.step[run[1] - 1] + 1])
    return hi <= lo or bool((lr.value[lo:hi] > 0).any())


def _loss_stands_still(frame: Frame, grads: Series, run: tuple[int, int], t: GradientThresholds) -> bool:
    """Whether the loss has no trend over the stretch; a loss that goes on falling proves that weights change."""
    if "loss" not in frame:
        return False
    loss = frame["loss"].finite
    lo, hi = (int(i) for i in np.searchsorted(loss.step, [grads.step[run[0]], grads.step[run[1] - 1] + 1]))
    if hi - lo < t.zero_records:
        return False
    return abs(stats.mann_kendall(stats.block_medians(loss.value[lo:hi]))) < t.zero_trend


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
    Compares the median of 5 gradient norms with 1e-7, and with the run's own level after the warm-up.

    Why it matters
    Without gradients nothing changes any more, and the loss has not even reached its best.

    Formula
    median of 5 <= 1e-7, or <= 0.1 % of the median of records 20 to 120, for 20 records while the loss is above its best by more than its
    noise. WARN. Source of 1e-7: the default of a debugger for training jobs.

    False positives
    A converged run has small gradients at its best loss: it is not flagged.

    What to try
    Look at the norms layer by layer.
    """
    grads = logged_norms(frame)
    if len(grads) < t.vanishing_min_records:
        return
    level = float(np.median(grads.value[t.vanishing_from : t.vanishing_to]))
    low = grads.memo(stats.median5) <= max(t.vanishing_norm, t.vanishing_share * level)
    low[: t.vanishing_from] = False
    run = stats.first_run(low, t.vanishing_records)
    if run is None:
        return
    loss = frame["loss"].finite
    at = int(np.searchsorted(loss.step, grads.step[run[0] + t.vanishing_records - 1], side="right"))
    if at < 5:
        return
    now, best = float(np.median(loss.value[at - 5 : at])), float(stats.median5(loss.value[:at])[4:].min())
    if now <= best + 3 * stats.difference_noise(loss.value[:at]):
        return
    yield sighting(
        WARN,
        f"the gradient norm has been at {grads.value[run[0]]:.3g} or less since step {grads.step[run[0]]} (its level was {level:.3g}), while the loss is "
        f"{now:.4g}, above its best {best:.4g}.",
        grads,
        first=run[0],
        last=run[1] - 1,
        flagged=run[0] + t.vanishing_records - 1,
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
    (Z > -2). WARN when it holds at the end.

    False positives
    Norms that grow while the loss falls are normal late in fine-tuning.

    What to try
    Published runs cured it with a rate lower by 10 %.
    """
    grads = logged_norms(frame)
    loss = frame["loss"].finite
    positive = grads.take(grads.value > 0)
    if len(positive) < t.drift_min_records or len(loss) < t.drift_min_records:
        return
    log = np.log(positive.value)
    counts = [int(n) for n in stats.schedule(len(log)) if n >= t.drift_min_records]
    flagged = None
    for count in reversed(counts):
        if not _drifts(log, positive, loss, count, t):
            break
        flagged = count - 1
    if flagged is None:
        return
    half = len(log) // 2
    growth = float(np.exp(min(stats.trend(log, half, len(log)).change, 700.0)))
    yield sighting(
        WARN,
        f"the gradient norm grew {growth:.3g} x over the last half of the run, while the loss did not fall.",
        positive,
        first=half,
        last=len(log) - 1,
        flagged=flagged,
        cite=sorted({half, flagged, len(log) - 1}),
        threshold={"growth": t.drift_growth, "z": t.drift_z},
    )


def _drifts(log: stats.Floats, grads: Series, loss: Series, count: int, t: GradientThresholds) -> bool:
    seen = stats.trend(log, count // 2, count)
    if seen.change < np.log(t.drift_growth) or seen.z <= t.drift_z:
        return False
    lo, hi = np.searchsorted(loss.step, [grads.step[count // 2], grads.step[count - 1] + 1])
    return stats.trend(loss.value, int(lo), int(hi)).z > t.drift_loss_z


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
    grad_norm > max_grad_norm in 95 % of the records: INFO, with median / max_grad_norm.

    False positives
    Healthy runs are clipped all the time (medians of 18 and 200,000 times the limit are public), so it never moves the verdict.

    What to try
    Compare a run with a larger limit.
    """
    grads = logged_norms(frame)
    limit = frame.facts.number("max_grad_norm")
    if limit is None:
        raise CannotTell("clipping is declared off")
    clipped = grads.value > limit
    if len(grads) >= t.clipping_min_records and float(clipped.mean()) >= t.clipping_share:
        yield sighting(
            INFO,
            f"the gradient norm is above the clipping norm {limit:g} in {clipped.mean():.0%} of the records; its median is "
            f"{np.median(grads.value) / limit:.3g} x that.",
            grads,
            first=0,
            last=len(grads) - 1,
            cite=[0, len(grads) - 1],
            threshold={"share": t.clipping_share},
        )


@rule(
    "TP406",
    "grad-norm-stale",
    severity=WARN,
    needs=("grad_norm", "loss"),
    min_records=3,
    fix="Check whether the optimizer skips these steps (loss scaler, overflow, accumulation).",
)
def grad_norm_stale(frame: Frame, t: GradientThresholds) -> Iterator[Sighting]:
    """The same gradient norm, to every digit, in consecutive records with different losses.

    What it does
    Looks for gradient norms of 6 digits or more that repeat exactly while the loss moves.

    Why it matters
    Two batches never have the same gradient norm: the steps in between were skipped, or the value is stale.

    Formula
    At least 6 significant digits identical in 3 consecutive records whose losses differ: WARN "steps skipped". When the repeats are
    regular, the logger fills forward a value that is computed every few steps: INFO.

    False positives
    Norms printed with few digits repeat by chance and are not looked at.

    What to try
    Compare with the loss scale and the number of skipped steps.
    """
    grads = logged_norms(frame)
    same = np.concatenate(([False], np.diff(grads.value) == 0))
    if not same.any():
        return
    runs = [
        (a - 1, b)
        for a, b in stats.runs_of(same)
        if b - a + 1 >= t.stale_records and _digits(float(grads.value[a])) >= t.stale_digits
    ]
    runs = [(a, b) for a, b in runs if _losses_differ(frame, grads, a, b)]
    if not runs:
        return
    lengths = {b - a for a, b in runs}
    regular = len(runs) >= t.stale_regular and len(lengths) == 1 and sum(b - a for a, b in runs) >= 0.8 * len(grads)
    first, stop = runs[0]
    yield sighting(
        INFO if regular else WARN,
        f"the gradient norm {grads.value[first]!r} repeats in {stop - first} consecutive records with different losses"
        f"{', regularly: consistent with a value that is filled forward' if regular else ': consistent with skipped steps'}.",
        grads,
        first=first,
        last=runs[-1][1] - 1,
        flagged=first + t.stale_records - 1,
        cite=range(first, min(stop, first + 5)),
        more=evidence(
            frame["loss"], np.flatnonzero(np.isin(frame["loss"].step, grads.step[first : first + t.stale_records]))
        ),
        threshold={"records": t.stale_records, "digits": t.stale_digits},
    )


def _digits(value: float) -> int:
    """Significant digits of the shortest decimal that reads back as `value`."""
    mantissa = repr(abs(value)).split("e")[0].replace(".", "").strip("0")
    return len(mantissa)


def _losses_differ(frame: Frame, grads: Series, first: int, stop: int) -> bool:
    loss = frame["loss"]
    near = loss.value[np.isin(loss.step, grads.step[first:stop])]
    near = near[np.isfinite(near)]
    return len(near) > 1 and bool((near != near[0]).any())
