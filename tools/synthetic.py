"""Training curves with a known truth, from a seed: what `make calibrate` and the tests judge.

A healthy run is `(1.15 + 0.65 exp(-i / (n / 5))) x lognormal(0, sigma)`, its learning rate linear with 5 % warm-up, its gradient norm
log-normal noise of 0.3, its evaluation loss the curve itself with a twentieth of the noise, 20 times a run.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trainproof.frame import Frame, Segment, Series, Source

Floats = NDArray[np.float64]
Columns = dict[str, Floats]

EVALS = 20
PEAK_LR = 5e-5


def curve(n: int) -> Floats:
    """The noiseless loss of a healthy run of n records."""
    return 1.15 + 0.65 * np.exp(-np.arange(n) / (n / 5))


def healthy(n: int, sigma: float, seed: int) -> Columns:
    """loss, lr, grad_norm of shape (n,) and eval/loss of shape (n,), NaN where nothing was evaluated."""
    rng = np.random.default_rng([seed, n, round(1000 * sigma)])
    i = np.arange(n)
    warmup = max(1, n // 20)
    evaluated = np.full(n, np.nan)
    at = np.arange(n // EVALS - 1, n, n // EVALS)
    evaluated[at] = curve(n)[at] * rng.lognormal(0, sigma / 20, len(at))
    return {
        "loss": curve(n) * rng.lognormal(0, sigma, n),
        "lr": PEAK_LR * np.minimum((i + 1) / warmup, (n - i) / (n - warmup)),
        "grad_norm": rng.lognormal(0, 0.3, n),
        "eval/loss": evaluated,
    }


def heavy_tailed(n: int, sigma: float, seed: int) -> Columns:
    """The same curve with the exponential of a Student t of 3 degrees of freedom for its noise."""
    run = healthy(n, sigma, seed)
    rng = np.random.default_rng([seed, n, 3])
    return {
        **run,
        "loss": curve(n) * np.exp(sigma * rng.standard_t(3, n)),
        "grad_norm": np.exp(0.3 * rng.standard_t(3, n)),
    }


def quantised(n: int, sigma: float, seed: int) -> Columns:
    """The losses as bfloat16 holds them: 8 bits of mantissa."""
    run = healthy(n, sigma, seed)
    step = 2.0 ** (np.floor(np.log2(run["loss"])) - 7)
    return {**run, "loss": np.round(run["loss"] / step) * step}


def bucketed(n: int, sigma: float, seed: int) -> Columns:
    """Batches of one of three lengths, in random order, whose losses differ by half."""
    run = healthy(n, sigma, seed)
    return {**run, "loss": run["loss"] * np.random.default_rng([seed, n, 5]).choice([0.8, 1.0, 1.2], n)}


def multi_epoch(n: int, sigma: float, seed: int) -> Columns:
    """Four epochs, each shuffled anew, with the epoch in the log."""
    return {**healthy(n, sigma, seed), "epoch": 4 * (np.arange(n) + 1) / n}


def as_resumed(columns: Columns) -> Frame:
    """The columns as a run that resumed cleanly in the middle."""
    frame = as_frame(columns)
    n = len(columns["loss"])
    return frame.replace(segments=(Segment(1, n // 2, "start"), Segment(n // 2 + 1, n, f"resume at step {n // 2 + 1}")))


def frame_of(kind: str, n: int, sigma: float, seed: int) -> Frame:
    """A run of one of the kinds of this module, named by its function; "resumed" is a healthy one that resumed cleanly."""
    if kind == "resumed":
        return as_resumed(healthy(n, sigma, seed))
    columns: Columns = globals()[kind](n, sigma, seed)
    return as_frame(columns)


def drift(n: int, sigma: float, seed: int) -> Columns:
    """The loss creeps up by 45 % over the last half."""
    run = healthy(n, sigma, seed)
    run["loss"] *= 1 + 0.45 * np.clip((np.arange(n) - n / 2) / (n / 2), 0, 1)
    return run


def late_divergence(n: int, sigma: float, seed: int) -> Columns:
    """At 70 % the loss jumps to 7.5, the unigram level of a usual tokenizer, and stays."""
    run = healthy(n, sigma, seed)
    late = np.arange(n) >= 0.7 * n
    run["loss"][late] *= 7.5 / curve(n)[late]
    return run


def spike_and_recover(n: int, sigma: float, seed: int) -> Columns:
    """At half of the run the loss is 4 x its level and comes back within 12 records."""
    run = healthy(n, sigma, seed)
    run["loss"][n // 2 : n // 2 + 12] *= np.linspace(4, 1.2, 12)
    return run


def nan_loss(n: int, sigma: float, seed: int) -> Columns:
    """From 60 % on the logger writes NaN for loss and gradient norm."""
    run = healthy(n, sigma, seed)
    run["loss"][int(0.6 * n) :] = run["grad_norm"][int(0.6 * n) :] = np.inf * 0
    return run


def zero_collapse(n: int, sigma: float, seed: int) -> Columns:
    """From half of the run on the loss is exactly 0."""
    run = healthy(n, sigma, seed)
    run["loss"][n // 2 :] = 0.0
    return run


def eval_rise(n: int, sigma: float, seed: int) -> Columns:
    """The evaluation loss rises by 30 % over the last half while the training loss goes on falling."""
    run = healthy(n, sigma, seed)
    run["eval/loss"] *= 1 + 0.3 * np.clip((np.arange(n) - n / 2) / (n / 2), 0, 1)
    return run


def plateau(n: int, sigma: float, seed: int) -> Columns:
    """From a third of the run on the loss only makes noise."""
    run = healthy(n, sigma, seed)
    run["loss"] *= curve(n)[np.minimum(np.arange(n), n // 3)] / curve(n)
    return run


def as_frame(columns: Columns) -> Frame:
    """The columns as a run logged at steps 1..n; a NaN evaluation is one that did not take place."""
    series = {}
    for name, values in columns.items():
        logged = np.flatnonzero(~np.isnan(values)) if name.startswith("eval/") else np.arange(len(values))
        series[name] = Series(name, logged + 1, values[logged], logged + 1)
    return Frame(series, Source("synthetic", "dict"))
