"""What experiments found, as plain data: what the rules of the family `experiment` look at."""

from __future__ import annotations

from typing import NamedTuple

from trainproof.frame import Frame


class Scenario(NamedTuple):
    """One interruption: where, what is left out of the state that is put back, whether the job's own load() puts it back, and which parts
    are then put back for it."""

    name: str
    point: str = "boundary"
    without: tuple[str, ...] = ()
    own: bool = False
    patched: tuple[str, ...] = ()


class Outcome(NamedTuple):
    """What came of one interruption.

    exact: every channel after every micro-batch is bit for bit that of the uninterrupted run. first_step: the first optimizer step that is
    not. channels: what differed first. missing: the parts of the state that are named for it; confirmed: putting them back made it exact.
    Errors are the largest differences of a parameter and of an optimizer's value at the end; batches and rates say whether the samples
    and the learning rates stayed the same.
    """

    scenario: Scenario
    exact: bool
    first_step: int | None
    channels: tuple[str, ...]
    missing: tuple[str, ...]
    confirmed: bool
    parameter_error: float
    optimizer_error: float
    batches: bool
    rates: bool


class Mismatch(NamedTuple):
    """The first place where a run that was done again is not the same: step, channel, tensor, and what usually causes it there."""

    step: int
    channel: str
    tensor: str
    cause: str


class Cause(NamedTuple):
    """What made a run collapse. kind: DATA, DATA x STATE, "DATA, FROM THIS STATE", LEARNING RATE, STATE, PROBABLE (checkpoints alone), or UNPROVEN. interval: the
    steps in which the trigger lies. shard, batches, samples: what was named, each necessary and sufficient. why: the proof, or what is
    missing for one.
    """

    kind: str
    interval: tuple[int, int]
    shard: str = ""
    batches: tuple[int, ...] = ()
    samples: tuple[int | str, ...] = ()
    why: str = ""


class Collapse(NamedTuple):
    """A run's collapse: the first evaluation that is bad, the held-out loss there and the level above which a run has collapsed, the cause,
    and how many replays of how many steps it took."""

    step: int
    value: float
    level: float
    cause: Cause
    replays: int
    steps: int


class Experiment(NamedTuple):
    """What was found. outcomes: of interruptions at step `at`, None where none were made. logs: an uninterrupted and a resumed log, where
    there was nothing to run. again: what was done again ("the job", "the recorded run"), "" where nothing was, and mismatch: where it
    was not the same. bisected: a collapse was looked for; collapse: what was found."""

    at: int = 0
    outcomes: tuple[Outcome, ...] | None = None
    logs: tuple[Frame, Frame] | None = None
    again: str = ""
    last: int = 0
    mismatch: Mismatch | None = None
    bisected: bool = False
    collapse: Collapse | None = None
