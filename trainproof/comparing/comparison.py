"""A run beside its baselines, matched metric by metric: what the comparison rules look at."""

from __future__ import annotations

from collections.abc import Sequence

from trainproof.comparing.axis import Axis, along
from trainproof.comparing.matching import NO_PAIRS, Pairs, match
from trainproof.comparing.reference import LogReference, Reference
from trainproof.frame import Frame
from trainproof.verdict import Change, Evidence, number


class Comparison:
    """One run and the baselines that it can be compared with. `loss` is the metric that stands for the loss."""

    def __init__(
        self,
        frame: Frame,
        baselines: Sequence[Reference],
        axis: Axis,
        changes: tuple[Change, ...] = (),
        *,
        loss: str = "loss",
    ) -> None:
        self.frame, self.baselines, self.axis, self.changes, self.loss = frame, tuple(baselines), axis, changes, loss
        self.run = LogReference("run", frame)
        self._matched: dict[str, list[Pairs]] = {}

    def with_loss(self, part: str) -> Comparison:
        """The same with the part in the place of the loss: a loss known only in parts is compared by part."""
        other = Comparison(self.frame, self.baselines, self.axis, self.changes, loss=part)
        other._matched = self._matched
        return other

    def matched(self, metric: str) -> list[Pairs]:
        """The matched records of a metric, one a baseline; none (of length 0) with a baseline that lacks it."""
        if metric not in self._matched:
            self._matched[metric] = [self._pairs(metric, one) for one in self.baselines]
        return self._matched[metric]

    def usable(self, metric: str, least: int = 1) -> list[tuple[int, Pairs]]:
        """(number of the baseline, pairs) of the baselines with at least `least` matched records."""
        return [(i, pairs) for i, pairs in enumerate(self.matched(metric)) if len(pairs) >= least]

    def cite(self, metric: str, baseline: int, pairs: Pairs, index: int) -> tuple[Evidence, Evidence]:
        """The points of the run and of the baseline that pair `index` was made of."""
        run, base = float(pairs.run[index]), float(pairs.base[index])
        return (
            Evidence(metric, int(pairs.step[index]), number(run), int(pairs.line[index])),
            Evidence(
                self.name_of(metric, baseline),
                int(pairs.base_step[index]),
                number(base),
                int(pairs.base_line[index]),
            ),
        )

    def name_of(self, metric: str, baseline: int) -> str:
        """What a baseline's metric is called beside the run's own."""
        return f"baseline {metric}" if len(self.baselines) == 1 else f"baseline {baseline + 1} {metric}"

    def _pairs(self, metric: str, baseline: Reference) -> Pairs:
        mine, theirs = along(self.axis, self.run, metric), along(self.axis, baseline, metric)
        if mine is None or theirs is None:
            return NO_PAIRS
        return match(mine, theirs)
