"""stable-baselines3 and the baselines before it: `progress.csv` (a row a rollout) and `monitor.csv` (a row an episode)."""

from __future__ import annotations

from trainproof.names import plain
from trainproof.readers.builder import FrameBuilder
from trainproof.readers.delimited import KnownTable, Sniffed
from trainproof.readers.header import MONITOR, Table, metric_names

#: columns of which a progress.csv has two and more
_PROGRESS = frozenset(
    "time/total_timesteps time/iterations time/time_elapsed time/fps rollout/ep_rew_mean rollout/ep_len_mean".split()
)
_BASELINES = frozenset("timestepssofar eprewmean eplenmean episodessofar timeelapsed epthisiter".split())
_EPISODE = ("reward", "episode_length", "time")


class ProgressReader(KnownTable):
    name = "sb3"
    description = "stable-baselines3 and OpenAI baselines: `progress.csv`"

    def claims(self, found: Sniffed) -> bool:
        names = set(map(plain, found.table.names))
        return len(names & _PROGRESS) >= 2 or len(names & _BASELINES) >= 2

    def declare(self, out: FrameBuilder) -> None:
        out.facts.declare("objective", "rl", "the format")


class MonitorReader(ProgressReader):
    name = "monitor"
    description = "stable-baselines3 and gym monitors: `monitor.csv`, an episode a row"

    def claims(self, found: Sniffed) -> bool:
        return found.table.names[:3] == MONITOR

    def metric_names(self, table: Table) -> list[str]:
        return [*_EPISODE, *metric_names(table)[3:]]
