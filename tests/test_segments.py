"""Runs, resumes, duplicates and disorder: logs of known truth, taken apart and put together again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from trainproof.frame import Event, Frame, Repair, Series, Source
from trainproof.segments import split_runs
from trainproof.segments.falls import CUTS_MOST

Point = tuple[int, float]


def logged(
    *names_and_points: tuple[str, Sequence[tuple[int, int, float]]], ended: bool = False, **more: object
) -> Frame:
    """A frame of (line, step, value) points, in the order of the log."""
    series = {}
    for name, points in names_and_points:
        line, step, value = (np.array(column) for column in zip(*points, strict=True))
        series[name] = Series(name, step.astype(np.int64), value.astype(float), line.astype(np.int64))
    return Frame(series, Source("log", "test"), ended=ended, **more)  # type: ignore[arg-type]  # events and dropped


def log_of(steps: Iterable[int], values: Iterable[float] | None = None, **others: Iterable[float]) -> Frame:
    """A frame whose loss (and `others`) were logged at these steps, a record a line."""
    steps = list(steps)
    columns = {"loss": list(values) if values is not None else falling(len(steps)), **others}
    rows = {name: list(zip(range(1, len(steps) + 1), steps, column, strict=True)) for name, column in columns.items()}
    return logged(*rows.items())


def falling(n: int, seed: int = 0) -> list[float]:
    noise = np.random.default_rng(seed).normal(0, 0.02, n)
    return [float(x) for x in 2 + np.exp(-np.arange(n) / 30) + noise]


def points(frame: Frame, name: str = "loss") -> list[Point]:
    return list(zip(frame[name].step.tolist(), frame[name].value.tolist(), strict=True))


def kinds(frame: Frame) -> list[str]:
    return [repair.kind for repair in frame.repairs]


def only(frame: Frame) -> Frame:
    (run,) = split_runs(frame)
    return run


def test_a_log_in_order_is_handed_on_as_it_is() -> None:
    frame = log_of(range(0, 1000, 10), lr=falling(100))
    run = only(frame)
    assert all(run[name].step is frame[name].step and run[name].value is frame[name].value for name in frame)
    assert run.segments == ((0, 990, "start"),)
    assert run.repairs == ()


# Runs


def test_two_runs_in_one_file_are_two_frames() -> None:
    first, second = falling(28), falling(20, seed=1)
    runs = split_runs(log_of([*range(28), *range(20)], first + second, lr=[0.1] * 28 + [0.2] * 20))
    assert [run.source.name for run in runs] == ["run 1", "run 2"]
    assert [points(run) for run in runs] == [list(enumerate(first)), list(enumerate(second))]
    assert [set(run["lr"].value) for run in runs] == [{0.1}, {0.2}]
    assert runs[1]["loss"].line[0] == 29
    assert [run.repairs for run in runs] == [(), ()]


def test_runs_of_a_named_source_keep_its_name() -> None:
    frame = log_of([*range(10), *range(10)])
    runs = split_runs(frame.replace(source=Source("log", "csv", "seed 3")))
    assert [run.source.name for run in runs] == ["seed 3, run 1", "seed 3, run 2"]


def test_many_short_runs_are_no_disorder() -> None:
    runs = split_runs(log_of(list(range(6)) * 7, [x / 7 for x in range(42)]))
    assert [len(run["loss"]) for run in runs] == [6] * 7


def test_a_run_with_the_seed_of_the_run_before_keeps_its_first_records() -> None:
    same, others = falling(40), falling(40, seed=1)
    runs = split_runs(log_of([*range(40), *range(40)], same + same[:3] + others[3:]))
    assert [points(run) for run in runs] == [list(enumerate(same)), list(enumerate(same[:3] + others[3:]))]


def test_events_and_the_end_belong_to_the_run_of_their_line() -> None:
    frame = log_of([*range(10), *range(10)])
    frame = frame.replace(events=(Event("oom", "a", 9), Event("oom", "b", 15)), ended=True, dropped_count=3)
    first, second = split_runs(frame)
    assert ([e.text for e in first.events], [e.text for e in second.events]) == (["a"], ["b"])
    assert (first.ended, second.ended) == (False, True)
    assert first.dropped_count + second.dropped_count == 3


def test_a_false_start_of_a_few_records_is_no_run() -> None:
    run = only(log_of([0, 10, 20, *range(0, 500, 10)]))
    assert run["loss"].line.tolist() == list(range(4, 54))
    assert kinds(run) == ["overlap"]
    assert run.segments == ((0, 490, "start"),)


def test_where_the_epoch_goes_on_the_run_goes_on() -> None:
    steps = [*range(0, 100, 10), 0, 10, 20]
    epochs = [*np.linspace(0, 0.9, 10), 0.5, 0.55, 0.6]
    assert len(split_runs(log_of(steps, epoch=epochs))) == 1
    assert len(split_runs(log_of(steps, epoch=[*epochs[:10], 0.0, 0.1, 0.2]))) == 2


# Resumes


def resumed(old: list[float], new: list[float], at: int) -> Frame:
    """A log of steps 0, 10, ... whose run resumed from step `at`."""
    steps = [*range(0, 10 * len(old), 10), *range(at, at + 10 * len(new), 10)]
    return log_of(steps, old + new)


def test_a_resume_keeps_the_later_values() -> None:
    old, new = falling(100), falling(60, seed=1)
    run = only(resumed(old, new, at=700))
    assert points(run) == list(zip(range(0, 1300, 10), old[:70] + new, strict=True))
    assert run.segments == ((0, 690, "start"), (700, 1290, "resume at step 700"))
    (overlap,) = run.repairs
    assert overlap[:6] == ("overlap", 700, 990, 101, 30, 160)
    noise = 1.4826 * float(np.median(np.abs(np.diff(old)))) / 2**0.5
    most = max(abs(a - b) for a, b in zip(old[70:], new, strict=False)) / noise
    assert "30 of 30 repeated records differ" in overlap.detail
    told = float(overlap.detail.rsplit("at most ", 1)[1].split()[0])
    assert told == pytest.approx(most, rel=0.1)


def test_a_faithful_resume_repeats_the_same_values() -> None:
    old, new = falling(100), falling(60, seed=1)
    run = only(resumed(old, old[80:] + new[20:], at=800))
    assert points(run) == list(zip(range(0, 1400, 10), old + new[20:], strict=True))
    assert kinds(run) == ["overlap"]
    assert "0 of 20 repeated records differ" in run.repairs[0].detail
    assert [segment.start for segment in run.segments] == [0, 800]


def test_a_resume_at_other_steps_replaces_the_old_ones() -> None:
    old, new = falling(100), falling(60, seed=1)
    run = only(resumed(old, new, at=705))
    assert points(run) == [
        *zip(range(0, 710, 10), old[:71], strict=True),
        *zip(range(705, 1305, 10), new, strict=True),
    ]


def test_several_resumes_the_later_further_back() -> None:
    steps = [*range(100), *range(80, 120), *range(60, 130)]
    run = only(log_of(steps, np.arange(len(steps), dtype=float)))
    assert run["loss"].line.tolist() == [*range(1, 61), *range(141, 211)]
    assert run.segments == ((0, 59, "start"), (60, 129, "resume at step 60"))
    assert kinds(run) == ["overlap", "overlap"]


def test_other_series_are_cut_where_the_loss_is() -> None:
    """lr is logged before the loss of its step, evaluations every 20 steps and after it."""
    rows: dict[str, list[tuple[int, int, float]]] = {"loss": [], "lr": [], "eval/loss": []}
    line = 0
    for attempt, steps in enumerate((range(100), range(70, 130))):
        for step in steps:
            for name in ("lr", "loss", "eval/loss"):
                if name != "eval/loss" or step % 20 == 0:
                    line += 1
                    rows[name].append((line, step, float(attempt)))
    run = only(logged(*rows.items()))
    for name in rows:
        assert points(run, name) == [(s, float(s >= 70)) for s in range(130) if name != "eval/loss" or s % 20 == 0]


def test_evaluations_numbered_by_epochs_do_not_disturb() -> None:
    train = [(i + i // 69, i, 1.0) for i in range(1, 700)]
    evals = [(70 * epoch - 1, epoch, 0.5) for epoch in range(1, 11)]
    run = only(logged(("loss", train), ("eval/ap", evals)))
    assert run.repairs == ()
    assert len(run["loss"]) == 699
    assert run["eval/ap"].step.tolist() == list(range(1, 11))


def test_steps_within_epochs_are_counted_on() -> None:
    steps = list(range(0, 100, 10)) * 4
    epochs = [float(epoch) for epoch in range(4) for _ in range(10)]
    run = only(log_of(steps, epoch=epochs))
    assert run["loss"].step.tolist() == list(range(0, 400, 10))
    assert run["epoch"].step.tolist() == list(range(0, 400, 10))
    assert [(r.kind, r.count) for r in run.repairs] == [("epochs", 3)]


# Duplicates and repeated steps


@given(st.integers(2, 4), st.integers(5, 60), st.booleans())
def test_exact_repeats_are_dropped_and_counted(copies: int, n: int, whole: bool) -> None:
    values = falling(n)
    records = list(enumerate(values))
    many = records * copies if whole else [record for record in records for _ in range(copies)]
    run = only(log_of([step for step, _ in many], [value for _, value in many]))
    assert points(run) == records
    (told,) = run.repairs
    assert (told.kind, told.count, told.of) == ("duplicates", n * (copies - 1), n * copies)


@pytest.mark.parametrize("rounds", [3, 6])
def test_exact_restarts_from_one_step_are_a_loop(rounds: int) -> None:
    steps = [*range(1, 41), *(rounds * [*range(31, 41)])]
    values = falling(40)
    run = only(log_of(steps, [values[step - 1] for step in steps]))
    assert [(r.kind, r.first_step, r.last_step) for r in run.repairs] == rounds * [("overlap", 31, 40)]
    assert points(run) == list(enumerate(values, 1))


def test_restarts_of_which_one_ended_earlier_are_each_told_once() -> None:
    steps = [*range(20, 32), *(29, 30, 31) * 2, *(29, 30), *(29, 30, 31) * 3, *(29, 30)]
    values = [3 - step / 100 for step in steps]
    values[19] = 2.0  # no exact repeat: the fall after it is one of both kinds
    frame = only(log_of(steps, values))
    assert kinds(frame) == ["overlap"] * 7
    assert points(frame)[-1] == (30, 2.7)


def test_the_first_lines_printed_twice() -> None:
    steps = [*range(1, 11), *range(1, 11), *range(200, 2200, 200)]
    values = [*falling(10), *falling(10), *falling(10, seed=1)]
    run = only(log_of(steps, values))
    assert run["loss"].step.tolist() == [*range(1, 11), *range(200, 2200, 200)]
    assert [(r.kind, r.count) for r in run.repairs] == [("duplicates", 10)]


def test_a_nan_repeats_a_nan() -> None:
    run = only(log_of([1, 1, 2, 2], [np.nan, np.nan, np.nan, 1.0]))
    assert run["loss"].step.tolist() == [1, 2]
    assert np.isnan(run["loss"].value[0])
    assert run["loss"].value[1] == 1
    assert [(r.kind, r.count) for r in run.repairs] == [("duplicates", 1), ("repeats", 1)]


def test_one_step_logged_twice_is_not_worth_a_word() -> None:
    run = only(log_of([*range(50), 49], [*falling(50), 9.0]))
    assert run["loss"].value[-1] == 9.0
    assert (len(run["loss"]), run.repairs, len(run.segments)) == (50, (), 1)


def test_many_steps_logged_twice_are_told() -> None:
    run = only(log_of([step for step in range(50) for _ in range(2)], falling(100)))
    assert points(run) == list(enumerate(falling(100)[1::2]))
    assert [(r.kind, r.count, r.of) for r in run.repairs] == [("repeats", 50, 100)]


# Several writers


def two_writers(order: Sequence[int], rates: tuple[float, float] | None = None) -> tuple[Frame, list[list[float]]]:
    """A log in which writer 0 and writer 1 write their next line in this order, and the losses of each."""
    losses = [falling(order.count(writer), seed=writer) for writer in (0, 1)]
    at = [order[:i].count(writer) for i, writer in enumerate(order)]
    values = [losses[writer][step] for writer, step in zip(order, at, strict=True)]
    columns = {"lr": [rates[writer] for writer in order]} if rates else {}
    return log_of(at, values, **columns), losses


@given(ahead=st.integers(2, 12), lines=st.integers(20, 60))
def test_lines_of_two_writers_are_told_apart_by_their_steps(ahead: int, lines: int) -> None:
    """One began earlier, and their lines alternate."""
    order = [*([0] * ahead), *([0, 1] * lines)]
    frame, losses = two_writers(order)
    runs = split_runs(frame)
    assert [run.source.name for run in runs] == ["writer 1", "writer 2"]
    assert [points(run) for run in runs] == [list(enumerate(loss)) for loss in losses]
    assert [[(r.kind, r.count, r.of) for r in run.repairs] for run in runs] == [
        [("writers", lines + ahead, 2 * lines + ahead)],
        [("writers", lines, 2 * lines + ahead)],
    ]


@given(swaps=st.lists(st.booleans(), min_size=20, max_size=60))
def test_lines_of_two_writers_in_step_are_told_apart_by_their_learning_rates(swaps: list[bool]) -> None:
    order = [writer for swap in [False, *swaps] for writer in ((1, 0) if swap else (0, 1))]
    frame, losses = two_writers(order, rates=(4e-4, 2e-3))
    runs = split_runs(frame)
    assert [run.source.name for run in runs] == ["writer 1", "writer 2"]
    assert [points(run) for run in runs] == [list(enumerate(loss)) for loss in losses]
    assert [set(run["lr"].value) for run in runs] == [{4e-4}, {2e-3}]


def test_points_that_stand_between_records_belong_to_the_writer_before() -> None:
    """Two text logs in one file: an evaluation is printed on a line of its own after its writer's record."""
    rows: dict[str, list[tuple[int, int, float]]] = {"loss": [], "lr": [], "eval/loss": []}
    line = 0
    for step in range(40):
        for writer in (0, 1):
            line += 2
            rows["loss"].append((line, step, step + 100.0 * writer))
            rows["lr"].append((line, step, 1.0 + writer))
            rows["eval/loss"].append((line + 1, step, float(writer)))
    runs = split_runs(logged(*rows.items()))
    assert [points(run, "eval/loss") for run in runs] == [[(s, float(w)) for s in range(40)] for w in (0, 1)]


def test_micro_batches_of_one_run_are_no_writers() -> None:
    steps = [step for step in range(50) for _ in range(4)]
    run = only(log_of(steps, falling(200), lr=[1e-3 / (1 + step) for step in steps]))
    assert kinds(run) == ["repeats"]


@pytest.mark.parametrize("size", [3, 4, 16])
def test_passes_over_the_same_steps_are_no_writers(size: int) -> None:
    steps = [size * block + i for block in range(30) for _ in range(3) for i in range(size)]
    assert not any("writers" in kinds(run) for run in split_runs(log_of(steps)))


# Disorder


@given(
    n=st.integers(2, 80),
    distance=st.integers(1, 1000),
    start=st.integers(-1, 10**12),
    data=st.data(),
)
def test_shuffled_lines_give_the_series_of_the_sorted_log(
    n: int, distance: int, start: int, data: st.DataObject
) -> None:
    steps = [start + distance * i for i in range(n)]
    order = data.draw(st.permutations(range(n)))
    falls = int((np.diff(order) < 0).sum())
    assume(1 in np.diff(order) or falls > max(1, n / 10))  # 0, 2, 1, 3 may be a resume that logs at other steps
    tidy = log_of(steps, lr=[float(i) for i in range(n)])
    untidy = log_of([steps[i] for i in order], [tidy["loss"].value[i] for i in order], lr=[float(i) for i in order])
    run = only(untidy)
    assert all(points(run, name) == points(tidy, name) for name in tidy)
    assert kinds(run) == ([] if list(order) == list(range(n)) else ["disorder"])
    assert run.segments == ((steps[0], steps[-1], "start"),)


def test_two_lines_out_of_place_lose_nothing() -> None:
    steps = list(range(0, 1000, 10))
    steps[40], steps[41] = steps[41], steps[40]
    run = only(log_of(steps))
    assert run["loss"].step.tolist() == list(range(0, 1000, 10))
    assert [(r.kind, r.count) for r in run.repairs] == [("disorder", 1)]


def test_a_stray_line_costs_no_other() -> None:
    values = falling(101)
    run = only(log_of([*range(80), 40, *range(80, 100)], values))
    assert points(run) == list(enumerate([*values[:40], values[80], *values[41:80], *values[81:]]))
    assert [(r.kind, r.count, r.line) for r in run.repairs] == [("disorder", 1, 81)]


def test_sliding_windows_of_steps_are_sorted_the_later_value_wins() -> None:
    """PPO in stable-baselines 2 logs steps 0 to 3, 1 to 4, 2 to 5 ..."""
    steps = [1024 * (i + j) for i in range(90) for j in range(4)]
    run = only(log_of(steps, np.arange(360.0)))
    assert kinds(run) == ["disorder"]
    assert run["loss"].step.tolist() == [1024 * i for i in range(93)]
    assert run["loss"].value[50] == 4 * 50  # the window that begins with it came last


def test_more_falls_than_any_log_has_restarts_are_disorder() -> None:
    steps = list(range(20)) * (CUTS_MOST + 2)
    assert kinds(only(log_of(steps, np.arange(len(steps), dtype=float)))) == ["disorder"]


# Anything


@given(
    st.lists(st.tuples(st.integers(-5, 40), st.floats(width=16)), min_size=1, max_size=120),
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 10**9)), max_size=20),
    st.booleans(),
)
def test_whatever_the_log_every_series_rises(main: list[Point], evals: list[tuple[int, int]], epoch: bool) -> None:
    rows = [("loss", [(i + 1, step, value) for i, (step, value) in enumerate(main)])]
    if epoch:
        rows.append(("epoch", [(i + 1, step, float(i // 7)) for i, (step, _) in enumerate(main)]))
    if evals:
        rows.append(("eval/loss", [(6 * i + 1, step, float(value)) for i, (step, value) in enumerate(evals)]))
    runs = split_runs(logged(*rows))
    given_points = {(name, line): value for name, series in rows for line, _, value in series}
    for run in runs:
        for name, series in run.items():
            assert (np.diff(series.step) > 0).all()
            assert len(series.step) == len(series.value) == len(series.line) > 0
            expected = [given_points[name, line] for line in series.line.tolist()]
            np.testing.assert_array_equal(series.value, np.array(expected))
        assert all(a.end < b.start for a, b in zip(run.segments, run.segments[1:], strict=False))
        assert run.segments[0].start == run["loss"].step[0]
        assert run.segments[-1].end == run["loss"].step[-1]
        assert all(isinstance(repair, Repair) and 0 < repair.count <= repair.of for repair in run.repairs)
    last = {run["loss"].line.max() for run in runs}
    assert rows[0][1][-1][0] in last or "duplicates" in {kind for run in runs for kind in kinds(run)}


@pytest.mark.parametrize("steps", [[2**62, 0, 2**62], [0, 2**62, -(2**62)], [5, 5, 5], [3]])
def test_extreme_steps(steps: list[int]) -> None:
    for run in split_runs(log_of(steps, np.arange(len(steps), dtype=float), epoch=[0.0] * len(steps))):
        assert sorted(run["loss"].step.tolist()) == run["loss"].step.tolist()


def test_points_whose_lines_are_not_in_order_are_put_in_order_of_their_steps() -> None:
    """As MLflow's are, numbered by time, where a time-stamp was damaged."""
    steps, lines = [*range(1, 40), 38, 39, 38, 39, 40], [*range(3, 42), 1, 42, 2, 43, 44]
    series = Series("loss", np.array(steps), np.linspace(3, 1, len(steps)), np.array(lines))
    run = only(Frame({"loss": series}))
    assert run["loss"].step.tolist() == list(range(1, 41))
