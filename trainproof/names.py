"""The one table from every logger's metric names to ours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

#: canonical name -> the names it is logged under, best first
ALIASES: dict[str, tuple[str, ...]] = {
    "loss": ("loss", "train/loss", "train_loss"),
    "eval/loss": ("eval_loss", "eval/loss", "val_loss", "val/loss"),
    "lr": ("lr", "learning_rate"),
    "grad_norm": ("grad_norm", "gnorm"),
}

#: names that number a record, best first
STEP_NAMES = ("step", "global_step", "current_steps", "iteration", "iter")


def resolve(names: Iterable[str], mapping: Mapping[str, str] | None = None) -> dict[str, str]:
    """Logger's name -> canonical name, one to one, for all the metrics of one log at once."""
    raw = list(names)
    chosen: dict[str, str] = {}
    for canonical, aliases in ALIASES.items():
        for alias in aliases:
            if alias in raw:
                chosen[alias] = canonical
                break
    return {name: chosen.get(name, name) for name in raw}
