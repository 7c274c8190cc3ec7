"""Collapses with a known cause: named where it is proved, and nothing else."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.replay import jobs
from trainproof.errors import InputError
from trainproof.record.changes import Change, Level, with_rows
from trainproof.record.tape import Tape
from trainproof.replay import bisecting
from trainproof.replay.bisecting import bad_point
from trainproof.replay.counterfactuals import Bench, Try, told
from trainproof.replay.job import Target
from trainproof.replay.worker import ask

frameworks = pytest.mark.frameworks
EXAMPLES = Path(__file__).parents[2] / "examples" / "bisect"


def evaluations(*values: float) -> dict[int, float]:
    return {10 * i: value for i, value in enumerate(values, 1)}


def point(values: dict[int, float], bad: int | None = None) -> Any:
    """(step, level) of the bad point."""
    found = bad_point(values, bad)
    return None if found is None else (found.step, found.level)


@pytest.mark.parametrize(("last", "bad"), [(2.188, 280), (1.9, 270)])
def test_a_last_value_counts_where_nearly_all_is_lost_and_hides_nothing_where_not(last: float, bad: int) -> None:
    found = bad_point(evaluations(*np.geomspace(2.361, 0.023, 24), 0.042, 0.334, 1.244, last))
    assert found is not None
    assert found.step == bad


def test_the_change_point_is_the_first_bad_evaluation() -> None:
    assert point(evaluations(2.0, 1.5, 1.2, 1.1, 3.0, 3.1, 2.9)) == (50, pytest.approx((1.1 + 2.95) / 2))
    found = bad_point(evaluations(2.0, 1.5, 1.2, float("nan"), float("nan")))
    assert found is not None
    assert found.step == 40
    assert point(evaluations(0.7, 0.25, 5.7, 0.71, 0.7, 0.7)) == (30, pytest.approx((0.25 + 0.7) / 2))


@pytest.mark.parametrize(
    "values", [(2.0, 1.5, 1.2, 1.1, 1.0), (2.0, 1.5, 1.2, 1.22, 1.2), (1.0, 1.1, 1.0, 1.1, 1.0, 1.12, 1.0), (1.0,), ()]
)
def test_a_healthy_course_has_none(values: tuple[float, ...]) -> None:
    assert bad_point(evaluations(*values)) is None


@given(st.lists(st.floats(0.1, 10.0), min_size=4, max_size=30))
def test_a_falling_course_has_none(values: list[float]) -> None:
    assert bad_point(evaluations(*sorted(values, reverse=True))) is None


@pytest.mark.parametrize("count", [6, 12, 24])
@pytest.mark.parametrize("noise", [0.01, 0.05])
@pytest.mark.parametrize("learned", [0.0, 2.0])
def test_noise_is_no_collapse(count: int, noise: float, learned: float) -> None:
    random, at = np.random.default_rng(0), np.arange(count)
    level = 1.2 + learned * np.exp(-at / (count / 5))
    courses = level * np.exp(random.normal(0, noise, (100, count)))
    assert sum(bad_point(evaluations(*course.tolist())) is not None for course in courses) <= 1


def test_a_collapse_that_varies_wildly_is_dated_to_its_beginning() -> None:
    assert point(evaluations(0.7, 0.1, 0.02, 723.2, 3.7e6, 20.0, 452.6, 0.85, 0.7)) == (
        40,
        pytest.approx((0.02 + 0.9875) / 2),
    )
    assert point(evaluations(0.7, 0.1, 0.02, 6e4, 1e5, 2e5, 3e5, 4e5)) == (40, pytest.approx(0.71))


def test_the_user_says_where_it_is_bad() -> None:
    assert point(evaluations(1.0, 1.01, 1.02), 30) == (30, pytest.approx(1.01))
    assert bad_point(evaluations(1.0, 0.9, 0.8), 30) is None
    with pytest.raises(InputError, match="expected a step with an evaluation before it"):
        bad_point(evaluations(1.0, 2.0), 10)


class Culprits:
    """Collapses where at least `needed` of the culprits are trained on."""

    def __init__(self, culprits: set[int], items: list[int], needed: int = 1) -> None:
        self.culprits, self.items, self.needed, self.count = culprits, items, needed, 0

    def collapsed(self, start: int, until: int, change: Change) -> bool:
        assert start < until
        self.count += 1
        trained = {item for item in self.items if (item in change.batches) == change.only}
        return len(trained & self.culprits) >= self.needed


def proved(culprits: set[int], count: int, needed: int = 1) -> tuple[list[int], int]:
    bench: Any = Culprits(culprits, list(range(count)), needed)
    found = bisecting._proved(bench, 0, 1, bench.items, lambda some: Change(batches=tuple(some)))
    return found, bench.count


@given(st.integers(1, 200), st.data())
def test_one_culprit_is_found_within_the_bound(count: int, data: st.DataObject) -> None:
    culprit = data.draw(st.integers(0, count - 1))
    found, replays = proved({culprit}, count)
    assert found == [culprit]
    assert replays <= 2 * np.ceil(np.log2(count)) + 2


@given(st.sets(st.integers(0, 40), min_size=2, max_size=8))
def test_of_several_no_single_one_is_named(culprits: set[int]) -> None:
    found, _ = proved(culprits, 41)
    assert not found or set(found) >= culprits  # each by itself is enough: only a group with all of them heals


@given(st.sets(st.integers(0, 40), min_size=3, max_size=8))
def test_where_it_takes_several_no_single_one_is_named(culprits: set[int]) -> None:
    found, _ = proved(culprits, 41, needed=len(culprits))
    assert found == [] or set(found) >= culprits


def test_a_counterfactual_is_told() -> None:
    change = Change(batches=(3, 4, 5, 9), only=True, shift=20)
    said = told(Try(20, 30, change, 1.5, True))
    assert (
        said
        == "steps 21 to 30, all but batches 3-5, 9 replaced, on the batches of 20 later: held-out loss 1.5, collapsed"
    )
    said = told(Try(20, 30, Change(rate=0.1), 1.5, False), "last loss", ("flagged again", "not flagged"))
    assert said == "steps 21 to 30, as it was, the rate held at 0.1: last loss 1.5, not flagged"
    assert Change.of([["a"], [], [], 0, None, 2]) == Change(shards=("a",), shift=2)
    with pytest.raises((TypeError, ValueError)):
        Change.of([1, 2])


class Rated:
    """Collapses where the rate is above a limit."""

    def __init__(self, limit: float) -> None:
        self.limit = limit

    def collapsed(self, start: int, until: int, change: Change) -> bool:
        assert start < until
        return change.rate is None or change.rate > self.limit


@pytest.mark.parametrize(
    ("rates", "limit", "kind"),
    [
        ([0.1, 0.1, 9.0], 0.1, "LEARNING RATE"),
        ([1.0, 1.0, 1.0], 0.1, "LEARNING RATE"),
        ([1.0, 1.0, 1.0], 0.01, "STATE"),
    ],
)
def test_the_rate_is_held_or_cut_where_it_did_not_rise(rates: list[float], limit: float, kind: str) -> None:
    tape: Any = SimpleNamespace(steps={i: {"lr": rate} for i, rate in enumerate(rates, 1)})
    bench: Any = Rated(limit)
    assert bisecting.not_data(bench, tape, 1, 3).kind == kind


@frameworks
def test_what_is_near_the_level_is_trained_on_and_looked_at_again(tmp_path: Path) -> None:
    job = f"{EXAMPLES / 'mlp.py'}:make"
    request = {
        "named": job,
        "settings": {"poison": False},
        "out": str(tmp_path / "run"),
        "until": 20,
        "checkpoint_every": 20,
    }
    ask("record", request)
    tape = Tape(tmp_path / "run")

    def value(level: Level) -> tuple[float, bool, int]:
        bench = Bench(tape.checkpoints(), Target(job, {"poison": False}), None, level, 10)
        bench.collapsed(0, 10, Change(batches=(99,)))
        return bench.tries[0].value, bench.tries[0].collapsed, bench.steps

    at_10, collapsed, steps = value(Level(0.0))
    assert (collapsed, steps) == (True, 10)
    later, collapsed, steps = value(Level(at_10 - 0.01, 0.02, 40))
    assert (collapsed, steps) == (False, 50)
    assert later < at_10 - 0.01
    assert value(Level(at_10 - 0.03, 0.02, 40)) == (at_10, True, 10)


@frameworks
def test_only_some_rows_are_replaced() -> None:
    torch: Any = pytest.importorskip("torch")
    batch = {"x": torch.zeros(4, 2), "y": [torch.zeros(4)], "last": True}
    donor = {"x": torch.ones(4, 2), "y": [torch.ones(4)], "last": True}
    changed = with_rows(batch, donor, [1, 3])
    assert changed["x"].sum(1).tolist() == [0, 2, 0, 2]
    assert (changed["y"][0].tolist(), changed["last"]) == ([0, 1, 0, 1], True)
    assert batch["x"].sum() == 0


def bisected(tmp_path: Path, job: str, steps: int, every: int, evals: int, **settings: Any) -> dict[str, Any]:
    run = str(tmp_path / "run")
    request = {
        "named": job,
        "settings": settings,
        "out": run,
        "until": steps,
        "checkpoint_every": every,
        "eval_every": evals,
        "keyed": 0,
    }
    ask("record", request)
    answer: dict[str, Any] = ask("bisect", {"folder": run, "job": None, "bad": None, "budget": 60})
    return answer


def forensic(tmp_path: Path, job: str) -> list[Any]:
    answer = ask("forensic", {"folder": str(tmp_path / "run"), "job": job, "settings": {}, "budget": 60})
    cause: list[Any] = answer["cause"]
    return cause


@frameworks
def test_one_shard_ruins_the_run(tmp_path: Path) -> None:
    job = f"{EXAMPLES / 'mlp.py'}:make"
    answer = bisected(tmp_path, job, 120, 40, 10)
    kind, interval, shard, batches, samples, _ = answer["cause"]
    # there is no other healthy checkpoint after the first evaluation to try it from
    assert (kind, interval[0], shard) == ("DATA, FROM THIS STATE", 40, "shard-5")
    assert (len(batches), len(samples)) == (1, 1)
    assert 320 <= samples[0] < 344  # the samples that are poisoned
    assert forensic(tmp_path, job)[:5] == ["PROBABLE", [40, 80], "shard-5", [], []]


@frameworks
def test_a_shard_that_does_harm_by_concentration(tmp_path: Path) -> None:
    job = f"{EXAMPLES / 'transformer.py'}:make"
    kind, interval, shard, batches, samples, _ = bisected(tmp_path, job, 112, 16, 4)["cause"]
    assert (kind, interval[0], shard, batches, samples) == ("DATA x STATE", 96, "shard-6", [], [])
    assert forensic(tmp_path, job)[:3] == ["UNPROVEN", [96, 112], ""]


@frameworks
def test_healthy_twins_name_nothing(tmp_path: Path) -> None:
    for number, (name, steps, every, evals) in enumerate((("mlp", 120, 40, 10), ("transformer", 112, 16, 4))):
        assert (
            bisected(tmp_path / str(number), f"{EXAMPLES / f'{name}.py'}:make", steps, every, evals, poison=False)[
                "cause"
            ]
            is None
        )


@frameworks
def test_a_pulse_of_the_rate_is_not_called_data(tmp_path: Path) -> None:
    kind, _, shard, batches, samples, _ = bisected(tmp_path, f"{jobs.FILE}:pulsed", 60, 20, 5)["cause"]
    assert (kind, shard, batches, samples) == ("LEARNING RATE", "", [], [])
