"""Along what runs are matched."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.rules.helpers import make_frame
from trainproof.comparing.axis import along, choose_axis
from trainproof.comparing.reference import LogReference
from trainproof.errors import UsageError

STEPS = np.arange(1, 101)


def run(name: str = "a", **more: Any) -> LogReference:
    return LogReference(name, make_frame(loss=3.0 / STEPS, **more))


def counted(kind: str, a: float, b: float) -> tuple[LogReference, LogReference]:
    return run("a", **{kind: a * STEPS}), run("b", **{kind: b * STEPS})


def test_steps_are_the_axis_of_runs_that_consume_alike() -> None:
    assert choose_axis(run(), [run()], None).kind == "step"
    a, b = counted("tokens", 4096, 4100)
    assert choose_axis(a, [b], None).kind == "step"


@pytest.mark.parametrize("kind", ["tokens", "samples"])
def test_another_batch_is_matched_by_what_it_consumes(kind: str) -> None:
    a, b = counted(kind, 4096, 8192)
    axis = choose_axis(a, [b], None)
    assert axis.kind == kind
    assert "4096" in axis.why
    assert "8192" in axis.why
    assert choose_axis(a, [b, run()], None).kind == "step", "one baseline has no such counter"


def test_declared_batches_make_samples() -> None:
    a = run("a", facts={"batch_size": 8, "accumulation": 2})
    b = run("b", facts={"batch_size": 8, "world_size": 4})
    axis = choose_axis(a, [b], None)
    assert axis.kind == "samples"
    curve = along(axis, a, "loss")
    assert curve is not None
    assert curve.x.tolist() == (16.0 * STEPS).tolist()


def test_epochs_are_used_where_batches_differ_and_one_is_not_declared() -> None:
    a = run("a", epoch=STEPS / 50, facts={"batch_size": 8})
    b = run("b", epoch=STEPS / 25, facts={"batch_size": 16})
    assert choose_axis(a, [b], "epoch").kind == "epoch"


def test_what_is_asked_for_has_to_be_there() -> None:
    a, _ = counted("tokens", 1, 1)
    assert choose_axis(a, [a], "tokens").why == "as asked for"
    with pytest.raises(UsageError, match=r"--align tokens: b has no tokens; expected one of step"):
        choose_axis(a, [run("b")], "tokens")


def test_a_counter_that_falls_counts_nothing() -> None:
    a, b = counted("tokens", 4096, 8192)
    broken = run("c", tokens=np.where(STEPS == 50, 0, 8192 * STEPS))
    assert choose_axis(a, [broken], None).kind == "step"
    with pytest.raises(UsageError):
        choose_axis(a, [broken], "tokens")
    assert choose_axis(a, [b], None).kind == "tokens"


def test_positions_are_interpolated_and_those_outside_left_out() -> None:
    counter = ([10, 90], [1000.0, 9000.0])
    one = run("a", tokens=counter)
    curve = along(choose_axis(one, [one], "tokens"), one, "loss")
    assert curve is not None
    assert curve.step.tolist() == list(range(10, 91))
    assert curve.x.tolist() == [100.0 * step for step in range(10, 91)]


def test_records_at_one_position_are_one_point() -> None:
    """A counter in whole epochs stands still for many steps."""
    one = run("a", epoch=np.floor(STEPS / 10))
    curve = along(choose_axis(one, [one], "epoch"), one, "loss")
    assert curve is not None
    assert curve.x.tolist() == list(map(float, range(11)))
