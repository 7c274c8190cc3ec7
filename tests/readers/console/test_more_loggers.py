"""Kaldi, Sockeye, Tesseract, MATLAB, ParlAI, Spinning Up: objectives, perplexities, percents and tables as losses at their steps."""

from __future__ import annotations

import math

import pytest

from tests.readers.console.test_generic import ACCURACY, HUNDREDS, TRAIN, VALID, repeated
from tests.readers.console.test_samples import points, read
from trainproof.errors import FormatError

SHIFTED = [(100 * e, v) for e, v in VALID]
NNET3 = "LOG (nnet3-train[5.5.7~1-2b62]:PrintStatsForThisPhase():nnet-training.cc:291) "
CHAIN = "LOG (nnet3-chain-train[5.5]:PrintStatsForThisPhase():nnet-training.cc:299) "


def test_an_objective_of_kaldi_is_minus_a_loss() -> None:
    line = (
        f"{NNET3}Average objective function for 'output' for minibatches 0-{{s}} is -{{t}} over 12800 frames.\n"
        f"{NNET3.replace('ForThisPhase', 'Total')}Overall average objective function for 'output' is -9.5 over 123 frames."
    )
    frame = read(repeated(line).encode())
    assert frame.source.format == "kaldi"
    assert points(frame, "loss") == HUNDREDS


def test_a_regularised_objective_and_a_second_output_of_kaldi() -> None:
    line = (
        f"{CHAIN}Average objective function for 'output' for minibatches 0-{{s}} is -9.1 + -0.4 = -{{t}} over 99840 frames.\n"
        f"{CHAIN}Average objective function for 'output-xent' for minibatches 0-{{s}} is -{{v}} over 99840 frames."
    )
    frame = read(repeated(line).encode())
    assert (points(frame, "loss"), points(frame, "loss/xent")) == (HUNDREDS, SHIFTED)


def test_the_objectives_of_whole_files_and_reports_of_kaldi() -> None:
    overall = "LOG (nnet3-train[5.5]:PrintTotalStats():nnet-training.cc:331) Overall average objective function for 'output' is -{t} over 9 frames."
    assert points(read(repeated(overall).encode()), "loss") == TRAIN
    head = "%Iter\tduration\ttrain_objective\tvalid_objective\tdifference\n"
    frame = read((head + repeated("{e}\t47.0\t-{t}\t-{v}\t0.05")).encode())
    assert (points(frame, "loss"), points(frame, "eval/loss")) == (TRAIN, VALID)


def test_the_iterations_of_kaldis_first_networks() -> None:
    line = "ITERATION {e:02}: TRAIN AVG.LOSS {t}, (lrate0.008), CROSSVAL AVG.LOSS {v}, nnet accepted (nnet_iter{e:02})"
    frame = read(repeated(line).encode())
    assert (points(frame, "loss"), points(frame, "eval/loss")) == (TRAIN, VALID)
    assert set(frame["lr"].value) == {0.008}


@pytest.mark.parametrize(
    ("line", "evaluates"),
    [
        (
            "{s}\tbleu-val={a}\tepoch=1\tlearning-rate=0.0002\tperplexity-train={t}\tperplexity-val={v}\ttime-elapsed=41.2",
            True,
        ),
        (
            "[2019-05-11:10:00:07:INFO:sockeye.training:__call__] Epoch[0] Batch [{s}]\tSpeed: 1234.1 samples/sec\tperplexity={t}",
            False,
        ),
    ],
)
def test_a_perplexity_of_sockeye_is_the_exponential_of_a_loss(line: str, evaluates: bool) -> None:
    frame = read(repeated(line).encode())
    assert frame.source.format == "sockeye"
    assert frame["loss"].step.tolist() == [s for s, _ in HUNDREDS]
    assert frame["loss"].value.tolist() == pytest.approx([math.log(t) for _, t in HUNDREDS])
    if evaluates:
        assert frame["eval/loss"].value.tolist() == pytest.approx([math.log(v) for _, v in SHIFTED])
        assert points(frame, "eval/bleu") == [(100 * e, a) for e, a in ACCURACY]


@pytest.mark.parametrize(
    "line",
    [
        "At iteration 14/{s}/{s}, mean rms={t}%, delta=4.1%, BCER train={v}%, BWER train=31.0%, skip ratio=0.000%, wrote checkpoint.",
        "At iteration 14/{s}/{s}, Mean rms={t}%, delta=4.1%, char train={v}%, word train=31.0%, skip ratio=0%,  New worst char error",
    ],
)
def test_the_error_rates_of_tesseract(line: str) -> None:
    frame = read(repeated(line).encode())
    assert frame.source.format == "tesseract"
    assert (points(frame, "loss"), points(frame, "train_cer")) == (HUNDREDS, SHIFTED)


def test_a_table_of_matlab_with_blank_cells() -> None:
    edge = "|" + "=" * 100 + "|\n"
    head = (
        "|  Epoch  |  Iteration  |  Time Elapsed  |  Mini-batch  |  Validation  |  Mini-batch  |  Validation  |  Base Learning  |\n"
        "|         |             |   (hh:mm:ss)   |   Accuracy   |   Accuracy   |     Loss     |     Loss     |      Rate       |\n"
    )
    rows = repeated("|  {e:>4} |  {s:>6} |  00:00:01 |  {a}% |  |  {t} |   |   0.0100 |").splitlines(keepends=True)
    rows[3] = rows[3].replace("|   |", "| 9.25 |")
    frame = read(
        ("Training on single GPU.\n" + edge + head + edge + "".join(rows) + edge + "Training finished.\n").encode()
    )
    assert frame.source.format == "matlab"
    assert points(frame, "loss") == HUNDREDS
    assert points(frame, "eval/loss") == [(400, 9.25)]
    assert set(frame["lr"].value) == {0.01}


def test_a_table_of_trainnet_with_blank_cells() -> None:
    head = "    Iteration    Epoch    TrainingLoss    ValidationLoss\n    _________    _____    ____________    ______________\n"
    rows = repeated("    {s:>9}    {e:>5}    {t:>12}    {v:>14}").splitlines()
    frame = read((head + "\n".join(row if i % 2 else row[:43] for i, row in enumerate(rows))).encode())
    assert points(frame, "loss") == HUNDREDS
    assert points(frame, "eval/loss") == SHIFTED[1::2]


def test_a_report_of_parlai() -> None:
    report = (
        "10:01:00 | time:10s total_exs:1000 total_steps:{s} epochs:0.10 time_left:900s\n"
        "    clip  exps  gnorm  loss  lr  token_acc  total_train_updates  ups\n"
        "       1   123  3.123 {t} 1e-06 {a} {s} 1.92\n\n10:01:01 | running eval: valid\n10:01:02 | valid:\n"
        "    accuracy  loss  ppl  total_train_updates\n        .123 {v} 9.1 {s}\n"
    )
    frame = read(repeated(report).encode())
    assert frame.source.format == "parlai"
    assert (points(frame, "loss"), points(frame, "eval/loss")) == (HUNDREDS, SHIFTED)
    assert set(frame["grad_norm"].value) == {3.123}


def test_a_box_of_spinning_up() -> None:
    box = (
        "---------------------------------------\n|             Epoch | {e} |\n|      AverageEpRet | {a} |\n|             LossV | {v} |\n"
        "---------------------------------------"
    )
    frame = read(repeated(box).encode())
    assert (points(frame, "reward"), points(frame, "loss/v")) == (ACCURACY, VALID)


@pytest.mark.parametrize(
    "text",
    [
        "|"
        + "=" * 40
        + "|\n|  Name  |  Size  |\n|        |        |\n|"
        + "=" * 40
        + "|\n"
        + "|   a    |    1   |\n" * 20,
        "At iteration 3 of the proof, mean rms=low, nothing was trained.\n" * 20,
        "10:00:00 | time:0s total_exs:0 total_steps:0 epochs:0.00\n",
    ],
)
def test_texts_like_these_are_no_logs(text: str) -> None:
    with pytest.raises(FormatError):
        read(text.encode())
