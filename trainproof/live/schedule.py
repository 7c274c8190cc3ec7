"""Which rules are judged at the common judging points of which metric: those on trends, which no single record shows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from trainproof.rules.architecture import is_size
from trainproof.rules.completions import ERRORS, FOCUS
from trainproof.rules.metric_sense import HALF, is_accuracy
from trainproof.rules.mixture import SHARES
from trainproof.rules.queues import QUEUE


class Judged(NamedTuple):
    """Rules by when they are judged: at the counts of the common schedule; at each count before its first one, too; and one value after
    the scheduled counts, where what is judged are the distances between values."""

    at: tuple[str, ...] = ()
    each: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


LOSS = Judged(("TP204", "TP205", "TP601", "TP927"), ("TP601",))
BY_METRIC = {
    "loss": LOSS,
    "grad_norm": Judged(("TP404",)),
    "lr": Judged(("TP304",)),
    "tokens": Judged(("TP605",)),
    "memory": Judged(("TP905",), ("TP905",)),
    "data_time": Judged(("TP904",), ("TP904",)),
    "step_time": Judged(("TP902", "TP903")),
    "throughput": Judged(("TP902", "TP903")),
    "time": Judged(after=("TP902", "TP903")),
    **dict.fromkeys((*ERRORS, *FOCUS), Judged(("TP812",))),
}
SHARE = Judged(("TP603",))
SIZE = Judged(("TP953",))
LENGTH = Judged(("TP928",))
METRIC = Judged(("TP508",), ("TP508",))
TREND_RULES = frozenset(
    code for judged in (*BY_METRIC.values(), SHARE, SIZE, LENGTH, METRIC) for code in (*judged.at, *judged.after)
) - {"TP953"}  # which judges states, too


def judged_by(name: str, known: Iterable[str]) -> Judged:
    """What is judged by how many values of a metric there are, in a log of the metrics `known`."""
    if name in BY_METRIC:
        return BY_METRIC[name]
    if name.startswith(SHARES):
        return SHARE
    if name.startswith("loss/") and "loss" not in known:
        return LOSS
    if name.startswith("eval/") or name in HALF or is_accuracy(name):
        return METRIC
    if is_size(name):
        return SIZE
    return LENGTH if QUEUE.fullmatch(name) else Judged()
