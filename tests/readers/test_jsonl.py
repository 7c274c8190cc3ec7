"""Generic JSONL: values, steps and lines come back as they were written, and a bad line costs itself."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.readers.logs import everything, points, read_bytes
from trainproof.errors import FormatError
from trainproof.readers import source
from trainproof.readers.jsonl import JSONLReader
from trainproof.readers.layout import Layout

NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**18), 10**18)
ODD = NUMBERS | st.sampled_from(
    [math.nan, math.inf, -math.inf, None, True, "1.5e-3", "nan", "text", [1, 2], {"deep": {"er": 2.5}}, 10**400, ""]
)
KEYS = st.sampled_from(["loss", "grad_norm", "lr", "memory_gb", "a/b", "größe", 'quo"te', "note"])


def lines_of(records: list[Any]) -> bytes:
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def rising(values: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"step": 10 * i, **record} for i, record in enumerate(values, 1)]


@given(st.lists(st.dictionaries(KEYS, NUMBERS, min_size=1), min_size=1, max_size=30).map(rising))
def test_round_trip(records: list[dict[str, Any]]) -> None:
    frame = read_bytes("jsonl", lines_of(records))
    expected: dict[str, list[tuple[int, float, int]]] = {}
    for line, record in enumerate(records, 1):
        for key in record.keys() - {"step"}:
            expected.setdefault(key, []).append((record["step"], float(record[key]), line))
    found = {frame.original_names[name]: found for name, found in everything(frame).items()}
    assert found == expected
    assert frame.dropped_count == 0


@settings(max_examples=200)
@given(
    records=st.lists(st.dictionaries(KEYS, ODD), min_size=1, max_size=60).map(rising),
    broken=st.lists(st.tuples(st.integers(0, 60), st.sampled_from([b"", b"[1,2]", b'{"step": 3', b"\xff\xfe", b"  "]))),
    piece=st.sampled_from([64, 256, 1024]),
)
def test_the_fast_and_the_tolerant_way_agree(
    records: list[dict[str, Any]], broken: list[tuple[int, bytes]], piece: int
) -> None:
    lines = lines_of(records).splitlines()
    for at, line in broken:
        lines.insert(at, line)
    data = b"\n".join(lines) + b"\n"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source, "CHUNK_BYTES", piece)
        fast = _outcome(data)
        patch.setattr(Layout, "decode_lines", lambda *_: None)
        assert fast == _outcome(data)


def _outcome(data: bytes) -> object:
    try:
        frame = read_bytes("jsonl", data)
    except FormatError as error:
        return str(error)
    return everything(frame), frame.dropped, frame.dropped_count, dict(frame.facts)


def test_the_fast_way_is_taken_across_key_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "CHUNK_BYTES", 512)
    taken: list[int] = []
    decode = Layout.decode_lines

    def counting(layout: Layout, data: bytes) -> Any:
        records = decode(layout, data)
        taken.append(len(records or ()))
        return records

    monkeypatch.setattr(Layout, "decode_lines", counting)
    records = [
        {"step": i, "eval_loss": 2.0, "name": "x"} if i % 5 == 0 else {"step": i, "loss": 1.0} for i in range(1, 501)
    ]
    frame = read_bytes("jsonl", lines_of(records))
    assert len(frame["loss"]) == 400
    assert len(frame["eval/loss"]) == 100
    assert sum(taken) > 450


def test_thousands_of_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "CHUNK_BYTES", 1024)
    records = [
        {"step": i, **{f"metric{j}": 1.0 for j in range(300 * (i % 3), 300 * (i % 3) + 900)}} for i in range(1, 10)
    ]
    frame = read_bytes("jsonl", lines_of(records))
    assert len(frame) == 1500
    assert len(frame["metric650"]) == 9


def test_absent_is_not_nan() -> None:
    frame = read_bytes(
        "jsonl", b'{"step": 1, "loss": NaN}\n{"step": 2}\n{"step": 3, "loss": null}\n{"step": 4, "loss": 1}\n'
    )
    assert points(frame, "loss") == [(1, "nan", 1), (4, 1.0, 4)]
    assert [dropped.line for dropped in frame.dropped] == [2, 3]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("Infinity", math.inf),
        ("-Infinity", -math.inf),
        ("-inf", -math.inf),
        ('"inf"', math.inf),
        ("1e999", math.inf),
        ("9" * 400, math.inf),
        ("9" * 6000, math.inf),
        ('" 2.5e-05 "', 2.5e-05),
        ('"1,234"', 1234.0),
    ],
)
def test_odd_numbers(text: str, value: float) -> None:
    frame = read_bytes("jsonl", f'{{"step": 1, "loss": 2}}\n{{"step": 2, "loss": {text}}}\n'.encode())
    assert points(frame, "loss") == [(1, 2.0, 1), (2, value, 2)]


@pytest.mark.parametrize("text", ["NaN", "nan", '"NaN"', '"-nan"'])
def test_nan_spellings(text: str) -> None:
    frame = read_bytes("jsonl", f'{{"step": 1, "loss": {text}}}\n'.encode())
    assert points(frame, "loss") == [(1, "nan", 1)]


GOOD = b'{"step": 1, "loss": 3}\n'
MORE = b'{"step": 3, "loss": 1}\n'


@pytest.mark.parametrize(
    "bad",
    [
        b"[1,2]",
        b"null",
        b"3",
        b'"text"',
        b"\xff\xfe\x00",
        b'{"step": 2, "loss": }',
        b"{" * 5000,
        b"[" * 100_000,
        b"step 2",
        b'{"step": 0.5, "loss": 2}',
        b'{"step": -7, "loss": 2}',
        b'{"step": NaN, "loss": 2}',
        b'{"step": "two", "loss": 2}',
        b'{"step": 1e30, "loss": 2}',
        b'{"step": 2, "loss": "high"}',
        b"{}",
    ],
)
def test_a_bad_line_costs_itself_and_is_told(bad: bytes) -> None:
    frame = read_bytes("jsonl", GOOD + bad + b"\n" + MORE)
    assert points(frame, "loss") == [(1, 3.0, 1), (3, 1.0, 3)]
    assert [dropped.line for dropped in frame.dropped] == [2]
    assert frame.dropped_count == 1


def test_a_line_that_is_cut_off_is_told_as_such() -> None:
    frame = read_bytes("jsonl", GOOD + b'{"step": 2, "lo')
    assert frame.records == 1
    assert frame.dropped[0] == (2, "cut off before the end of the line")


def test_blank_lines_carriage_returns_marks_and_a_missing_line_end() -> None:
    frame = read_bytes("jsonl", b"\xef\xbb\xbf" + GOOD.replace(b"\n", b"\r\n") + b"\r\n\n" + MORE.rstrip())
    assert points(frame, "loss") == [(1, 3.0, 1), (3, 1.0, 4)]
    assert frame.dropped_count == 0


def test_strings_that_no_encoding_can_write() -> None:
    frame = read_bytes("jsonl", b'{"step": 1, "l\\ud800ss": 1, "loss": 2, "note": "\\udfff \xe9"}\n')
    assert points(frame, "l?ss") == [(1, 1.0, 1)]
    assert points(frame, "loss") == [(1, 2.0, 1)]


def test_of_a_repeated_key_the_last_counts() -> None:
    assert points(read_bytes("jsonl", b'{"step": 1, "loss": 1, "loss": 2}\n' * 1), "loss") == [(1, 2.0, 1)]


def test_nested_objects_and_lists() -> None:
    frame = read_bytes("jsonl", b'{"step": 1, "train": {"loss": 2.0, "acc": [0.5]}, "hist": [1, 2]}\n')
    assert {frame.original_names[name] for name in frame} == {"train/loss"}


def test_records_stand_at_whole_epochs_where_there_is_no_step() -> None:
    records = [{"epoch": epoch, "train_loss": 1.0, "test_acc1": 50.0} for epoch in range(5)]
    frame = read_bytes("jsonl", lines_of(records))
    assert frame["loss"].step.tolist() == [0, 1, 2, 3, 4]
    assert frame["epoch"].value.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("epochs", [[0, 0, 0, 1, 1, 1], [0.2, 0.4, 0.6, 0.8, 1.0, 1.2]])
def test_records_are_counted_where_epochs_do_not_number_them(epochs: list[float]) -> None:
    frame = read_bytes("jsonl", lines_of([{"epoch": epoch, "loss": 1.0} for epoch in epochs]))
    assert frame["loss"].step.tolist() == [1, 2, 3, 4, 5, 6]


def test_a_record_without_a_step_stands_at_the_step_before_it() -> None:
    frame = read_bytes("jsonl", b'{"step": 7, "loss": 1}\n{"val_loss": 2}\n{"step": 9, "loss": 1}\n')
    assert points(frame, "eval/loss") == [(7, 2.0, 2)]


def test_a_header_declares_facts() -> None:
    frame = read_bytes("jsonl", b'{"max_steps": 900, "lr": 0.1, "vocab_size": 50257}\n' + GOOD + MORE)
    assert frame.facts["total_steps"] == 900
    assert frame.facts["vocab_size"] == 50257
    assert "lr" not in frame
    assert frame.dropped_count == 0


def test_llama_factory_repeats_its_plan_in_every_record() -> None:
    records = [
        {
            "current_steps": 5 * i,
            "total_steps": 50,
            "loss": 2.0 - i / 10,
            "eval_loss": None,
            "lr": 1e-4,
            "epoch": i / 10,
            "percentage": 10.0 * i,
            "elapsed_time": "0:00:05",
            "remaining_time": "2 days, 0:08:29",
        }
        for i in range(1, 11)
    ]
    frame = read_bytes("jsonl", lines_of(records))
    assert frame["loss"].step.tolist() == list(range(5, 55, 5))
    assert frame.total_steps == 50
    assert {"total_steps", "elapsed_time", "eval/loss"}.isdisjoint(frame)


def test_a_file_without_objects_is_an_error() -> None:
    with pytest.raises(FormatError, match="no line of it is a JSON object"):
        read_bytes("jsonl", b"hello\n[1,2]\n")


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    _outcome(data)
    _outcome(GOOD + data)


@pytest.mark.parametrize(
    "head",
    [
        GOOD + MORE,
        b'{"iteration": 19, "total_loss": 4.9}\n' * 3,
        b'{"epoch": 0, "train_loss": 1}\n{"epoch": 1, "train_loss": 1}\n',
        b'{"Loss/G/loss": {"num": 32, "mean": 3.4}}\n' * 2,
        b'{"step": 1, "reward": 0.5}\n[1,2]\n{"step": 2, "reward": 0.5}\n',
        b'{"episode": 3, "length": 7}\n' * 2,
    ],
)
def test_training_logs_are_claimed(head: bytes) -> None:
    assert JSONLReader().sniff(head) > 0.5


def test_one_record_is_claimed_less_surely() -> None:
    assert 0 < JSONLReader().sniff(GOOD) < 0.5
    assert 0 < JSONLReader().sniff(GOOD.rstrip()) < 0.5


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"\n\n",
        b"step,loss\n1,2\n",
        b'{"model_type": "gpt2", "vocab_size": 50257}',
        b'{\n  "lr": 0.1,\n  "steps": 5\n}\n',
        b'{"lr": 0.1, "batch_size": 8}',
        b'{"prompt": "a", "answer": "b"}\n' * 5,
        b'{"id": 1, "text": "a"}\n' * 5,
        b"epoch 1 loss 2\n" * 20 + GOOD,
        b"\x00\x01\x02" * 50,
        b"[1,2]\n[3,4]\n",
    ],
)
def test_other_files_are_not_claimed(head: bytes) -> None:
    assert JSONLReader().sniff(head) == 0
