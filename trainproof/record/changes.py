"""What is trained on instead of a batch when a stretch of a run is done again under a change."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

ShardOf = Callable[[Any], Any]


class Change(NamedTuple):
    """What is changed. shards, batches, samples: what is replaced; only: instead, all but these is replaced. rate: the learning rate is
    held at this. shift: the batches are those of this many micro-batches later: another checkpoint meets the same data."""

    shards: tuple[str, ...] = ()
    batches: tuple[int, ...] = ()
    samples: tuple[Any, ...] = ()
    only: bool = False
    rate: float | None = None
    shift: int = 0

    @classmethod
    def of(cls, told: list[Any]) -> Change:
        """The change as JSON tells it. Raises ValueError or TypeError for what tells none."""
        shards, batches, samples, only, rate, shift = told
        rate = None if rate is None else float(rate)
        return cls(tuple(shards), tuple(batches), tuple(samples), bool(only), rate, int(shift))

    @property
    def nothing(self) -> bool:
        return self == Change()

    @property
    def afterwards(self) -> Change:
        """What holds when what the change names is over: harmless data, at the same rate."""
        return Change(only=True, rate=self.rate)


class Level(NamedTuple):
    """What a collapse is. above: the held-out loss above which a run has collapsed. unsure: within so much of it a run under a change is
    trained on harmless data for `settle` more steps, and looked at again: what has collapsed stays so."""

    above: float
    unsure: float = 0.0
    settle: int = 0

    def near(self, value: float, change: Change) -> bool:
        """Whether a run under the change has to be looked at again."""
        return abs(value - self.above) <= self.unsure and not change.nothing

    def collapsed(self, value: float) -> bool:
        return not value <= self.above  # a loss that is not a number has collapsed


def ids_of(batch: Any) -> Any:
    """The samples that a batch says are in it, as "ids"; None where it says nothing."""
    return batch.get("ids") if isinstance(batch, Mapping) else None


def listed(ids: Any) -> list[Any]:
    return list(ids.tolist() if hasattr(ids, "tolist") else ids)


def shard_named(shard_of: ShardOf | None, sample: Any) -> str:
    """The shard that a sample is of; "" where nobody tells."""
    return "" if shard_of is None else str(shard_of(sample))


def changed(
    batch: Any,
    change: Change,
    cursor: int,
    ids: Sequence[Any] | None,
    shard_of: ShardOf | None,
    donor: Callable[[], Any],
) -> Any:
    """The micro-batch number `cursor` under the change. ids: its samples, where they are known. donor: a harmless batch, which is put in the
    place of all of it where its samples are of other shapes."""
    if not (change.only or change.shards or change.batches or change.samples):
        return batch
    if ids is None:
        return donor() if (cursor in change.batches) != change.only else batch
    rows = [i for i, sample in enumerate(ids) if _hit(change, cursor, sample, shard_of) != change.only]
    if not rows:
        return batch
    harmless = donor()
    return with_rows(batch, harmless, rows) if _shapes(batch) == _shapes(harmless) else harmless


def _hit(change: Change, cursor: int, sample: Any, shard_of: ShardOf | None) -> bool:
    """Whether the sample in this batch is one of those that the change names: in all of the ways in which it names any."""
    named = []
    if change.shards:
        named.append(shard_named(shard_of, sample) in change.shards)
    if change.batches:
        named.append(cursor in change.batches)
    if change.samples:
        named.append(sample in change.samples)
    return bool(named) and all(named)


def hold_rate(optimizer: Any, change: Change) -> None:
    """Set the rate that the change holds, for the update that follows."""
    if change.rate is not None:
        for group in getattr(optimizer, "param_groups", []):
            group["lr"] = change.rate


def _shapes(batch: Any) -> Any:
    """The shapes of the samples in a batch."""
    if isinstance(batch, Mapping):
        return {name: _shapes(value) for name, value in batch.items()}
    if isinstance(batch, (list, tuple)):
        return [_shapes(value) for value in batch]
    return tuple(batch.shape[1:]) if hasattr(batch, "clone") else None


def with_rows(batch: Any, donor: Any, rows: list[int]) -> Any:
    """The batch with some of its samples (the first dimension of each tensor) replaced by the donor's."""
    if isinstance(batch, Mapping):
        return {name: with_rows(value, donor[name], rows) for name, value in batch.items()}
    if isinstance(batch, (list, tuple)):
        return type(batch)(with_rows(value, other, rows) for value, other in zip(batch, donor, strict=True))
    if not hasattr(batch, "clone") or not batch.ndim:
        return batch
    changed = batch.clone()
    for row in rows:
        changed[row] = donor[row % len(donor)]
    return changed
