"""Differential resume-equivalence: an uninterrupted run against runs that were interrupted and resumed in a fresh process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from trainproof.errors import InputError
from trainproof.experiments import Outcome, Scenario
from trainproof.record.fingerprint import fingerprint
from trainproof.record.storage import load_state, write_checkpoint
from trainproof.replay.job import Target, make_job
from trainproof.replay.runner import Row, Runner
from trainproof.replay.worker import ask

#: places of interruption -> the folder of the state that was taken there
POINTS = {"boundary": "boundary", "mid-accumulation": "mid"}


#: the ablations that a complete resume must tell apart, each with the part that it lacks
MATRIX = (
    Scenario("full-boundary"),
    Scenario("model-and-optimizer-only", without=("scheduler", "rng", "stream", "gradients")),
    Scenario("without-rng", without=("rng",)),
    Scenario("without-stream", without=("stream",)),
    Scenario("without-scheduler", without=("scheduler",)),
    Scenario("full-mid-accumulation", "mid-accumulation"),
    Scenario("mid-without-gradients", "mid-accumulation", without=("gradients",)),
)


class Trace(NamedTuple):
    """What a run did from the point of interruption on: the state's channels there, and a row a micro-batch."""

    point: dict[str, str]
    rows: list[Row]


class Traces(NamedTuple):
    """The traces behind the outcomes: of the uninterrupted run by point of interruption, and of each scenario. own: whether the job's own
    save() and load() were used. fingerprint: of the process that ran the job."""

    own: bool
    fingerprint: dict[str, Any]
    whole: dict[str, Trace]
    resumed: dict[str, Trace]


def run_reference(named: str, settings: dict[str, Any], steps: int, at: int, folder: str, own: bool) -> dict[str, Any]:
    """The uninterrupted run: its states at the points of interruption go into `folder`, its trace from each on is returned."""
    runner = Runner(make_job(Target(named, settings)))
    if len(list(runner.rows(at, channels=False))) < 1 or runner.step < at:
        raise InputError(
            f"the job's data ended after {runner.step} steps, before step {at} at which it was to be interrupted"
        )
    traces: dict[str, Any] = {"boundary": {"point": _taken(runner, Path(folder) / "boundary", own), "rows": []}}
    before, mid = runner.step, False
    for row in runner.rows(steps):
        for trace in traces.values():
            trace["rows"].append(row)
        if not mid and runner.step == before and not row.updated:
            mid, point = True, _taken(runner, Path(folder) / "mid", own)
            traces |= {"mid-accumulation": {"point": point, "rows": []}} if point is not None else {}
    write_checkpoint(Path(folder) / "end", runner.capture(), {"step": runner.step})
    return {
        "traces": traces,
        "own": own and hasattr(runner.job, "save"),
        "fingerprint": fingerprint(Target(named, {}).file),
    }


def _taken(runner: Runner, folder: Path, own: bool) -> dict[str, str] | None:
    """The channels of the state at this point; the state itself goes into `folder`, as the job saves it too. None where it cannot."""
    write_checkpoint(folder, runner.capture(), {"step": runner.step})
    save = getattr(runner.job, "save", None)
    if own and save is not None:
        own_folder = folder.with_name(f"{folder.name}-own")
        own_folder.mkdir(parents=True, exist_ok=True)
        if save(own_folder, runner.cursor) is False:
            return None
    return runner.channels()


def run_resumed(
    named: str, settings: dict[str, Any], steps: int, at: int, folder: str, scenarios: list[Any]
) -> list[Any]:
    """Each scenario: the job made anew, the state put back, and trained to the end."""
    end = load_state(Path(folder) / "end")
    answers = []
    for scenario in (
        Scenario(name, point, tuple(without), own, tuple(patched)) for name, point, without, own, patched in scenarios
    ):
        runner = Runner(make_job(Target(named, settings)))
        place = Path(folder) / POINTS[scenario.point]
        state = load_state(place)
        if scenario.own:
            _load_own(runner, place.with_name(f"{place.name}-own"), at)
            runner.restore_parts(state, frozenset(scenario.patched))
        else:
            runner.restore(state, frozenset(scenario.without))
        point = runner.channels()
        rows = list(runner.rows(steps))
        mine = runner.capture()
        answers.append(
            {
                "point": point,
                "rows": rows,
                "errors": [largest_error(mine.get(part), end.get(part)) for part in ("model", "optimizer")],
            }
        )
    return answers


def _load_own(runner: Runner, folder: Path, at: int) -> None:
    cursor = runner.job.load(folder)  # type: ignore[attr-defined]  # a job with save() has load() too
    runner.step, runner.cursor = at, int(cursor or 0)


def largest_error(mine: Any, theirs: Any) -> float:
    """The largest difference between two numbers of two trees; infinite where the trees are not of one shape."""
    if isinstance(mine, Mapping) and isinstance(theirs, Mapping):
        if mine.keys() != theirs.keys():
            return float("inf")
        return max((largest_error(mine[key], theirs[key]) for key in mine), default=0.0)
    if isinstance(mine, (list, tuple)) and isinstance(theirs, (list, tuple)):
        if len(mine) != len(theirs):
            return float("inf")
        return max(map(largest_error, mine, theirs), default=0.0)
    if hasattr(mine, "untyped_storage") and hasattr(theirs, "untyped_storage"):
        if mine.shape != theirs.shape:
            return float("inf")
        return float((mine.double() - theirs.double()).abs().max()) if mine.numel() else 0.0
    if isinstance(mine, (int, float)) and isinstance(theirs, (int, float)):
        return abs(float(mine) - float(theirs))
    return 0.0 if mine == theirs else float("inf")


def resume_outcomes(
    target: Target, scenarios: Sequence[Scenario] | None, *, steps: int, at: int, folder: Path
) -> tuple[list[Outcome], Traces]:
    """The outcomes of the scenarios, and the traces behind them. scenarios: None for what the job itself can do: its own save() and load()
    where it has them, else all of its declared state, at a boundary and, where it accumulates gradients, between two micro-batches.

    Raises TrainproofError when the job cannot be made or fails.
    """
    if not 0 < at < steps:
        raise InputError(f"interrupted at step {at} of {steps}: expected 0 < at < steps")
    common = {"named": target.named, "settings": target.settings, "steps": steps, "at": at, "folder": str(folder)}
    reference = ask("reference", {**common, "own": scenarios is None})
    traces = {point: _trace(trace) for point, trace in reference["traces"].items()}
    if scenarios is None:
        scenarios = [Scenario(point, point, own=reference["own"]) for point in traces]
    usable = [scenario for scenario in scenarios if scenario.point in traces]
    answers = ask("resumed", {**common, "scenarios": usable})
    resumed = {s.name: _trace(a) for s, a in zip(usable, answers, strict=True)}
    found = [_outcome(s, traces[s.point], resumed[s.name], a["errors"]) for s, a in zip(usable, answers, strict=True)]
    return [_confirmed(outcome, found, traces, common) for outcome in found], Traces(
        reference["own"], reference["fingerprint"], traces, resumed
    )


def _trace(answer: Mapping[str, Any]) -> Trace:
    rows = [Row(*row) for row in answer["rows"]]
    return Trace(answer["point"], [row._replace(ids=tuple(row.ids) if row.ids is not None else None) for row in rows])


def _outcome(scenario: Scenario, reference: Trace, resumed: Trace, errors: Sequence[float]) -> Outcome:
    at_once = tuple(name for name in reference.point if reference.point[name] != resumed.point.get(name))
    pairs = list(zip(reference.rows, resumed.rows, strict=False))
    short = len(reference.rows) != len(resumed.rows)
    first = next((i for i, (a, b) in enumerate(pairs) if a != b), len(pairs) if short else None)
    differing: tuple[str, ...] = ()
    same_ids = False
    if first is not None and first < len(pairs):
        differing, same_ids = _differing(*pairs[first]), pairs[first][0].ids is not None
    return Outcome(
        scenario,
        exact=first is None and not at_once,
        first_step=None if first is None else reference.rows[min(first, len(reference.rows) - 1)].step,
        channels=at_once or differing,
        missing=_parts(at_once) or _guess(differing, same_ids),
        confirmed=False,
        parameter_error=errors[0],
        optimizer_error=errors[1],
        batches=not short and all(a.input == b.input and a.ids == b.ids for a, b in pairs),
        rates=not short and all(a.lr == b.lr for a, b in pairs),
    )


def _differing(a: Row, b: Row) -> tuple[str, ...]:
    """What differs between two rows, causes before consequences."""
    found = [name for name in ("ids", "input", "lr") if getattr(a, name) != getattr(b, name)]
    return (*found, *(name for name in a.channels if a.channels[name] != b.channels.get(name)))


def _parts(channels: Sequence[str]) -> tuple[str, ...]:
    """The parts of the state that the channels belong to: rng.torch is of rng."""
    return tuple(dict.fromkeys(name.partition(".")[0] for name in channels))


def _guess(channels: Sequence[str], same_ids: bool) -> tuple[str, ...]:
    """What may be missing where every declared part was put back: something that the job does not declare. same_ids: the samples are known,
    and are the same."""
    if not channels:
        return ()
    if "ids" in channels:
        return ("the order of the data, which depends on more than the position",)
    if "input" in channels:
        return (
            "a private generator of the data" if same_ids else "the position in the data, or a private generator of it",
        )
    return ("state that the job does not declare in `stateful`",)


def _confirmed(
    outcome: Outcome, found: Sequence[Outcome], traces: Mapping[str, Trace], common: Mapping[str, Any]
) -> Outcome:
    """The outcome, with the answer to whether putting the missing parts back makes the resume exact, and each of them is needed."""
    scenario = outcome.scenario
    if outcome.exact or not set(outcome.missing) <= set(traces[scenario.point].point) | {"rng"}:
        return outcome
    if not scenario.own:
        whole = next((o for o in found if o.scenario.point == scenario.point and not o.scenario.without), None)
        return outcome._replace(
            confirmed=whole is not None and whole.exact and set(outcome.missing) <= set(scenario.without)
        )
    patches = [
        outcome.missing,
        *(
            [tuple(p for p in outcome.missing if p != one) for one in outcome.missing]
            if len(outcome.missing) > 1
            else []
        ),
    ]
    tried = [scenario._replace(patched=patch) for patch in patches]
    answers = ask("resumed", {**common, "scenarios": tried})
    patched = [_outcome(s, traces[s.point], _trace(a), a["errors"]) for s, a in zip(tried, answers, strict=True)]
    if not patched[0].exact:
        return outcome._replace(missing=(*outcome.missing, *patched[0].missing))
    if len(patched) == 1:
        return outcome._replace(confirmed=True)
    needed = tuple(part for part, without in zip(outcome.missing, patched[1:], strict=True) if not without.exact)
    return outcome._replace(missing=needed or outcome.missing, confirmed=bool(needed))
