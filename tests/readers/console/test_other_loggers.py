"""Loggers whose lines are no fields of one line: boxes, underlined tables, positional columns, two splits in one line."""

from __future__ import annotations

import pytest

from tests.readers.console.test_generic import ACCURACY, HUNDREDS, TRAIN, VALID, repeated
from tests.readers.console.test_samples import points, read
from trainproof.errors import FormatError

BOX = """---------------------------------
| rollout/           |          |
|    ep_rew_mean     | {t}      |
| time/              |          |
|    total_timesteps | {s}      |
| train/             |          |
|    value_loss      | {v}      |
---------------------------------
episode done
"""
PLAIN_BOX = (
    "---------------\n| EpRewMean      | {t} |\n| TimestepsSoFar | {s} |\n| loss_vf_loss | {v} |\n---------------"
)
SPACY = "E    #       LOSS TOK2VEC  LOSS NER  ENTS_F  SCORE \n---  ------  ------------  --------  ------  ------\n"
SKORCH = "  epoch    train_loss    valid_acc    valid_loss     dur\n-------  ------------  -----------  ------------  ------\n"
CARD = (
    "---\nlicense: mit\n---\n\n### Training results\n\n| Training Loss | Epoch | Step | Validation Loss | Accuracy |\n"
    "|:-------------:|:-----:|:----:|:---------------:|:--------:|\n"
)
SHIFTED = [(100 * e, v) for e, v in VALID]


@pytest.mark.parametrize(("text", "loss"), [(BOX, "loss/value"), (PLAIN_BOX, "loss/vf_loss")])
def test_a_box_is_a_record(text: str, loss: str) -> None:
    frame = read(repeated(text).encode())
    assert (frame.source.format, frame.objective) == ("boxes", "rl")
    assert points(frame, "reward") == HUNDREDS
    assert points(frame, loss) == SHIFTED
    assert frame["reward"].line[0] == 2 + (text == BOX)


def test_a_box_that_is_cut_is_none() -> None:
    assert len(read((repeated(BOX) + "\n".join(BOX.split("\n")[:5])).encode())["reward"]) == 14


def test_a_table_of_spacy() -> None:
    frame = read(
        (
            "Training pipeline\n" + SPACY + repeated("  0  {s:>6}          0.00  {t:>8}  {a:>6}  {v:>6}") + "Saved\n"
        ).encode()
    )
    assert frame.source.format == "ruled-table"
    assert points(frame, "eval/ENTS_F") == [(100 * e, a) for e, a in ACCURACY]
    assert points(frame, "LOSS NER") == HUNDREDS
    assert points(frame, "eval/SCORE") == SHIFTED


def test_a_coloured_table_of_skorch() -> None:
    row = "{e:>7}        \x1b[36m{t}\x1b[0m       \x1b[32m{a}\x1b[0m        \x1b[35m{v}\x1b[0m  0.12"
    frame = read((SKORCH + repeated(row)).encode())
    assert points(frame, "loss") == TRAIN
    assert points(frame, "eval/loss") == VALID
    assert points(frame, "eval/acc") == ACCURACY


def test_a_table_of_a_model_card() -> None:
    text = CARD + repeated("| {t}        | {e}.0   | {s}  | {v}          | {a}   |") + "\n### Versions\n"
    frame = read(text.encode())
    assert points(frame, "loss") == HUNDREDS
    assert points(frame, "eval/loss") == SHIFTED
    assert frame["loss"].line[0] == 9


def test_other_tables_are_no_logs() -> None:
    layers = "| Layer | Params |\n|-------|--------|\n" + "".join(f"| conv{i} | {i} |\n" for i in range(9))
    with pytest.raises(FormatError):
        read(layers.encode())


@pytest.mark.parametrize(
    ("format_name", "line"),
    [
        (
            "darknet",
            " {s}: {t}, 3.1 avg loss, 0.001000 rate, 3.5 seconds, 6400 images, 10.1 hours left\nLoaded: 0.1 seconds",
        ),
        (
            "marian",
            (
                "[2020-05-11 10:00:00] Ep. 1 : Up. {s} : Sen. 53,210 : Cost {t} * 123,456 @ 1,234 after 1,567 : Time 30.1s : 41 words/s : "
                "L.r. 3.0000e-04\n[2020-05-11 10:01:00] [valid] Ep. 1 : Up. {s} : cross-entropy : {v} : new best"
            ),
        ),
    ],
)
def test_a_line_with_places_instead_of_names(format_name: str, line: str) -> None:
    frame = read(repeated(line).encode())
    assert frame.source.format == format_name
    assert points(frame, "loss") == HUNDREDS
    assert frame["lr"].value[0] in (0.001, 0.0003)
    assert format_name == "darknet" or points(frame, "eval/loss") == SHIFTED


def test_training_and_validation_in_one_line_of_espnet() -> None:
    line = (
        "[host] 2021-07-06 14:00:00,332 (trainer:338) INFO: {e}epoch results: [train] iter_time=0.002, loss={t}, optim0_lr0=1.5e-04, "
        "time=6 hours, 22 minutes and 5.09 seconds, total_count=13, [valid] loss={v}, acc={a}, time=3 seconds, [att_plot] time=2 seconds"
    )
    frame = read(repeated(line).encode())
    assert (points(frame, "loss"), points(frame, "eval/loss"), points(frame, "eval/acc")) == (TRAIN, VALID, ACCURACY)
    assert set(frame) == {"loss", "lr", "data_time", "eval/loss", "eval/acc"}


def test_the_columns_of_yolo() -> None:
    row = "{e:>10}/14      2.52G     {t}     {v}      1.25         15        640: {{}}%|###| {{}}/50 [00:10<00:00,  5.00it/s]"
    bars = f"{row.replace('{{}}', '10')}\r{row.replace('{{}}', '100')}"
    scores = "                   all        128        929      0.5      0.5      {a}      0.25"
    frame = read(
        repeated(
            f"\n      Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size\n{bars}\n{scores}"
        ).encode()
    )
    assert frame.source.format == "yolo"
    assert points(frame, "loss/box") == TRAIN
    assert points(frame, "eval/map50") == ACCURACY


@pytest.mark.parametrize(
    "line",
    [
        (
            "2024-03-06 19:40:31,330 - train: [    INFO] - Train: {{e}} [  40/100 ( 40%)]  Loss: {t} (9.4)  Loss_kd: 1.2 (1.2) LR: 1.000e-04\n"
            "2024-03-06 19:40:31,330 - train: [    INFO] - Test: [   0/78]  Time: 0.2 (0.1)  Loss:  8.5 (8.5)  Acc@1:  0.1 ( 0.1)\n"
            "2024-03-06 19:40:31,330 - train: [    INFO] - Test: [  78/78]  Time: 0.2 (0.1)  Loss:  9.5 ({v})  Acc@1:  0.0 ( {a})"
        ),
        (
            "Epoch: [{{e}}]  [ 40/100]  eta: 0:10:00  lr: 0.0001  loss: {t} (9.5)  time: 0.6123  data: 0.0002\n"
            "Test:  [78/78]  eta: 0:00:00  loss: 9.5 ({v})  Acc@1: 0.0 ({a})  time: 0.1 data: 0.1\n* Acc@1 0.5"
        ),
        (
            "Epoch: [{{e}}][ 40/100]\tTime  0.321 ( 1.212)\tLoss {t} (7.0e+00)\tAcc@1   0.10 (  0.12)\n"
            "Test: [78/78]\tTime  0.321 ( 1.212)\tLoss 9.5e+00 ({v})\tAcc@1   0.10 (  {a})"
        ),
    ],
)
def test_a_batch_has_its_value_and_an_evaluation_its_mean(line: str) -> None:
    text = "".join(
        line.format(t=t, v=v, a=a).format(e=e - 1) + "\n"
        for (e, t), (_, v), (_, a) in zip(TRAIN, VALID, ACCURACY, strict=True)
    )
    frame = read(text.encode())
    assert frame.source.format == "meters"
    at = [100 * (e - 1) + 40 for e, _ in TRAIN]
    assert points(frame, "loss") == [(step, t) for step, (_, t) in zip(at, TRAIN, strict=True)]
    assert points(frame, "eval/loss") == [(step, v) for step, (_, v) in zip(at, VALID, strict=True)]
    assert points(frame, "eval/Acc@1") == [(step, a) for step, (_, a) in zip(at, ACCURACY, strict=True)]


def test_steps_without_a_loss_are_counted_on_over_the_epochs() -> None:
    lines = [
        f"Epoch[{e}] Batch [{b}]\tSpeed: 19.7 samples/sec\tTrain-Acc=0.{5 + e}{b}"
        for e in range(3)
        for b in range(10, 70, 10)
    ]
    closing = [f"Epoch[{e}] Train-Acc=nan\nEpoch[{e}] Validation-Acc=0.{6 + e}" for e in range(3)]
    text = "\n".join("\n".join([*lines[6 * e : 6 * e + 6], closing[e]]) for e in range(3))
    frame = read(text.encode())
    assert frame["train_acc"].step.tolist() == list(range(10, 190, 10))
    assert points(frame, "eval/acc") == [(60, 0.6), (120, 0.7), (180, 0.8)]
