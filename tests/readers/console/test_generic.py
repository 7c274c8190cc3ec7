"""Texts of no known logger: what counts their records, what is of an evaluation, and how fields may be spelled."""

from __future__ import annotations

import pytest

from tests.readers.console.test_samples import points, read
from trainproof.errors import FormatError

EPOCHS = range(1, 15)


def losses(count: int = 14) -> list[float]:
    return [round(2 / i + 0.1, 3) for i in range(1, count + 1)]


def repeated(line: str) -> str:
    """One record an epoch: {e} counts from 1, {t} is the training loss, {v} the validation loss, {a} the accuracy."""
    return "".join(
        line.format(e=e, s=e * 100, t=t, v=round(t + 0.05, 3), a=round(1 - t / 3, 3)) + "\n"
        for e, t in zip(EPOCHS, losses(), strict=True)
    )


TRAIN = [(e, t) for e, t in zip(EPOCHS, losses(), strict=True)]
VALID = [(e, round(t + 0.05, 3)) for e, t in TRAIN]
ACCURACY = [(e, round(1 - t / 3, 3)) for e, t in TRAIN]
HUNDREDS = [(100 * e, t) for e, t in TRAIN]


@pytest.mark.parametrize(
    "line",
    [
        "Epoch {e}/14: Train Loss = {t}, Val Loss = {v}, Val Acc = {a}",
        "Epoch {e}: train_loss={t} val_loss={v} val_acc={a}",
        "[{e}/14] Train Loss: {t}, Valid Loss: {v}, Valid Acc: {a}",
        "{e}: train_loss={t} val_loss={v} val_acc={a}",
        "Epoch {e}/14\n----------\ntrain Loss: {t} Acc: 0.5\nval Loss: {v} Acc: {a}\n",
        "Epoch: {e:02d} | Time: 0m 12s\n\tTrain Loss: {t} | Train PPL: 3.1\n\t Val. Loss: {v} |  Val. Acc: {a}",
        "Epoch:{e}/14\nTotal Loss: {t} || Val Loss: {v} || Val Acc: {a}",
        "train epoch: {e}, loss: {t}, acc: 0.5\neval epoch: {e}, loss: {v}, acc: {a}",
        "| epoch {e:03d} | loss {t} | lr 0.1\n| epoch {e:03d} | valid on 'valid' subset | loss {v} | acc: {a}",
        "Epoch {e} | Training | Steps: 50 | Loss: {t}\nEpoch {e} | Validation | Steps: 5 | Loss: {v} | Acc: {a}",
        "Training Results - Epoch: {e}  Avg loss: {t}\nValidation Results - Epoch: {e}  Avg loss: {v} Acc: {a}",
        "Epoch: {e}, Steps: 264 | Train Loss: {t} Vali Loss: {v} Val Acc: {a} Test Loss: 0.3",
        "第{e}轮 训练损失: {t} 验证损失: {v} 验证准确率: {a}",
        "Epoch {e}/14，train loss：{t}，val loss：{v}，val acc：{a}",
    ],
)
def test_an_epoch_has_its_training_and_its_validation(line: str) -> None:
    frame = read(repeated(line).encode())
    assert frame.source.format == "generic-text"
    assert points(frame, "loss") == TRAIN
    assert points(frame, "eval/loss") == VALID
    assert points(frame, "eval/acc") == ACCURACY


@pytest.mark.parametrize(
    "line",
    [
        "Iter {s}: Train loss {t}, It/sec 1.2",
        "INFO ScoreIterationListener - Score at iteration {s} is {t}",
        "Average loss at step {s}: {t}",
        "Cost after iteration {s}: {t}",
        "step: {s}, loss is {t}",
        (
            "I0831 10:00:00.123 12345 solver.cpp:228] Iteration {s}, loss = {t}\n"
            "I0831 10:00:00.123 12345 solver.cpp:244]     Train net output #0: loss = {t} (* 1 = {t} loss)"
        ),
        "Step... ({s} | Loss: {t}, Learning Rate: 0.1)",
    ],
)
def test_a_step_may_stand_in_words(line: str) -> None:
    assert points(read(repeated(line).encode()), "loss") == HUNDREDS


def test_bars_of_an_epoch_are_none_of_its_records() -> None:
    bars = "\r".join(f"Train Loss: {9 - i}.5:  {i * 30}%|###| {i}/3 [00:00<00:01, 3.1step/s]" for i in range(4))
    frame = read(repeated(bars + "\n[{e}/14] Train Loss: {t}, Valid Loss: {v}").encode())
    assert points(frame, "loss") == TRAIN
    assert points(frame, "eval/loss") == VALID


def test_a_few_epochs_are_a_log() -> None:
    frame = read(b"".join(b"Epoch [%d/5], Loss: 0.%d\n" % (e, 9 - e) for e in range(1, 6)))
    assert points(frame, "loss") == [(1, 0.8), (2, 0.7), (3, 0.6), (4, 0.5), (5, 0.4)]


@pytest.mark.parametrize(
    ("line", "step"),
    [
        ("global_step={s}, episodic_return=[{t}]", 100),
        ("Episode: {e}/200, Score: {t}, Epsilon: 0.5", 1),
        ("[INFO] Ball. Step: {s}. Time Elapsed: 13 s. Mean Reward: {t}. Std of Reward: 0.7. Training.", 100),
    ],
)
def test_a_log_of_rewards_needs_no_loss(line: str, step: int) -> None:
    frame = read(repeated(line).encode())
    assert points(frame, "reward") == [(step * e, t) for e, t in TRAIN]
    assert frame.objective == "rl"


def test_a_loss_that_is_nan_in_words_is_nan() -> None:
    text = "".join(f"epoch: 1 step: {s}, loss is {'nan' if s > 10 else 0.5}\n" for s in range(1, 15))
    assert [s for s, value in points(read(text.encode()), "loss") if value != value] == [11, 12, 13, 14]


@pytest.mark.parametrize(
    "text",
    [
        "the loss of step 3 is discussed in section 4\n" * 40,
        "".join(f"{i}. A loss of weight was seen in {i} patients\n" for i in range(40)),
        "".join(f"2024-01-01 10:00:{i:02d} GET /score?user={i} 200\n" for i in range(40)),
        "".join(f"def step_{i}(loss, epoch):\n    return loss\n" for i in range(40)),
    ],
)
def test_other_texts_are_no_logs(text: str) -> None:
    with pytest.raises(FormatError):
        read(text.encode())


def test_bars_that_lost_their_carriage_returns_are_lines_of_their_own() -> None:
    bars = "".join(f" {i}%|#| {i}/100 [00:00<00:01,  1.5s/it]" for i in range(50))  # more than a record's head may be
    text = "".join(f"{bars}   {{'loss': {t}, 'learning_rate': 0.1, 'epoch': {e}}}\n" for e, t in TRAIN)
    frame = read(text.encode())
    assert frame.source.format == "hf-console"
    assert points(frame, "loss") == TRAIN
    assert frame["loss"].line.tolist() == list(EPOCHS)
