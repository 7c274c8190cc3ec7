"""Family TP95: experts, auxiliary losses, and the size of logits and activations."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from trainproof import stats
from trainproof.frame import Frame, Series
from trainproof.rules.registry import FAIL, INFO, SUPERVISED, WARN, CannotTell, Sighting, evidence, rule, sighting
from trainproof.rules.states import Lasting, finite, holds_since, lasting
from trainproof.thresholds import ArchitectureThresholds
from trainproof.verdict import Severity

#: auxiliary losses of routers
AUXILIARY = re.compile(r".*(?:aux|balanc\w*|gate|router_z|z_?loss).*", re.I)
#: sizes that stay within bounds in a stable run: logits are warned of, norms are told
_LOGITS = re.compile(r".*(?:max_?(?:attn|attention)?_?logit|attn_logit|attention_logit|z_?loss|logit_max).*", re.I)
_NORMS = re.compile(
    r".*(?:embedding_norm|embed_norm|activation_norm|act_norm|hidden_norm|params?_norm|weight_norm).*", re.I
)
_ATTENTION_ENTROPY = re.compile(r".*(?:attn|attention)_entropy.*", re.I)


def is_size(name: str) -> bool:
    """Whether TP953 follows the metric: a logit, a norm, an entropy of attention."""
    if name.startswith(("lr", "expert_load/")):
        return False
    return any(pattern.fullmatch(name) for pattern in (_LOGITS, _NORMS, _ATTENTION_ENTROPY))


@rule(
    "TP951",
    "expert-imbalance",
    severity=FAIL,
    needs=("expert_load/*",),
    fix="Raise the weight of the load-balancing loss (check that it reaches the router), add noise or a bias to the routing, check the capacity.",
)
def expert_imbalance(frame: Frame, t: ArchitectureThresholds) -> Iterator[Sighting]:
    """A few experts get nearly all tokens.

    What it does
    Divides the load of each expert by the mean load of its record.

    Why it matters
    Experts without tokens do not learn, and the crowded ones drop tokens or slow every step down: a dense model at the price of a large one.

    Formula
    The largest load >= 4 x the mean, or an expert with none, in 20 records to the end: WARN. One expert with 90 % of all, or three quarters
    of at least 4 experts under 5 % of the mean: FAIL.

    False positives
    Counts of fewer than 1,000 tokens a record are too few to tell: passed over. The start of a run is uneven: the state has to last.

    What to try
    Plot the loads; look at the router's gradient.
    """
    names = sorted((name for name in frame if name.startswith("expert_load/")), key=lambda name: (len(name), name))
    if len(names) < 2:
        raise CannotTell("the load of one expert alone")
    first = frame[names[0]]
    if len(first) < t.expert_records or any(not np.array_equal(frame[name].step, first.step) for name in names):
        raise CannotTell(f"fewer than {t.expert_records} records of all experts at the same steps")
    table = np.stack([frame[name].value for name in names])
    whole = table.sum(axis=0)
    known = (
        np.isfinite(whole)
        & (whole > 0)
        & (table.min(axis=0) >= 0)
        & ((whole >= t.expert_tokens) | (whole <= len(names)))
    )
    load = np.divide(table * len(names), whole, out=np.ones_like(table), where=known)
    most, few = load.max(axis=0), (load < t.expert_starved).mean(axis=0)
    dead = known & ((most >= t.expert_top * len(names)) | ((few >= t.expert_starved_share) & (len(names) >= 4)))
    uneven = known & ((most >= t.expert_times) | (load.min(axis=0) == 0))
    state = lasting(dead, t.expert_records)
    severity: Severity = FAIL if state else WARN
    state = state or lasting(uneven | dead, t.expert_records)
    if state is None:
        return
    top = int(np.argmax(load[:, -1]))
    yield sighting(
        severity,
        f"{names[top]} gets {most[-1]:.3g} x the mean load, and {int((load[:, -1] < t.expert_starved).sum())} of {len(names)} experts get less than "
        f"{t.expert_starved:.0%} of it, since step {first.step[state.since]}.",
        frame[names[top]],
        first=state.since,
        last=len(first) - 1,
        flagged=state.told,
        threshold={"times": t.expert_times, "records": t.expert_records},
        more=evidence(frame[names[int(np.argmin(load[:, -1]))]], [len(first) - 1]),
    )


@rule(
    "TP952",
    "auxiliary-loss-constant",
    severity=WARN,
    needs=("loss/*", "loss"),
    objectives=SUPERVISED,
    min_records=50,
    fix="Check that the auxiliary loss is computed from this step's router outputs, that it is not detached, and its weight.",
)
def auxiliary_loss_constant(frame: Frame, t: ArchitectureThresholds) -> Iterator[Sighting]:
    """A load-balancing or other auxiliary loss never changes while the loss does.

    What it does
    Looks for an auxiliary loss that is the same to 6 digits.

    Why it matters
    A loss that does not depend on the batch has no gradient: it is logged, and does nothing.

    Formula
    50 records to the end within 1e-6 of one another, not 0, while the loss varies: WARN.

    False positives
    An auxiliary loss of 0 is a placeholder and TP005's. Values printed with few digits stand still for a while: those of fewer than 4
    significant digits are passed over.

    What to try
    Print its gradient with respect to the router.
    """
    loss = frame["loss"]
    for name in frame:
        if not name.startswith("loss/") or not AUXILIARY.fullmatch(name) or len(frame[name]) < t.auxiliary_records:
            continue
        series = frame[name]
        value = float(series.value[-1])
        if not np.isfinite(value) or value == 0 or float(f"{value:.2e}") == value:
            continue
        state = lasting(np.abs(series.value - value) <= t.auxiliary_near * abs(value), t.auxiliary_records)
        if state and not _still(loss, series, state.since):
            yield sighting(
                WARN,
                f"{name} has been {value:.6g} in each of the last {len(series) - state.since} records, while the loss varies.",
                series,
                first=state.since,
                last=len(series) - 1,
                flagged=state.told,
                threshold={"records": t.auxiliary_records},
            )


def _still(loss: Series, series: Series, since: int) -> bool:
    """Whether the loss does not vary over the steps of `series` from index `since` on."""
    begin, end = np.searchsorted(loss.step, [int(series.step[since]), int(series.step[-1]) + 1])
    window = loss.value[begin:end]
    return not len(window) or bool((window == window[0]).all())


@rule(
    "TP953",
    "logit-or-norm-growth",
    severity=WARN,
    min_records=60,
    fix="Add a z-loss or a soft cap on logits, normalise queries and keys, add weight decay, or lower the learning rate.",
)
def logit_or_norm_growth(frame: Frame, t: ArchitectureThresholds) -> Iterator[Sighting]:
    """Logits, activations or norms grow without end, or attention collapses onto one token.

    What it does
    Follows logged attention logits, z-losses, norms and attention entropies.

    Why it matters
    Logits that grow saturate the softmax; the loss follows some thousand steps later.

    Formula
    Median of 5 >= 5 x the median of the 64 before, in 20 records and still at the end; or, at the common judging points, 3 x over the last half with
    Mann-Kendall Z > 4, to the end: WARN for logits and z-losses, INFO for norms. Attention entropy under 10 % of its first records'
    median for 20 records: WARN.

    False positives
    Norms grow with the square root of the steps in healthy runs, and linearly at worst (2 x over the last half): hence 3 x, and INFO.

    What to try
    Log the largest attention logit of each layer.
    """
    found = False
    for name in frame:
        if not len(frame[name]) or not is_size(name):
            continue
        found = True
        if _ATTENTION_ENTROPY.fullmatch(name):
            yield from _collapsed(finite(frame, name, 1), t)
        else:
            yield from _grown(finite(frame, name, 1), WARN if _LOGITS.fullmatch(name) else INFO, t)
    if not found:
        raise CannotTell("no logits, norms or attention entropies in the log")


def _collapsed(series: Series, t: ArchitectureThresholds) -> Iterator[Sighting]:
    if len(series) < t.growth_min_records:
        return
    start = stats.median(series.value[: t.growth_hold])
    state = lasting(series.memo(stats.median5) < t.attention_share * start, t.growth_hold)
    if state:
        yield sighting(
            WARN,
            f"{series.name} fell from {start:.4g} to {series.value[-1]:.4g}: attention rests on one token.",
            series,
            first=state.since,
            last=len(series) - 1,
            flagged=state.told,
            threshold={"share": t.attention_share},
        )


def _grown(series: Series, severity: Severity, t: ArchitectureThresholds) -> Iterator[Sighting]:
    n, x = len(series), series.value
    if n < t.growth_min_records or x[-1] <= 0:
        return
    m5, median = series.memo(stats.median5), series.memo(stats.baseline).median
    jumped = stats.first_run((m5 >= t.growth_jump * median) & (median > 0), t.growth_hold)
    stays = jumped is not None and bool(m5[-1] >= t.growth_jump * median[jumped[0]])
    state = Lasting(jumped[0], jumped[0] + t.growth_hold - 1) if jumped and stays else None
    counts = [int(k) for k in stats.schedule(n) if k >= t.growth_min_records]
    since = holds_since(counts, lambda k: (state is not None and k > state.told) or _doubling(x[k // 2 : k], t))
    if state is None and since is None:
        return
    first = state.since if state else n // 2
    flagged = min(state.told if state else n, since - 1 if since else n)
    yield sighting(
        severity,
        f"{series.name} grew from {x[max(0, first - 1)]:.4g} at step {series.step[max(0, first - 1)]} to {x[-1]:.4g}.",
        series,
        first=min(first, flagged),
        last=n - 1,
        flagged=flagged,
        threshold={"jump": t.growth_jump, "times": t.growth_times, "z": t.growth_z},
    )


def _doubling(x: stats.Floats, t: ArchitectureThresholds) -> bool:
    tenth = max(1, len(x) // 10)
    first, last = stats.median(x[:tenth]), stats.median(x[-tenth:])
    return last >= t.growth_times * first > 0 and stats.trend_z(x) > t.growth_z
