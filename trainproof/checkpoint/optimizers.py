"""What the optimizer's state in a checkpoint says: the step it counted, and how many parameters it trains."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

from trainproof.checkpoint.contents import Checkpoint, Tensor
from trainproof.checkpoint.scan import value_of

#: parameters whose step is read; they agree but for those that never got a gradient
MOST_READ = 2_000


class Optimizer(NamedTuple):
    """An optimizer's step (the largest of its parameters'; None where it counts none), its parameters, the shapes of the state of each,
    and whether a scheduler drove it."""

    step: int | None
    parameters: int
    shapes: tuple[tuple[int, ...], ...]
    scheduled: bool


def optimizers(checkpoint: Checkpoint) -> list[Optimizer]:
    """Every torch optimizer in the checkpoint."""
    return [_optimizer(found) for found in _found(checkpoint.state.get("optimizer"), 0, set())]


def _found(value: Any, depth: int, seen: set[int]) -> Iterator[dict[str, Any]]:
    """The dictionaries that an optimizer's state_dict() makes. seen: containers that were looked into, each once."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, dict) and isinstance(value.get("param_groups"), list) and isinstance(value.get("state"), dict):
        yield value
    elif depth < 3 and isinstance(value, (dict, list)):
        for child in value.values() if isinstance(value, dict) else value:
            yield from _found(child, depth + 1, seen)


def _optimizer(found: dict[str, Any]) -> Optimizer:
    groups = [group for group in found["param_groups"] if isinstance(group, dict)]
    states = [state for state in found["state"].values() if isinstance(state, dict)]
    steps = [step for state in states[:MOST_READ] if (step := _step(state.get("step"))) is not None]
    shapes = []
    for state in states:
        shape = next((t.shape for t in state.values() if isinstance(t, Tensor) and t.shape), None)
        shapes += [shape] if shape is not None else []
    parameters = sum(len(group["params"]) for group in groups if isinstance(group.get("params"), list))
    return Optimizer(
        max(steps, default=None), parameters, tuple(shapes), any("initial_lr" in group for group in groups)
    )


def _step(value: Any) -> int | None:
    number = value_of(value) if isinstance(value, Tensor) else value
    if isinstance(number, bool) or not isinstance(number, (int, float)) or not math.isfinite(number):
        return None
    return int(number)


def scheduler_step(checkpoint: Checkpoint) -> int | None:
    """The steps that the (first) scheduler made."""
    waiting, seen = deque([checkpoint.state.get("scheduler")]), set()
    while waiting:
        value = waiting.popleft()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, dict):
            last = value.get("last_epoch")
            if isinstance(last, int) and not isinstance(last, bool):
                return last
            waiting += list(value.values())
        elif isinstance(value, list):
            waiting += value
    return None
