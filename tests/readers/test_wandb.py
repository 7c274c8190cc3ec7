"""W&B offline files, from the wire format: histories, facts, damage; summaries; and the folder of a run."""

from __future__ import annotations

import json
import math
import random
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.readers.eventfiles import double, integer, message
from tests.readers.logs import points, pour, read_bytes
from tests.readers.stores import BLOCK, HEADER, exit_code, history, item, run, store
from trainproof.errors import FormatError
from trainproof.frame import Frame, Source
from trainproof.names import EPOCH_NAMES, STEP_NAMES, plain
from trainproof.readers.base import sniff
from trainproof.readers.discover import Log, read_logs
from trainproof.readers.values import as_float
from trainproof.readers.wandb_store import Damage, records


def frame(*written: bytes) -> Frame:
    return read_bytes("wandb", store(*written))


def losses(count: int = 5) -> list[bytes]:
    return [history(i, loss=count - i) for i in range(count)]


class Chopped:
    """Bytes that come a few at a time at most."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def read(self, size: int, /) -> bytes:
        part, self.data = self.data[:size], self.data[size:]
        return part


def taken(data: bytes) -> list[bytes | Damage]:
    return list(records(Chopped(data)))


def test_a_data_store_is_known_by_its_header() -> None:
    reader = sniff(store(*losses()))
    assert reader is not None
    assert reader.name == "wandb"


@given(
    st.lists(
        st.one_of(st.binary(max_size=40), st.sampled_from([BLOCK - 21, BLOCK - 14, BLOCK, 70_000]).map(bytes)),
        max_size=8,
    )
)
def test_records_come_back_whole_however_the_blocks_cut_them(written: list[bytes]) -> None:
    assert taken(store(*written)) == written


@given(st.integers(0, 200_000))
def test_a_file_that_was_cut_keeps_every_record_before_the_cut(size: int) -> None:
    written = [bytes([i]) * 5000 for i in range(40)]
    whole = store(*written)
    found = taken(whole[: max(len(HEADER), size)])
    kept = [record for record in found if isinstance(record, bytes)]
    assert kept == written[: len(kept)]
    assert len(kept) >= (min(size, len(whole)) - 7 * 50) // 5007 - 1
    assert [record for record in found if isinstance(record, Damage)] in ([], [Damage("truncated tail")])


def test_a_broken_chunk_costs_its_block() -> None:
    written = [bytes([i]) * 1000 for i in range(100)]
    data = bytearray(store(*written))
    data[BLOCK + 5000] ^= 1
    found = taken(bytes(data))
    assert found.count(Damage("corrupt block")) == 1
    kept = [record for record in found if isinstance(record, bytes)]
    assert kept[:32] == written[:32]
    assert kept[-1] == written[-1]
    assert 65 <= len(kept) <= 75


def test_room_that_was_reserved_is_no_damage() -> None:
    assert taken(store(b"a", b"b") + bytes(500)) == [b"a", b"b"]


def test_the_values_of_a_history() -> None:
    log = frame(
        history(0, train__loss=3.0, lr=1e-3, _runtime=0.5, _timestamp=1.7e9),
        history(1, train__loss=math.nan, lr=1e-3, _runtime=1.5, _timestamp=1.7e9),
        history(2, train__loss=math.inf, lr="-Infinity", _runtime=2.5, _timestamp=1.7e9),
    )
    assert points(log, "loss") == [(0, 3.0, 1), (1, "nan", 2), (2, math.inf, 3)]
    assert points(log, "lr") == [(0, 1e-3, 1), (1, 1e-3, 2), (2, -math.inf, 3)]
    assert points(log, "time") == [(0, 0.5, 1), (1, 1.5, 2), (2, 2.5, 3)]
    assert set(log) == {"loss", "lr", "time"}


def test_what_is_no_number_is_no_metric() -> None:
    image = {"_type": "image-file", "width": 64, "path": "media/images/x.png"}
    text = history(0, loss=1.0, note="fast", ok=True, none=None, image=image, list=[1, 2], nested={"a": 2.0})
    log = frame(text, history(1, loss=0.5, nested={"a": 3.0}))
    assert set(log) == {"loss", "nested/a"}
    assert points(log, "nested/a") == [(0, 2.0, 1), (1, 3.0, 2)]


def test_nested_keys_are_joined() -> None:
    assert points(frame(history(0, **{"val.acc": 0.5})), "eval/acc") == [(0, 0.5, 1)]


def test_values_with_fields_of_their_own_types() -> None:
    typed = message(
        2,
        message(1, message(2, b"loss"), double(6, 2.5)),
        message(1, message(2, b"count"), integer(5, 5)),  # zigzag: -3
        message(1, message(2, b"ok"), integer(4, 1)),
        message(1, message(2, b"note"), message(7, b"hello")),
        message(2, integer(1, 7)),
    )
    log = frame(typed)
    assert points(log, "loss") == [(7, 2.5, 1)]
    assert points(log, "count") == [(7, -3.0, 1)]
    assert set(log) == {"loss", "count"}


@given(
    st.dictionaries(
        st.text(min_size=1, max_size=140),
        st.floats() | st.integers(-(2**70), 2**70) | st.text(max_size=140),
        max_size=6,
    )
)
def test_items_of_any_size_have_the_same_values(values: dict[str, float | int | str]) -> None:
    """Short items are read without a walk over their fields, long ones with it."""
    known = (*STEP_NAMES, *EPOCH_NAMES, "loss")
    metrics = {key: value for key, value in values.items() if plain(key) not in known and not key.startswith("_")}
    items = [
        message(1, message(1, key.encode()), message(16, json.dumps(value).encode())) for key, value in metrics.items()
    ]
    log = frame(message(2, *items), history(1, loss=1.0))
    read = {log.original_names[name]: log[name].value.tolist() for name in log if name != "loss"}
    expected = {key: [number] for key, value in metrics.items() if (number := as_float(value)) is not None}
    assert repr(sorted(read.items())) == repr(sorted(expected.items()))


def test_a_step_that_the_trainer_counts_wins_over_the_number_of_calls() -> None:
    """Each call of wandb.log is a step of W&B's: here the evaluations are calls of their own."""
    log = frame(
        history(0, **{"train/global_step": 10, "loss": 3.0}),
        history(1, **{"train/global_step": 10, "eval/loss": 2.5}),
        history(2, **{"train/global_step": 20, "loss": 2.0}),
    )
    assert points(log, "loss") == [(10, 3.0, 1), (20, 2.0, 3)]
    assert points(log, "eval/loss") == [(10, 2.5, 2)]
    assert set(log) == {"loss", "eval/loss"}


def test_the_configuration_is_facts_and_its_last_word_counts() -> None:
    config = run(lr=0.1, max_steps=300, max_grad_norm=None, model={"vocab_size": 9}, _wandb={"seed": 3})
    update = message(5, item("lr", 0.2, nested=False))
    log = frame(config, *losses(), update, exit_code(0))
    assert dict(log.facts) == {"learning_rate": 0.2, "total_steps": 300, "status": "FINISHED"}
    assert log.facts.where("total_steps") == "the run's config"
    assert log.ended


def test_a_run_that_crashed_or_still_runs() -> None:
    crashed, running = frame(*losses(), exit_code(137)), frame(*losses())
    assert (crashed.facts["status"], crashed.ended) == ("FAILED", False)
    assert ("status" in running.facts, running.ended) == (False, False)


def test_a_truncated_tail_survives() -> None:
    data = store(*losses(20))
    log = read_bytes("wandb", data[:-10])
    assert log["loss"].value.tolist() == list(range(20, 1, -1))
    assert [line.why for line in log.dropped] == ["truncated tail"]


def test_a_record_that_is_no_message_is_dropped() -> None:
    log = frame(*losses(3), b"\xff\xff", history(3, loss=0))
    assert log["loss"].value.tolist() == [3, 2, 1, 0]
    assert [line.line for line in log.dropped] == [4]


def test_many_records_come_in_batches() -> None:
    log = frame(*[history(i, loss=float(i), **({"acc": 1.0} if i % 3 == 0 else {})) for i in range(10_000)])
    assert log["loss"].value.tolist() == list(range(10_000))
    assert log["acc"].step.tolist() == list(range(0, 10_000, 3))


def test_a_run_without_history_is_refused() -> None:
    for written in ([run(lr=1)], [run(lr=1), history(0, note="text", _runtime=3.0)]):
        with pytest.raises(FormatError, match="a W&B run without history"):
            pour("wandb", store(*written))


def test_damaged_messages_in_sound_chunks_cost_themselves() -> None:
    random.seed(3)
    sound, damaged = [run(lr=0.1), *losses(), exit_code(1)], []
    for _ in range(400):
        record = bytearray(random.choice(sound))
        record[random.randrange(len(record))] = random.randrange(256)
        damaged.append(bytes(record))
    runs = pour("wandb", store(*losses(), *damaged)).build(Source("x", "wandb"))
    assert sum(len(run["loss"]) for run in runs) >= 5
    assert 50 < runs[0].dropped_count < 350


# Summaries


@pytest.mark.parametrize(
    "summary",
    [
        {"_wandb": {"runtime": 0}},
        {"_wandb": {"runtime": 0}, "_runtime": 0},
        {"train/loss": 1.5, "_timestamp": 1.7e9, "_runtime": 577.7, "_step": 39},
    ],
)
@pytest.mark.parametrize("indent", [None, 4])
def test_a_summary_is_no_curve(tmp_path: Path, summary: dict[str, object], indent: int | None) -> None:
    path = tmp_path / "anything.json"
    path.write_text(json.dumps(summary, indent=indent))
    (log,) = read_logs([str(path)])
    assert str(log.problem) == (
        f"{path}: a W&B summary, the last values of a run and no curve; expected its run-*.wandb or an exported CSV"
    )


def test_a_history_in_jsonl_is_no_summary() -> None:
    lines = b"".join(json.dumps({"loss": 1 / i, "_step": i, "_runtime": i}).encode() + b"\n" for i in range(1, 9))
    reader = sniff(lines)
    assert reader is not None
    assert reader.name == "jsonl"


# Folders

TEXT = "".join(json.dumps({"step": i, "loss": 1 / (i + 1)}) + "\n" for i in range(20))


def make(folder: Path, files: dict[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def read(folder: Path) -> list[str]:
    logs = list(read_logs([str(folder)]))
    assert all(log.problem is None for log in logs)
    return [str(Path(log.path).relative_to(folder)) for log in logs]


def test_a_run_is_judged_once(tmp_path: Path) -> None:
    folder = make(
        tmp_path,
        {
            "run-1/run-a.wandb": store(*losses(20)),
            "run-1/files/output.log": TEXT,
            "run-1/files/wandb-summary.json": '{"_wandb": {"runtime": 3}}',
            "run-1/files/media/log.jsonl": TEXT,
            "run-1/logs/debug.log": TEXT,
            "run-2/run-b.wandb": store(run(lr=1)),
            "run-2/files/output.log": TEXT,
            "run-2/files/wandb-summary.json": '{"_wandb": {"runtime": 3}}',
            "run-3/files/output.log": TEXT,
            "run-3/files/wandb-metadata.json": "{}",
            "run-4/wandb-history.jsonl": TEXT,
            "run-4/output.log": TEXT,
            "run-5/files/wandb-summary.json": '{"_wandb": {"runtime": 3}}',
        },
    )
    (folder / "latest-run").symlink_to(folder / "run-1")
    assert read(folder) == [
        "run-1/run-a.wandb",
        "run-2/files/output.log",
        "run-3/files/output.log",
        "run-4/wandb-history.jsonl",
    ]
    assert read(folder / "run-1") == ["run-a.wandb"]
    assert read(folder / "run-3" / "files") == ["output.log"]


def test_the_store_of_a_run_without_history_or_text_says_so(tmp_path: Path) -> None:
    make(tmp_path, {"run-1/run-a.wandb": store(run(lr=1)), "run-1/files/requirements.txt": "numpy\n"})
    (log,) = read_logs([str(tmp_path)])
    assert isinstance(log, Log)
    assert isinstance(log.problem, FormatError)
    assert "without history" in str(log.problem)


def test_a_store_that_cannot_be_opened_is_passed_over(tmp_path: Path) -> None:
    make(tmp_path, {"run-1/files/output.log": TEXT})
    (tmp_path / "run-1" / "run-a.wandb").symlink_to(tmp_path / "nowhere")
    assert read(tmp_path) == ["run-1/files/output.log"]


def test_the_crc_covers_the_kind() -> None:
    """A first chunk that is relabelled as a whole record is damage, not a record."""
    data = bytearray(store(b"x" * 40_000))
    assert struct.unpack_from("<IHB", data, 7)[2] == 2
    data[13] = 1
    assert Damage("corrupt block") in taken(bytes(data))
