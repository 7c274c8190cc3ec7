"""JSON documents with a run's history: lists of values, lists of records, and several runs in one."""

from __future__ import annotations

import json

import pytest

from trainproof.errors import FormatError
from trainproof.frame import Frame, Source
from trainproof.readers.base import reader_for, recognise
from trainproof.readers.builder import FrameBuilder
from trainproof.readers.source import LogInput

TRAIN, VALID = [2.0, 1.5, 1.25, 1.0], [2.5, 1.75, 1.5, 1.5]


def read(document: object, indent: int | None = None) -> list[Frame]:
    log = LogInput("log", json.dumps(document, indent=indent).encode())
    reader = recognise(log)
    assert reader.name == "json-history"
    out = FrameBuilder()
    reader.read(log, out)
    return out.build(Source("log", reader.name))


def points(frame: Frame, name: str) -> list[tuple[int, float]]:
    return list(zip(frame[name].step.tolist(), frame[name].value.tolist(), strict=True))


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize(
    "document",
    [
        {"loss": TRAIN, "val_loss": VALID},
        {"train_losses": TRAIN, "val_losses": VALID, "best_epoch": 3, "name": "net"},
        {"train": {"loss": TRAIN}, "val": {"loss": VALID}},
        {"loss": {"train": TRAIN, "val": VALID}},
        {"config": {"lr": 0.1}, "history": {"train_loss": TRAIN, "val_loss": VALID}},
        {"loss": dict(enumerate(TRAIN)), "val_loss": dict(enumerate(VALID))},
        {"epochs": [1, 2, 3, 4], "losses": TRAIN, "validation_loss": VALID, "predictions": [0.5] * 9},
        {
            "history": [
                {"epoch": e, "train_loss": t, "val_loss": v} for e, t, v in zip([1, 2, 3, 4], TRAIN, VALID, strict=True)
            ]
        },
        {
            "epochs": [
                {"epoch": e, "train": {"loss": t}, "val": {"loss": v}}
                for e, t, v in zip([1, 2, 3, 4], TRAIN, VALID, strict=True)
            ]
        },
    ],
)
def test_a_history_is_found_wherever_it_lies(document: object, indent: int | None) -> None:
    (frame,) = read(document, indent)
    assert points(frame, "loss") == list(zip([1, 2, 3, 4], TRAIN, strict=True))
    assert points(frame, "eval/loss") == list(zip([1, 2, 3, 4], VALID, strict=True))


def test_what_is_measured_less_often_is_spread_over_the_records() -> None:
    (frame,) = read(
        {"train_losses": TRAIN, "val_losses": [2.5, 1.5], "lrs": [0.1, 0.1, 0.1, 0.01], "class_accuracy": [0.1, 0.9]}
    )
    assert points(frame, "eval/loss") == [(2, 2.5), (4, 1.5)]
    assert frame["lr"].value.tolist() == [0.1, 0.1, 0.1, 0.01]
    assert "class_accuracy" not in frame


def test_a_value_is_cited_with_its_line() -> None:
    (frame,) = read({"name": "net", "loss": TRAIN}, indent=1)
    assert frame["loss"].line.tolist() == [4, 5, 6, 7]


def test_nothing_and_nan_are_two_things() -> None:
    (frame,) = read({"loss": [2.0, None, float("nan"), 1.0]})
    assert frame["loss"].step.tolist() == [1, 3, 4]
    assert frame["loss"].value.tolist()[1] != frame["loss"].value.tolist()[1]


def test_folds_and_models_are_runs_of_their_own() -> None:
    frames = read({"a": {"loss": TRAIN}, "folds": [{"loss": VALID, "name": "x"}, {"loss": TRAIN, "name": "y"}]})
    assert [points(frame, "loss")[0] for frame in frames] == [(1, 2.0), (1, 2.5), (1, 2.0)]


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "package", "files": ["a", "b"], "scores": {}}',
        '{"loss": [1.0, 2.0',
        '{"config": {"betas": [0.9, 0.99], "layers": [1, 2, 3]}}',
        '{"lr_milestones": [10, 20], "score_thresholds": [0.1, 0.5, 0.9]}',
    ],
)
def test_other_documents_are_no_histories(text: str) -> None:
    log = LogInput("log", text.encode())
    with pytest.raises(FormatError):
        recognise(log).read(log, FrameBuilder())


@pytest.mark.parametrize("cut", [1, 9, 200])
def test_a_document_that_is_cut_off_says_what_it_had_said_by_then(cut: int) -> None:
    losses = [4 / (i + 1) for i in range(40)]
    text = json.dumps({"model": {"name": "a"}, "loss": losses, "val_loss": losses}, indent=2).encode()
    log = LogInput("history.json", text[:-cut])
    out = FrameBuilder()
    recognise(log).read(log, out)
    (frame,) = out.build(Source("history.json", "json-history"))
    assert frame["loss"].value.tolist() == losses
    assert frame["eval/loss"].value.tolist() == losses[: len(frame["eval/loss"])]
    assert frame["eval/loss"].step.tolist() == frame["loss"].step.tolist()[: len(frame["eval/loss"])]
    assert 30 <= len(frame["eval/loss"]) <= 40
    assert frame.dropped_count == 1


@pytest.mark.parametrize("text", [b'{"loss": [1, 2, 3]]}, "a": [', b'{"loss": [1, 2, 3}, "b": 1', b'{"loss": 1'])
def test_a_damaged_document_is_refused(text: bytes) -> None:
    with pytest.raises(FormatError, match="not a JSON document"):
        reader_for("json-history").read(LogInput("x", text), FrameBuilder())


def test_a_list_that_is_cut_off_may_be_longer_than_the_loss() -> None:
    text = json.dumps({"loss": [4 / (i + 1) for i in range(40)], "accuracy": [i / 100 for i in range(100)]}).encode()
    out = FrameBuilder()
    reader_for("json-history").read(LogInput("history.json", text[:-20]), out)
    (frame,) = out.build(Source("history.json", "json-history"))
    assert set(frame) == {"loss"}
