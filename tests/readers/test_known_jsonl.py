"""The JSONL of known loggers: which reader claims it, and what the format means."""

from __future__ import annotations

import math

import pytest

from tests.readers.known import curve, lines, run


@pytest.mark.parametrize("generation", ["nulls", "learning_rate", "lr"])
def test_llamafactory_declares_its_steps_and_ends_with_a_record_without_a_loss(generation: str) -> None:
    rate = "lr" if generation == "lr" else "learning_rate"
    absent = {"eval_loss": None, "predict_loss": None, "reward": None} if generation == "nulls" else {}
    records: list[dict[str, object]] = [
        {"current_steps": step, "total_steps": 40, "loss": 4 / step, **absent, rate: 1e-4, "elapsed_time": "0:08:29"}
        for step in (10, 20, 30, 40)
    ]
    records.insert(2, {"current_steps": 20, "total_steps": 40, **absent, "eval_loss": 0.5})
    growing = run(lines(records))
    assert not growing.ended
    loss = {"loss": None} if generation == "nulls" else {}
    end = {"current_steps": 40, "total_steps": 40, **loss, **absent, "percentage": 100.0, "remaining_time": "0:00:00"}
    frame = run(lines([*records, end]))
    assert (frame.source.format, frame.ended, frame.total_steps) == ("llamafactory", True, 40)
    assert curve(frame, "loss") == [(10, 0.4), (20, 0.2), (30, 4 / 30), (40, 0.1)]
    assert curve(frame, "eval/loss") == [(20, 0.5)]
    assert frame["lr"].value.tolist() == [1e-4] * 4


def test_detectron2_evaluations_of_absent_classes_are_not_broken() -> None:
    train = [
        {"iteration": i, "total_loss": 2.0 / (i + 1), "loss_cls": 1.0, "lr": 0.01, "time": 0.5, "data_time": 0.1}
        for i in (19, 39, 59)
    ]
    evaluation = {"iteration": 59, "bbox/AP": 31.5, "bbox/AP-dog": math.nan}
    frame = run(lines([*train, evaluation]))
    assert frame.source.format == "detectron2"
    assert curve(frame, "loss") == [(19, 0.1), (39, 0.05), (59, 2 / 60)]
    assert curve(frame, "loss/cls") == [(19, 1.0), (39, 1.0), (59, 1.0)]
    assert curve(frame, "step_time") == [(19, 0.5), (39, 0.5), (59, 0.5)]
    assert curve(frame, "eval/bbox/AP") == [(59, 31.5)]
    assert "eval/bbox/AP-dog" not in frame


def mmengine_train(step: int) -> dict[str, object]:
    return {
        "lr": 0.1,
        "data_time": 0.5,
        "loss": 8.0 / step,
        "time": 1.0,
        "epoch": 1 + step // 50,
        "iter": step,
        "step": step,
    }


def test_mmengine_validations_count_epochs_and_stand_behind_the_iterations_they_follow() -> None:
    records = [mmengine_train(step) for step in range(10, 110, 10)]
    records.insert(5, {"coco/AP": 0.25, "coco/AP (M)": -1.0, "data_time": 0.1, "time": 0.2, "step": 1})
    records.append({"coco/AP": 0.5, "coco/AP (M)": -1.0, "data_time": 0.1, "time": 0.2, "step": 2})
    frame = run(lines(records))
    assert (frame.source.format, frame.repairs) == ("mmengine", ())
    assert curve(frame, "loss") == [(step, 8.0 / step) for step in range(10, 110, 10)]
    assert curve(frame, "eval/coco/AP") == [(50, 0.25), (100, 0.5)]
    assert "eval/coco/AP (M)" not in frame  # -1: there was nothing to measure
    assert curve(frame, "step_time") == [(step, 1.0) for step in range(10, 110, 10)]


def test_mmcv_counts_iterations_in_each_epoch_and_says_what_is_a_validation() -> None:
    records: list[dict[str, object]] = [{"env_info": "sys.platform: linux", "seed": 7, "exp_name": "x.py"}]
    for epoch in (1, 2, 3):
        for i in (50, 100):
            loss = 3.0 - epoch + 0.001 * i
            records.append({"mode": "train", "epoch": epoch, "iter": i, "lr": 0.01, "loss": loss, "data_time": 0.1})
        records.append({"mode": "val", "epoch": epoch, "iter": 625, "lr": 0.01, "bbox_mAP": 0.1 * epoch, "loss": 1.5})
    frame = run(lines(records))
    assert frame.source.format == "mmengine"
    assert curve(frame, "loss") == [(50, 2.05), (100, 2.1), (150, 1.05), (200, 1.1), (250, 0.05), (300, 0.1)]
    assert curve(frame, "eval/bbox_mAP") == [(100, 0.1), (200, 0.2), (300, pytest.approx(0.3))]
    assert curve(frame, "eval/loss") == [(100, 1.5), (200, 1.5), (300, 1.5)]
    assert frame.facts["seed"] == 7
    assert [repair.kind for repair in frame.repairs] == ["epochs"]


def test_detr_and_its_kin_log_an_epoch_a_line() -> None:
    records = [
        {"train_lr": 1e-4, "train_loss": 8.0 / (i + 1), "train_loss_ce_unscaled": 1.0, "test_loss": 9.0 / (i + 1)}
        | {"test_coco_eval_bbox": [0.1, 0.2], "epoch": i, "n_parameters": 41000000}
        for i in range(4)
    ]
    frame = run(lines(records))
    assert frame.source.format == "detr"
    assert curve(frame, "loss") == [(0, 8.0), (1, 4.0), (2, 8 / 3), (3, 2.0)]
    assert curve(frame, "eval/loss") == [(0, 9.0), (1, 4.5), (2, 3.0), (3, 2.25)]
    assert curve(frame, "lr") == [(i, 1e-4) for i in range(4)]


def stat(mean: float, num: int = 64) -> dict[str, float]:
    return {"num": num, "mean": mean, "std": 0.5}


def test_stylegan_means_count_where_there_was_something_to_observe() -> None:
    records = [
        {
            "Loss/G/loss": stat(2.0 + tick),
            "Loss/D/loss": stat(0.5),
            "Loss/pl_penalty": stat(math.nan if tick % 2 else 0.25, num=0 if tick % 2 else 16),
            "Progress/tick": stat(tick, 1),
            "Progress/kimg": stat(4.0 * tick, 1),
            "timestamp": 1.7e9 + tick,
        }
        for tick in range(4)
    ]
    frame = run(lines(records))
    assert (frame.source.format, frame.objective) == ("stylegan", "adversarial")
    assert curve(frame, "loss/generator") == [(0, 2.0), (1, 3.0), (2, 4.0), (3, 5.0)]
    assert curve(frame, "loss/pl_penalty") == [(0, 0.25), (2, 0.25)]
    assert curve(frame, "Progress/kimg") == [(0, 0.0), (1, 4.0), (2, 8.0), (3, 12.0)]
    assert not any(name.endswith(("/num", "/std", "/mean")) for name in frame)


def test_records_of_no_known_logger_stay_jsonl() -> None:
    assert run(lines({"iteration": i, "loss": 2.0 / i} for i in range(1, 5))).source.format == "jsonl"
    assert run(lines({"iter": i, "step": i, "loss": 2.0 / i} for i in range(1, 5))).source.format == "jsonl"
    assert (
        run(lines({"epoch": i, "train_loss": 2.0 / i, "val_loss": 1.0} for i in range(1, 5))).source.format == "jsonl"
    )
