"""What the rules of family TP3 share: the logged rate, the declared warm-up, and declared schedules as formulas."""

from __future__ import annotations

import numpy as np

from trainproof import stats
from trainproof.frame import Frame, Series
from trainproof.rules.registry import CannotTell

#: declared schedules that do not move the rate by themselves after the warm-up
CONSTANT = frozenset({"constant", "constant_with_warmup", "none", "null", "warmuplr", "constantlr", "false"})
#: words in the names of schedules that go down and come back, or down in steps: their floor is no end
NOT_ONE_DESCENT = ("restart", "cycl", "plateau", "exp", "step", "sgdr")


def logged_rate(frame: Frame) -> Series:
    """The finite learning rates. Raises CannotTell when there is none."""
    lr = frame["lr"].finite
    if not len(lr):
        raise CannotTell("no finite learning rate in the log")
    return lr


def warmup_steps(frame: Frame) -> float | None:
    """Declared warm-up in steps, from its length or its share of the planned steps; None when nothing was declared."""
    steps, ratio = frame.facts.number("warmup_steps"), frame.facts.number("warmup_ratio")
    if steps is None and ratio is not None and frame.total_steps is not None:
        steps = ratio * frame.total_steps
    return steps


def expected_rate(schedule: str, step: stats.Ints, total: int, warmup: float) -> stats.Floats:
    """The declared schedule as a share of its peak at each step, NaN during the warm-up; shape (n,).

    Linear and polynomial (power 1) decays to 0, half a cosine, and the inverse square root of the step in units of the warm-up, as
    common trainers define them. Raises CannotTell for any other schedule.
    """
    progress = np.clip((step - warmup) / max(total - warmup, 1.0), 0.0, 1.0)
    name = schedule.replace("-", "_").replace(" ", "_")
    if name in ("linear", "polynomial", "warmupdecaylr", "linear_with_warmup"):
        share = 1 - progress
    elif name in ("cosine", "cosineannealinglr", "warmupcosinelr", "cosine_with_warmup"):
        share = (1 + np.cos(np.pi * progress)) / 2
    elif name in ("inverse_sqrt", "inverse_square_root") and warmup > 0:
        share = np.sqrt(warmup / np.maximum(step, warmup))
    else:
        raise CannotTell(f"the declared schedule {schedule!r} may have a constant part")
    return np.where(step >= warmup, share, np.nan)
