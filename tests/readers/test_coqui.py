"""Coqui Trainer logs, in the layouts of its old and new versions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainproof.frame import Frame, Source
from trainproof.readers.builder import FrameBuilder
from trainproof.readers.coqui import CoquiReader
from trainproof.readers.source import LogInput

B, U, E, GREEN, RED = "\x1b[1m", "\x1b[4m", "\x1b[0m", "\x1b[92m", "\x1b[91m"


def step(global_step: int, loss: str, *, lr: str = "5e-06", done: int = 0) -> str:
    """One step as newer versions print it."""
    return f"""
{B}   --> TIME: 2026-03-01 10:00:07 -- STEP: {done}/200 -- GLOBAL_STEP: {global_step}{E}
     | > loss_text_ce: 0.5  (0.75)
     | > loss: {loss}  (9.5)
     | > current_lr: {lr} 
     | > step_time: 0.25  (0.125)
     | > loader_time: 0.0625  (4.5)

"""  # noqa: W291  the logger's own blank


def evaluation(loss: str, delta: str = f"{E}(+0)") -> str:
    return f"""
{B} > EVALUATION {E}

{B}   --> STEP: 0{E}
     | > loss: 77.0  (77.0)

  {B}--> EVAL PERFORMANCE{E}
     | > avg_loader_time:{RED} 0.5 {E}(+0.1)
     | > avg_loss:{GREEN} {loss} {delta}

 > BEST MODEL : /data/run/best_model_1.pth
"""


def epoch(number: int) -> str:
    return f"""
{U}{B} > EPOCH: {number}/10{E}
 --> /data/run/a-run-March-01-2026_10+00AM-0000000

{B} > TRAINING (2026-03-01 10:00:02) {E}
"""


HEADER = """ > Training Environment:
 | > Backend: Torch
 | > Num. of GPUs: 1
 | > Torch seed: 1
 > Model has 1000 parameters
"""
RUN = HEADER + epoch(0) + step(0, "4.5") + step(50, "4.25", done=50) + evaluation("3.5") + epoch(1) + step(200, "nan")

GAN = """
 > Restoring Model...
 | > Layer missing in the checkpoint: disc.nets.0.bias
 | > 8 / 9 layers are restored.
 > Model restored from step 1000000

\x1b[1m > EVALUATION \x1b[0m
  \x1b[1m--> EVAL PERFORMANCE\x1b[0m
     | > avg_loss_1: 30.5 \x1b[0m(+0.00000)

\x1b[4m\x1b[1m > EPOCH: 0/1000\x1b[0m
\x1b[1m > TRAINING (2022-11-03 10:47:31) \x1b[0m
\x1b[1m   --> STEP: 24/36 -- GLOBAL_STEP: 1000025\x1b[0m
     | > loss_disc: 3.01874  (3.46002)
     | > loss_0: 3.01874  (3.46002)
     | > grad_norm_0: 0.00000  (0.00000)
     | > loss_gen: 1.5  (1.25)
     | > amp_scaler: 512.00000  (512.00000)
     | > loss_1: 26.5  (25.5)
     | > grad_norm_1: inf  (inf)
     | > current_lr_0: 0.00020 
     | > current_lr_1: 0.00010 
"""  # noqa: W291  the logger's own blanks


def frames(text: str) -> list[Frame]:
    out = FrameBuilder()
    CoquiReader().read(LogInput("trainer_0_log.txt", text.encode("utf-8", "surrogatepass")), out)
    return out.build(Source("trainer_0_log.txt", "coqui"))


def frame(text: str) -> Frame:
    (run,) = frames(text)
    return run


def points(run: Frame, name: str) -> list[tuple[int, str]]:
    return [(step, repr(value)) for step, value in zip(run[name].step.tolist(), run[name].value.tolist(), strict=True)]


def test_values_are_the_instantaneous_ones_at_the_global_step() -> None:
    run = frame(RUN)
    assert points(run, "loss") == [(0, "4.5"), (50, "4.25"), (200, "nan")]
    assert points(run, "lr")[0] == (0, "5e-06")
    assert points(run, "step_time")[0] == (0, "0.25")
    assert points(run, "data_time")[0] == (0, "0.0625")
    assert points(run, "loss/text_ce")[1] == (50, "0.5")
    assert points(run, "epoch") == [(0, "0.0"), (50, "0.0"), (200, "1.0")]


def test_lines_are_those_of_the_values() -> None:
    lines = RUN.split("\n")
    run = frame(RUN)
    assert [lines[n - 1].strip() for n in run["loss"].line.tolist()] == [
        "| > loss: 4.5  (9.5)",
        "| > loss: 4.25  (9.5)",
        "| > loss: nan  (9.5)",
    ]


def test_evaluations_stand_at_the_last_global_step_and_their_own_steps_are_no_training() -> None:
    run = frame(RUN)
    assert points(run, "eval/loss") == [(50, "3.5")]
    assert "77.0" not in [value for name in run for _, value in points(run, name)]


def test_the_header_is_neither_read_nor_dropped() -> None:
    run = frame(RUN)
    assert run.dropped_count == 0
    assert dict(run.facts) == {"epochs": 10, "steps_per_epoch": 200}


def test_old_logs_of_gans_begin_where_the_checkpoint_ended() -> None:
    run = frame(GAN)
    assert points(run, "loss/generator") == [(1000025, "1.5")]
    assert points(run, "loss/discriminator") == [(1000025, "3.01874")]
    assert points(run, "grad_norm_1") == [(1000025, "inf")]
    assert points(run, "loss_scale") == [(1000025, "512.0")]
    assert points(run, "lr") == [(1000025, "0.0002")]
    assert "loss" not in run
    assert [values for name in run if name.startswith("eval/") for values in points(run, name)] == [(1000000, "30.5")]


def test_epochs_that_print_no_step_do_not_stack_their_evaluations() -> None:
    run = frame(
        epoch(0) + step(10, "4.5", done=10) + evaluation("3") + epoch(1) + evaluation("2") + epoch(2) + evaluation("1")
    )
    assert points(run, "eval/loss") == [(10, "3.0"), (210, "2.0"), (410, "1.0")]


def test_an_appended_run_is_a_restart() -> None:
    first, second = (epoch(0) + "".join(step(50 * i, f"{scale - i}") for i in range(10)) for scale in (20, 30))
    assert [run["loss"].value[0] for run in frames(first + HEADER + second)] == [20.0, 30.0]


def test_a_value_that_is_no_number_costs_itself() -> None:
    run = frame(epoch(0) + step(0, "<tensor>") + step(50, "4.25"))
    assert points(run, "loss") == [(50, "4.25")]
    assert points(run, "lr") == [(0, "5e-06"), (50, "5e-06")]
    assert [d.why for d in run.dropped] == ["loss: '<tensor>' is no number"]


def test_a_step_of_400_digits_costs_its_block() -> None:
    run = frame(epoch(0) + step(0, "4.5").replace("GLOBAL_STEP: 0", "GLOBAL_STEP: 1" + 400 * "0") + step(50, "4.25"))
    assert points(run, "loss") == [(50, "4.25")]
    assert run.dropped_count == 1


@pytest.mark.parametrize("text", [RUN, GAN, RUN.replace("\n", "\r\n"), epoch(0) + step(0, "4.5"), evaluation("3.5")])
def test_sniffing_claims_values_below_their_heading(text: str) -> None:
    assert CoquiReader().sniff(text.encode()) > 0.8


@pytest.mark.parametrize(
    "text",
    [
        "",
        HEADER,
        "step 1 loss 2.5\nstep 2 loss 2.25\n",
        "     | > loss: 4.5  (9.5)\n",
        epoch(0),
        "--> STEP: 1\nloss: 3\n",
    ],
)
def test_sniffing_leaves_other_texts_alone(text: str) -> None:
    assert CoquiReader().sniff(text.encode()) == 0.0


def test_line_ends_and_encodings_of_windows_read_the_same() -> None:
    plain = points(frame(RUN), "loss")
    assert points(frame(RUN.replace("\n", "\r\n")), "loss") == plain
    out = FrameBuilder()
    CoquiReader().read(LogInput("log.txt", RUN.encode("utf-16")), out)
    (run,) = out.build(Source("log.txt", "coqui"))
    assert points(run, "loss") == plain


_BYTES = (RUN + GAN).encode()


@given(
    st.lists(st.tuples(st.integers(0, len(_BYTES) - 1), st.integers(0, 255)), max_size=8), st.integers(0, len(_BYTES))
)
def test_damaged_bytes_never_raise(changes: list[tuple[int, int]], end: int) -> None:
    data = bytearray(_BYTES)
    for at, byte in changes:
        data[at] = byte
    out, reader = FrameBuilder(), CoquiReader()
    reader.sniff(bytes(data[:end]))
    reader.read(LogInput("log.txt", bytes(data[:end])), out)
    out.build(Source("log.txt", "coqui"))


@pytest.mark.parametrize(
    "data", [b"", b"\0" * 5000, bytes(range(256)) * 20, b" --> " + b"x" * 10_000_000, b"| > " * 2_000_000]
)
def test_binary_and_endless_lines_hold_nothing(data: bytes) -> None:
    out = FrameBuilder()
    CoquiReader().read(LogInput("log.txt", data), out)
    assert [len(run) for run in out.build(Source("log.txt", "coqui"))] == [0]
