"""Every console format, value by value, and what happens to it between the trainer and the file."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.readers.console.samples import FOLDER, RECORDS, SAMPLES, Points, Sample, broken, healthy, stylegan
from trainproof.errors import FormatError
from trainproof.frame import Frame, Source
from trainproof.judge import judge_run
from trainproof.readers.base import reader_for, recognise
from trainproof.readers.builder import FrameBuilder
from trainproof.readers.source import LogInput
from trainproof.verdict import Verdict

every_sample = pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)


NUMBER = re.compile(r"\d+(?:\.\d+)?(?:[eE][-+]\d+)?")


def read(data: bytes, format_name: str | None = None) -> Frame:
    """The one run in a log, recognised by its content."""
    log = LogInput("log", data)
    reader = recognise(log) if format_name is None else reader_for(format_name)
    out = FrameBuilder()
    reader.read(log, out)
    (frame,) = out.build(Source("log", reader.name))
    return frame


def points(frame: Frame, name: str) -> Points:
    return list(zip(frame[name].step.tolist(), frame[name].value.tolist(), strict=True))


@every_sample
def test_the_file_is_what_the_script_writes(sample: Sample) -> None:
    assert (FOLDER / f"{sample.name}.log").read_bytes().decode() == sample.text(healthy())


@every_sample
def test_each_value_is_found_at_its_step(sample: Sample) -> None:
    frame = read((FOLDER / f"{sample.name}.log").read_bytes())
    assert frame.source.format == sample.format
    assert {name: points(frame, name) for name in sample.metrics} == sample.expected(healthy())
    assert frame.dropped_count == 0
    assert frame.events == ()


@every_sample
def test_a_healthy_run_passes(sample: Sample) -> None:
    run = judge_run(read(sample.text(healthy()).encode()))
    assert (run.verdict, [finding.rule for finding in run.findings if finding.severity != "INFO"]) == (Verdict.PASS, [])


@every_sample
def test_its_twin_with_nan_fails(sample: Sample) -> None:
    run = judge_run(read(sample.text(broken()).encode()))
    assert run.verdict is Verdict.FAIL
    assert {"TP101", "TP503"} & {finding.rule for finding in run.findings}


def colours(text: str) -> str:
    return "\n".join(f"\x1b[1m{line}\x1b[0m" for line in text.split("\n"))


def source_before(text: str) -> str:
    """Three thousand lines of a program, with the words of failures in it, as speedruns log them."""
    program = [
        "class Net(nn.Module):",
        '    """Traceback (most recent call last): RuntimeError: CUDA out of memory, loss is nan, stopping"""',
        "    def forward(self, step=0, loss=None):",
        '        raise RuntimeError(f"step: {step} loss: {loss}")  # NaN, inf',
        '        print(f"epoch {epoch}: loss={loss:.4f}")',
    ]
    return "\n".join(program * 600) + "\n" + text


#: what happens to a text on its way, and what its lines begin with then
WAYS: dict[str, Callable[[str], bytes]] = {
    "windows line ends": lambda text: text.replace("\n", "\r\n").encode(),
    "a byte-order mark": lambda text: text.encode("utf-8-sig"),
    "UTF-16": lambda text: text.encode("utf-16"),
    "colours": lambda text: colours(text).encode(),
    "source code before it": lambda text: source_before(text).encode(),
    "no line end": lambda text: text.rstrip("\n").encode(),
}


@every_sample
@pytest.mark.parametrize("way", WAYS)
def test_a_log_says_the_same_whatever_happened_to_its_text(sample: Sample, way: str) -> None:
    frame = read(WAYS[way](sample.text(healthy())))
    assert frame.source.format == sample.format
    assert {name: points(frame, name) for name in sample.metrics} == sample.expected(healthy())
    assert frame.events == ()


@every_sample
def test_each_value_has_its_line(sample: Sample) -> None:
    text = sample.text(healthy())
    before, after = read(text.encode()), read(source_before(text).encode())
    lines = text.split("\n")
    for name in sample.metrics:
        assert (after[name].line - before[name].line == 3000).all()
        for value, line in zip(before[name].value.tolist(), before[name].line.tolist(), strict=True):
            assert value in map(float, NUMBER.findall(lines[line - 1]))


@every_sample
def test_many_records_say_what_few_say(sample: Sample) -> None:
    """Enough of them for the lines' shapes to be learned, and for several pieces."""
    few = healthy()
    many = [few[i % RECORDS]._replace(step=i + 1) for i in range(15 * RECORDS)]
    frame = read(sample.text(many).encode())
    assert {name: points(frame, name) for name in sample.metrics} == sample.expected(many)


def test_stylegan_logs_have_ticks_and_distances() -> None:
    frame = read("\n".join(stylegan(healthy())).encode())
    assert frame.source.format == "stylegan-log"
    assert points(frame, "step_time") == [(step, 153.8) for step in range(1, RECORDS + 1)]
    assert points(frame, "memory") == [(step, 6.34) for step in range(1, RECORDS + 1)]
    assert points(frame, "augment") == [(record.step, record.norm) for record in healthy()]
    assert points(frame, "eval/fid50k_full") == [
        (r.step, round(10 * r.loss, 4)) for r in healthy() if r.eval_loss is not None
    ]


def test_gans_are_known_by_the_parts_of_their_losses() -> None:
    run = healthy()
    cyclegan_log, sovits_log = (read((FOLDER / name).read_bytes()) for name in ("cyclegan.log", "sovits.log"))
    assert cyclegan_log.objective == sovits_log.objective == "adversarial"
    steps = [100 * r.batch + r.epoch * 1000 for r in run]  # counted on over the epochs
    assert points(cyclegan_log, "loss/G_A") == [(step, r.loss) for step, r in zip(steps, run, strict=True)]
    assert points(sovits_log, "loss/generator") == [(r.step, r.loss) for r in run]
    assert points(sovits_log, "loss/mel") == [(r.step, 30.5) for r in run]


def test_placeholders_of_megatron_are_no_values() -> None:
    frame = read((FOLDER / "megatron.log").read_bytes())
    assert "loss_scale" not in frame
    assert "grad_norm" not in read((FOLDER / "megatron-ranks.log").read_bytes())
    assert frame.facts["total_steps"] == RECORDS


def test_a_bar_does_not_evaluate_each_time_it_repeats_its_evaluation() -> None:
    assert len(read((FOLDER / "lightning-bars.log").read_bytes())["eval/loss"]) == 4


def test_a_validation_sum_is_kept_beside_its_steps() -> None:
    frame = read((FOLDER / "joeynmt-validations.log").read_bytes())
    assert points(frame, "eval/loss") == [(r.step, round(r.loss + 0.125, 5)) for r in healthy()]


def test_a_guess_says_what_it_took_for_the_step() -> None:
    assert "counted by iteration" in read((FOLDER / "generic.log").read_bytes()).guessed
    assert "the order of the lines (Epoch stands still)" in read((FOLDER / "generic-epochs.log").read_bytes()).guessed


def test_four_lines_whose_counter_goes_on_evenly_are_enough_for_a_guess() -> None:
    lines = (FOLDER / "generic.log").read_bytes().split(b"\n")
    assert recognise(LogInput("log", b"\n".join(lines[:4]))).name == "generic-text"
    with pytest.raises(FormatError):
        recognise(LogInput("log", b"\n".join(lines[:3])))


def test_eleven_lines_that_nothing_counts_are_not_enough_for_a_guess() -> None:
    lines = (FOLDER / "generic-epochs.log").read_bytes().split(b"\n")
    assert recognise(LogInput("log", b"\n".join(lines[:12]))).name == "generic-text"
    with pytest.raises(FormatError):
        recognise(LogInput("log", b"\n".join(lines[:11])))


def test_a_record_is_found_behind_megabytes_of_other_text() -> None:
    other = b"".join(b"%d: a sentence about the weather of that day, and of no loss\n" % i for i in range(60_000))
    frame = read(other + (FOLDER / "megatron.log").read_bytes())
    assert frame.source.format == "megatron"
    assert frame["loss"].line[0] == 60_002


@pytest.mark.parametrize(
    ("format_name", "line", "step", "metrics"),
    [
        (
            "progress-bar",
            ("[sft-1] [2025-12-17 04:54:49,774] [INFO] Epoch 1: : 7it [00:04,  4.36s/it, v_num=d3c7, reduced_train_loss=0.674, "
            "global_step=1.000]     2025-12-17 04:54:49,774 [INFO] - overrides.py:552 - Time elapsed=3"),
            7,
            {"loss": 0.674},
        ),
        (
            "progress-bar",
            "Epoch 0: :  47%|####      | 7/15 [06:19<07:13, reduced_train_loss=11.50, train_step_timing in s=49.50]",
            7,
            {"loss": 11.5},
        ),
        (
            "megatron",
            ("[Rank 0 | Local Rank 0] 2026-05-01 10:00:00 INFO [engine.py:48] =>  [stage1] iteration        3/     100 | consumed samples: 8 | "
            "elapsed time per iteration (ms): 7137.9 | loss: 1.924620E+00 | grad norm: 134.300 |"),
            3,
            {"loss": 1.92462, "grad_norm": 134.3, "step_time": 7137.9},
        ),
        (
            "megatron",
            ("[default0]: [2025-05-27 15:23:07] iteration        4/    24000 | throughput per GPU (TFLOP/s/GPU): 40.4 | learning rate: "
            "1.500000E-06 | lm loss: 1.192634E+01 | mtp_1 loss: 4.0E+00 | loss scale: 1.0 | grad norm: 5.960 | params norm: 238.330 |"),
            4,
            {"loss": 11.92634, "lr": 1.5e-6, "grad_norm": 5.96, "loss_scale": 1.0},
        ),
        (
            "deepspeed",
            "[^^] steps: 200 loss: 5.5508 lm loss: 5.5103 moe loss: 0.0405 iter time (s): 0.936 samples/sec: 136.706, bs=8 [^^]",
            200,
            {"loss": 5.5508, "throughput": 136.706},
        ),
        ("deepspeed", "step:     5 /   100 loss: 0.5000 iter time (s): 0.936 samples/sec: 1.7 eta: 0:05:01 ", 5, {"loss": 0.5}),
        ("keras-console", "    Epoch 3/20\n    458/458 [====] - 74s 161ms/step - loss: 9.3e-04 - val_loss: 0.3157", 3, {"eval/loss": 0.3157}),
        (
            "torchtitan",
            "[titan] 2025-10-30 20:34:38,183 - root - INFO - step: 10  loss:  8.1  grad_norm: nan  memory: 52.53GiB(66.33%)  tps: 1,023",
            10,
            {"loss": 8.1, "throughput": 1023.0},
        ),
    ],
)  # fmt: skip
def test_lines_of_other_versions(format_name: str, line: str, step: int, metrics: dict[str, float]) -> None:
    frame = read(f"{line}\n".encode())
    assert frame.source.format == format_name
    assert {name: points(frame, name) for name in metrics} == {name: [(step, value)] for name, value in metrics.items()}
