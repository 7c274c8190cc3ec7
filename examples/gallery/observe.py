"""What a `trainer_state.json` shows, in numbers and in one sentence. Standard library only."""

import json
import math
from pathlib import Path
from typing import Any, NamedTuple

Series = list[tuple[int, float]]  # (step, value) in the order of the log


class Observed(NamedTuple):
    """The three series of one log; a value may be NaN or infinite."""

    loss: Series
    eval_loss: Series
    grad_norm: Series
    learning_rate: Series


def observe(log: Path) -> Observed:
    """Read the series of `log`, a `trainer_state.json`."""
    history: list[dict[str, Any]] = json.loads(log.read_text(encoding="utf-8"))["log_history"]
    return Observed(*(_series(history, name) for name in Observed._fields))


def _series(history: list[dict[str, Any]], name: str) -> Series:
    return [(record["step"], float(record[name])) for record in history if name in record]


def sentence(seen: Observed) -> str:
    """One sentence with the facts of the log, no judgement."""
    peak = max(rate for _, rate in seen.learning_rate)
    return (
        f"Training loss {_span(seen.loss)}; evaluation loss {_span(seen.eval_loss)}; "
        f"highest logged learning rate {peak:.6g}; non-finite values: {_lost(seen.loss)} training losses, "
        f"{_lost(seen.grad_norm)} gradient norms, {_lost(seen.eval_loss)} evaluation losses."
    )


def _span(series: Series) -> str:
    finite = _finite(series)
    ends = f"{series[0][1]:.4g} at step {series[0][0]} and {series[-1][1]:.4g} at step {series[-1][0]}"
    if not finite:
        return f"{ends}, never finite"
    low, high = _lowest(finite), max(finite, key=lambda point: point[1])
    return f"{ends} (lowest {low[1]:.4g} at step {low[0]}, highest {high[1]:.4g} at step {high[0]})"


def _lost(series: Series) -> str:
    bad = [step for step, value in series if not math.isfinite(value)]
    return f"{len(bad)} of {len(series)}" + (f" (first at step {bad[0]})" if bad else "")


def _finite(series: Series) -> Series:
    return [point for point in series if math.isfinite(point[1])]


def _lowest(series: Series) -> tuple[int, float]:
    return min(series, key=lambda point: point[1])


HEADER = (
    "| run | seed | train first | last | min | max | eval first | best | last | non-finite loss / grad / eval |\n"
    "|---|---|---|---|---|---|---|---|---|---|"
)


def table_row(run: str, seed: int, seen: Observed) -> str:
    """One line of the Markdown table in README.md."""
    train, held_out = [value for _, value in seen.loss], [value for _, value in seen.eval_loss]
    low, high, best = (_extreme(min, train), _extreme(max, train), _extreme(min, held_out))
    numbers = (train[0], train[-1], low, high, held_out[0], best, held_out[-1])
    lost = " / ".join(str(len(series) - len(_finite(series))) for series in (seen.loss, seen.grad_norm, seen.eval_loss))
    return f"| {run} | {seed} | " + " | ".join(f"{number:.3f}" for number in numbers) + f" | {lost} |"


def _extreme(pick: Any, values: list[float]) -> float:
    finite = [value for value in values if math.isfinite(value)]
    return float(pick(finite)) if finite else math.nan
