"""Event files, written field by field by the tests themselves."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.readers import crc
from tests.readers.eventfiles import VERSION, double, event, integer, message, record, scalar, single, tensor, varint
from trainproof.frame import Frame, Source
from trainproof.readers import tfrecord
from trainproof.readers.builder import FrameBuilder
from trainproof.readers.source import LogInput
from trainproof.readers.tensorboard import TensorBoardReader


def frame(*records: bytes) -> Frame:
    """The run of one file that holds these records."""
    return frame_of_files(b"".join(records))


def frame_of_files(*files: bytes) -> Frame:
    out = FrameBuilder()
    TensorBoardReader().read_run([LogInput("events.out.tfevents.1", data) for data in files], out)
    (run,) = out.build(Source("events.out.tfevents.1", "tensorboard"))
    return run


def points(run: Frame, name: str) -> list[tuple[int, float]]:
    return list(zip(run[name].step.tolist(), run[name].value.tolist(), strict=True))


def column(data: bytes) -> tfrecord.Bytes:
    return np.frombuffer(data, np.uint8)[:, None]


def test_the_crc_of_the_standard_is_computed() -> None:
    assert tfrecord.crc32c(column(b"123456789")).tolist() == [0xE3069283]
    assert tfrecord.crc32c(column(bytes(32))).tolist() == [0x8A9136AA]  # RFC 3720, B.4


@given(st.integers(0, 1100), st.sampled_from([1, 63, 64, 65]), st.integers(0, 2**32))
def test_the_crc_of_many_texts_is_that_of_each(size: int, n: int, seed: int) -> None:
    columns = np.random.default_rng(seed).integers(0, 256, (size, n), dtype=np.uint8)
    crcs = tfrecord.crc32c(columns)
    for i in (0, n - 1):
        assert int(crcs[i]) == crc.crc32c(columns[:, i].tobytes())


def test_simple_values_keep_tag_step_value_and_record_number() -> None:
    run = frame(VERSION, *(event(step, scalar("train/loss", 2.5 - step / 8)) for step in (0, 1, 300)))
    assert points(run, "loss") == [(0, 2.5), (1, 2.375), (300, -35.0)]
    assert run["loss"].line.tolist() == [2, 3, 4]
    assert run.original_names["loss"] == "train/loss"
    assert run.dropped_count == 0


@pytest.mark.parametrize(
    ("fields", "value"),
    [
        ((integer(1, 1), message(2), message(4, struct.pack("<f", 0.75))), 0.75),
        ((integer(1, 1), message(2), single(5, 0.75)), 0.75),
        ((integer(1, 1), message(5, struct.pack("<f", -2.0))), -2.0),
        ((integer(1, 2), message(2), message(4, struct.pack("<d", 1e300))), 1e300),
        ((integer(1, 2), double(6, 0.1)), 0.1),
        ((integer(1, 19), message(4, struct.pack("<e", 1.5))), 1.5),
        ((integer(1, 19), integer(13, 0x3E00)), 1.5),
        ((integer(1, 14), message(4, b"\x80\xbf")), -1.0),
        ((integer(1, 14), integer(13, 0xBF80)), -1.0),
        ((integer(1, 3), message(4, struct.pack("<i", -7))), -7.0),
        ((integer(1, 3), integer(7, -7)), -7.0),
        ((integer(1, 9), message(10, varint(12345678901))), 12345678901.0),
        ((integer(1, 1), message(2, message(2, integer(1, 1))), message(4, struct.pack("<f", 3.0))), 3.0),
    ],
)
def test_a_tensor_of_one_number_is_a_scalar(fields: tuple[bytes, ...], value: float) -> None:
    assert points(frame(VERSION, event(5, tensor("accuracy", *fields))), "accuracy") == [(5, value)]


@pytest.mark.parametrize(
    "fields",
    [
        (integer(1, 1), message(2, message(2, integer(1, 3))), message(4, bytes(12))),  # three numbers
        (integer(1, 1), message(2, message(2, integer(1, 3))), single(5, 1.0)),  # one number that stands for three
        (integer(1, 1), message(2, message(2)), single(5, 1.0)),  # a dimension of 0
        (integer(1, 7), message(8, b"text")),
        (integer(1, 1), message(2)),
    ],
)
def test_other_tensors_are_no_scalars(fields: tuple[bytes, ...]) -> None:
    run = frame(VERSION, event(5, tensor("pr_curve", *fields), scalar("loss", 1.0)))
    assert points(run, "loss") == [(5, 1.0)]
    assert "pr_curve" not in run
    assert run.dropped_count == 0


def test_images_histograms_and_graphs_are_passed_over() -> None:
    image = message(1, message(1, b"input"), message(4, integer(1, 8), message(4, b"\x89PNG" + bytes(9000))))
    histogram = message(1, message(1, b"weights"), message(5, double(1, -1.0), message(7, bytes(80))))
    graph = record(double(1, 1000.0) + message(4, bytes(6000)))
    run = frame(VERSION, graph, *(event(i, image, histogram, scalar("loss", i)) for i in range(3)), event(3, image))
    assert points(run, "loss") == [(0, 0.0), (1, 1.0), (2, 2.0)]
    assert set(run) == {"loss", "time"}
    assert run.dropped_count == 0


def test_non_finite_values_are_kept() -> None:
    run = frame(
        VERSION, event(1, scalar("loss", math.nan)), event(2, scalar("loss", math.inf)), event(3, scalar("loss", 1))
    )
    assert repr(run["loss"].value.tolist()) == "[nan, inf, 1.0]"


def test_several_values_of_one_event_share_its_step() -> None:
    run = frame(VERSION, *(event(i, scalar("loss", i), scalar("grad_norm", 2 * i)) for i in range(1, 4)))
    assert points(run, "loss") == [(1, 1.0), (2, 2.0), (3, 3.0)]
    assert points(run, "grad_norm") == [(1, 2.0), (2, 4.0), (3, 6.0)]


def test_wall_time_is_told_in_seconds_since_the_first_event_along_the_longest_tag() -> None:
    events = [event(i, scalar("loss", 1.0), wall=5000.0 + 2 * i) for i in range(4)]
    run = frame(VERSION, *events[:2], event(1, scalar("eval/loss", 2.0), wall=5002.5), *events[2:])
    assert points(run, "time") == [(0, 0.0), (1, 2.0), (2, 4.0), (3, 6.0)]


def test_a_tag_called_time_stays_the_metric_of_that_name() -> None:
    run = frame(VERSION, event(1, scalar("time", 0.25)), event(2, scalar("time", 0.5)))
    assert points(run, "time") == [(1, 0.25), (2, 0.5)]


def test_several_files_are_one_run_whose_record_numbers_go_on() -> None:
    first = b"".join([VERSION, event(1, scalar("loss", 3.0)), event(2, scalar("loss", 2.0))])
    second = b"".join([VERSION, event(3, scalar("loss", 1.0), wall=1060.0)])
    run = frame_of_files(first, second)
    assert points(run, "loss") == [(1, 3.0), (2, 2.0), (3, 1.0)]
    assert run["loss"].line.tolist() == [2, 3, 5]
    assert points(run, "time") == [(1, 0.0), (2, 0.0), (3, 60.0)]


def test_a_reader_that_is_used_again_begins_anew() -> None:
    reader, data = TensorBoardReader(), VERSION + event(1, scalar("loss", 3.0))
    for _ in range(2):
        out = FrameBuilder()
        reader.read(LogInput("events", data), out)
        (run,) = out.build(Source("events", "tensorboard"))
        assert run["loss"].line.tolist() == [2]


@pytest.mark.parametrize("cut", range(1, 50))
def test_a_truncated_tail_costs_the_last_record_only(cut: int) -> None:
    data = VERSION + b"".join(event(i, scalar("loss", i)) for i in range(1, 6))
    run = frame(data[:-cut])
    kept = 4 if cut <= len(event(5, scalar("loss", 5))) else 3
    assert [step for step, _ in points(run, "loss")] == list(range(1, kept + 1))
    whole = cut == len(event(5, scalar("loss", 5)))
    assert [tuple(d) for d in run.dropped] == ([] if whole else [(kept + 2, "truncated tail")])


def test_a_corrupt_value_costs_its_own_record() -> None:
    data = bytearray(VERSION + b"".join(event(i, scalar("loss", i)) for i in range(1, 6)))
    data[len(VERSION) + 2 * len(event(1, scalar("loss", 1))) - 6] ^= 0x40  # inside the second value
    run = frame(bytes(data))
    assert [step for step, _ in points(run, "loss")] == [1, 3, 4, 5]
    assert [tuple(d) for d in run.dropped] == [(3, "corrupt event (wrong checksum)")]


@pytest.mark.parametrize("length", [b"\xff" * 8, b"\0" * 8, b"\0\0\0\x80" + bytes(4), b"\x01" + bytes(7)])
def test_reading_goes_on_behind_a_corrupt_length(length: bytes) -> None:
    data = bytearray(VERSION + b"".join(event(i, scalar("loss", i)) for i in range(1, 6)))
    at = len(VERSION) + len(event(1, scalar("loss", 1)))
    data[at : at + 8] = length
    run = frame(bytes(data))
    assert [step for step, _ in points(run, "loss")] == [1, 3, 4, 5]
    assert [d.why for d in run.dropped] == ["corrupt record"]


def test_a_writer_that_was_killed_and_began_again_in_the_same_file_loses_one_record() -> None:
    data = VERSION + event(1, scalar("loss", 1.0)) + event(2, scalar("loss", 2.0))[:-20]
    run = frame(data + VERSION + b"".join(event(i, scalar("loss", i)) for i in range(3, 9)))
    assert [step for step, _ in points(run, "loss")] == [1, 3, 4, 5, 6, 7, 8]
    assert run.dropped_count == 2  # the record that was cut, and the place where the next one was looked for


def test_a_length_of_two_gigabytes_with_a_right_checksum_is_not_believed() -> None:
    length = struct.pack("<Q", 2**31)
    header = length + struct.pack("<I", crc.masked_crc32c(length))
    run = frame(VERSION + event(1, scalar("loss", 1.0)) + header + event(2, scalar("loss", 2.0)))
    assert [step for step, _ in points(run, "loss")] == [1, 2]
    assert run.dropped_count == 1


def test_zeros_behind_the_last_record_are_told() -> None:
    run = frame(VERSION + event(1, scalar("loss", 1.0)) + bytes(4096))
    assert [tuple(d) for d in run.dropped] == [(3, "corrupt record")]


def test_a_step_out_of_bounds_costs_its_record() -> None:
    run = frame(
        VERSION, event(-5, scalar("loss", 1.0)), event(2**63, scalar("loss", 1.0)), event(-1, scalar("loss", 4.0))
    )
    assert points(run, "loss") == [(-1, 4.0)]
    assert [d.why for d in run.dropped] == ["step out of bounds"] * 2


def test_the_configuration_of_the_hparams_plugin_becomes_facts() -> None:
    def entry(name: str, value: bytes) -> bytes:
        return message(1, message(1, name.encode()), message(2, value))

    hparams = [entry("max_steps", double(2, 400.0)), entry("lr_scheduler_type", message(3, b"cosine")), entry("x", b"")]
    content = message(2, integer(1, 0), message(3, *hparams))
    metadata = message(9, message(1, message(1, b"hparams"), content))
    run = frame(VERSION, event(0, message(1, message(1, b"_hparams_/session_start_info"), metadata)))
    assert dict(run.facts) == {"total_steps": 400, "schedule": "cosine"}


def test_many_tags_and_widths_of_steps_come_out_in_the_order_of_the_log() -> None:
    steps = [0, 1, 127, 128, 16383, 16384, 2**40]
    events = [event(step, scalar(f"m{tag:03}", tag + step)) for step in steps for tag in range(60)]
    run = frame(VERSION, *events)
    for tag in (0, 59):
        assert points(run, f"m{tag:03}") == [(step, float(np.float32(tag + step))) for step in steps]
        assert run[f"m{tag:03}"].line.tolist() == [2 + tag + 60 * i for i in range(len(steps))]


def test_events_that_are_hardly_ever_alike_are_all_read() -> None:
    run = frame(VERSION, *(event(1, scalar(f"t{i:04}", i)) for i in range(1500)))
    assert all(points(run, f"t{i:04}") == [(1, float(i))] for i in range(1500))


def test_sniffing_wants_a_sound_header_and_an_event() -> None:
    reader = TensorBoardReader()
    assert reader.sniff(VERSION) == 1.0
    assert reader.sniff(b"") == 0.0
    assert reader.sniff(bytes(100)) == 0.0
    assert reader.sniff(VERSION[:8] + b"\0" + VERSION[9:]) == 0.0
    assert reader.sniff(record(message(1, message(1, b"a data set's example, no event")))) == 0.0


def test_a_file_of_the_version_only_holds_nothing() -> None:
    run = frame(VERSION)
    assert len(run) == 0
    assert run.dropped_count == 0


_SAMPLE = VERSION + b"".join(
    event(i, scalar("loss", i), tensor("lr", integer(1, 1), message(2), single(5, 0.5))) for i in range(8)
)


@given(
    st.lists(st.tuples(st.integers(0, len(_SAMPLE) - 1), st.integers(0, 255)), max_size=6), st.integers(0, len(_SAMPLE))
)
def test_damaged_bytes_never_raise_and_never_invent(changes: list[tuple[int, int]], end: int) -> None:
    data = bytearray(_SAMPLE)
    for at, byte in changes:
        data[at] = byte
    run = frame(bytes(data[:end]))
    if "loss" in run:
        assert set(points(run, "loss")) <= {(i, float(i)) for i in range(8)}


@given(st.binary(max_size=400), st.integers(0, 3))
def test_any_data_inside_sound_records_is_survived(data: bytes, field: int) -> None:
    wrapped = [
        data,
        message(5, data),
        message(5, message(1, data)),
        message(5, message(1, message(1, b"t"), message(8, data))),
    ]
    frame(VERSION, record(double(1, 1.0) + wrapped[field]), event(1, scalar("loss", 1.0)))


@pytest.mark.frameworks
def test_tensorboard_reads_the_same(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    float_field = message(4, struct.pack("<f", 0.3))
    data = VERSION + b"".join(
        event(
            i, scalar("train/loss", 3 / (i + 1)), tensor("acc", integer(1, 1), message(2), float_field), wall=1000.0 + i
        )
        for i in range(300)
    )
    (tmp_path / "events.out.tfevents.1000.host").write_bytes(data)
    theirs = accumulator.EventAccumulator(str(tmp_path), size_guidance={"scalars": 0, "tensors": 0})
    theirs.Reload()
    run = frame(data)
    assert points(run, "loss") == [(e.step, e.value) for e in theirs.Scalars("train/loss")]
    assert points(run, "time") == [(e.step, e.wall_time - 1000.0) for e in theirs.Scalars("train/loss")]
    floats = [(e.step, float(np.frombuffer(e.tensor_proto.tensor_content, "<f4")[0])) for e in theirs.Tensors("acc")]
    assert points(run, "acc") == floats
