"""Folders in which one run left several logs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.readers.eventfiles import VERSION, event, scalar
from trainproof.frame import Frame
from trainproof.readers.discover import read_logs


def state(path: Path, losses: Sequence[float], *, summary: bool = False) -> None:
    history: list[Mapping[str, float]] = [
        {"epoch": step / 10, "learning_rate": 0.1, "loss": loss, "step": 10 * step}
        for step, loss in enumerate(losses, 1)
    ]
    if summary:
        history = [*history, {"step": 10 * len(losses), "train_loss": 1.0, "train_runtime": 60.0}]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"global_step": 10 * len(losses), "log_history": history, "max_steps": 100}, indent=2))


def found(folder: Path) -> dict[str, Frame]:
    """The one run of each log below the folder, by its path below it."""
    logs = list(read_logs([str(folder)]))
    assert all(log.problem is None and len(log.frames) == 1 for log in logs)
    return {str(Path(log.path).relative_to(folder)): log.frames[0] for log in logs}


LOSSES = [3.0, 2.5, 2.0, 1.75, 1.5, 1.25]


def test_the_newest_state_of_an_hf_folder_is_the_run_and_checkpoints_are_its_beginnings(tmp_path: Path) -> None:
    for steps in (2, 4, 6):
        state(tmp_path / f"checkpoint-{10 * steps}" / "trainer_state.json", LOSSES[:steps])
    state(tmp_path / "trainer_state.json", LOSSES, summary=True)
    runs = found(tmp_path)
    assert list(runs) == ["trainer_state.json"]
    assert runs["trainer_state.json"].ended


def test_of_a_run_that_goes_on_the_last_checkpoint_is_the_newest(tmp_path: Path) -> None:
    """`checkpoint-100` comes before `checkpoint-20` by name, and the state beside them is of before the run was resumed."""
    state(tmp_path / "trainer_state.json", LOSSES[:3], summary=True)
    for steps in (2, 10):
        state(tmp_path / f"checkpoint-{10 * steps}" / "trainer_state.json", [*LOSSES, 1.0, 1.0, 1.0, 1.0][:steps])
    runs = found(tmp_path)
    assert list(runs) == ["checkpoint-100/trainer_state.json"]
    assert runs["checkpoint-100/trainer_state.json"].records == 10


def test_checkpoints_of_another_run_in_the_same_folder_are_a_run_of_their_own(tmp_path: Path) -> None:
    state(tmp_path / "checkpoint-60" / "trainer_state.json", LOSSES)
    for steps in (2, 4):
        state(tmp_path / f"checkpoint-{10 * steps}" / "trainer_state.json", [2 * loss for loss in LOSSES[:steps]])
    assert list(found(tmp_path)) == ["checkpoint-60/trainer_state.json", "checkpoint-40/trainer_state.json"]


def test_a_checkpoint_that_has_logged_nothing_yet_is_no_complaint(tmp_path: Path) -> None:
    state(tmp_path / "checkpoint-10" / "trainer_state.json", [])
    state(tmp_path / "checkpoint-60" / "trainer_state.json", LOSSES)
    assert list(found(tmp_path)) == ["checkpoint-60/trainer_state.json"]


def test_output_folders_beside_each_other_are_runs_each(tmp_path: Path) -> None:
    for name in ("a", "b"):
        state(tmp_path / name / "checkpoint-60" / "trainer_state.json", LOSSES)
    assert list(found(tmp_path)) == ["a/checkpoint-60/trainer_state.json", "b/checkpoint-60/trainer_state.json"]


def events(path: Path, tag: str, values: Sequence[float]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(VERSION + b"".join(event(i, scalar(tag, value)) for i, value in enumerate(values)))


def test_events_of_training_and_validation_beside_each_other_are_one_run(tmp_path: Path) -> None:
    events(tmp_path / "train" / "events.out.tfevents.1.host", "epoch_loss", [3.0, 2.0, 1.0])
    events(tmp_path / "validation" / "events.out.tfevents.2.host", "epoch_loss", [3.5, 2.5, 1.5])
    ((path, frame),) = found(tmp_path).items()
    assert path == "."
    assert frame["loss"].value.tolist() == [3.0, 2.0, 1.0]
    assert frame["eval/loss"].value.tolist() == [3.5, 2.5, 1.5]


def test_an_evaluation_folder_below_the_events_of_training_is_part_of_the_run(tmp_path: Path) -> None:
    events(tmp_path / "run" / "events.out.tfevents.1.host", "loss", [3.0, 2.0, 1.0])
    events(tmp_path / "run" / "eval" / "events.out.tfevents.2.host", "loss", [3.5, 2.5, 1.5])
    events(tmp_path / "other" / "events.out.tfevents.3.host", "loss", [9.0, 8.0])
    runs = found(tmp_path)
    assert sorted(runs) == ["other/events.out.tfevents.3.host", "run"]
    assert runs["run"]["eval/loss"].value.tolist() == [3.5, 2.5, 1.5]
    assert runs["run"]["loss"].value.tolist() == [3.0, 2.0, 1.0]


def test_sub_runs_of_a_logdir_are_runs_each(tmp_path: Path) -> None:
    for name in ("lr_0.1", "lr_0.2"):
        events(tmp_path / name / "events.out.tfevents.1.host", "loss", [3.0, 2.0, 1.0])
    assert list(found(tmp_path)) == ["lr_0.1/events.out.tfevents.1.host", "lr_0.2/events.out.tfevents.1.host"]


def test_versions_of_lightning_are_runs_each_with_their_own_hyperparameters(tmp_path: Path) -> None:
    for version, rate in enumerate((0.1, 0.2)):
        folder = tmp_path / "lightning_logs" / f"version_{version}"
        folder.mkdir(parents=True)
        (folder / "hparams.yaml").write_text(f"learning_rate: {rate}\n")
        (folder / "metrics.csv").write_text("epoch,step,train_loss,val_loss\n0,49,2.5,\n0,99,,2.0\n1,149,1.5,\n")
    runs = found(tmp_path)
    assert [Path(path).parent.name for path in runs] == ["version_0", "version_1"]
    assert [(frame.source.format, frame.facts["learning_rate"]) for frame in runs.values()] == [
        ("lightning", 0.1),
        ("lightning", 0.2),
    ]


def test_the_console_of_every_node_is_one_run_the_longest_of_them(tmp_path: Path) -> None:
    lines = [f"step {i}/40 | loss {4 / (i + 1):.4f} | lr 0.0001\n" for i in range(40)]
    for node, count in enumerate((38, 40, 39)):
        (tmp_path / f"node_{node}.log").write_text(f"node {node} is up\n" + "".join(lines[:count]))
    (tmp_path / "node_3.log").write_text("".join(line.replace("loss ", "loss 1") for line in lines))
    runs = found(tmp_path)
    assert sorted(runs) == ["node_1.log", "node_3.log"]
    assert runs["node_1.log"].records == 40
