"""trainer_state.json: values, steps and the line of every key, in every layout and however damaged."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.readers.logs import everything, points, pour, read_bytes
from trainproof.errors import FormatError
from trainproof.readers import hf
from trainproof.readers.hf import HFReader
from trainproof.readers.key_lines import key_lines
from trainproof.readers.layout import Layout

NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**15), 10**15)
ODD = NUMBERS | st.sampled_from(
    [math.nan, math.inf, None, "5.90e-05", "14%/63%", [1, 2], {"in": {"side": 1.5}}, True, {}]
)
TRAIN = ["loss", "grad_norm", "learning_rate", "epoch", "rewards/chosen", "größe", 'quo"te']
EVAL = ["eval_loss", "eval_runtime", "eval_rouge", "eval_samples_per_second", "eval_steps_per_second", "epoch"]
INDENTS = st.sampled_from([2, 4, None])


def history(values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[dict[str, Any]]]:
    """Records of the train or the eval kind, at rising steps."""
    record = st.dictionaries(st.sampled_from(TRAIN), values, min_size=1) | st.dictionaries(
        st.sampled_from(EVAL), values, min_size=1
    )
    return st.lists(record, min_size=1, max_size=30).map(
        lambda records: [{**r, "step": 5 * i} for i, r in enumerate(records, 1)]
    )


def state(records: list[Any], indent: int | None = 2, fields: dict[str, Any] | None = None) -> bytes:
    """A trainer_state.json as the Trainer writes it: keys sorted."""
    document = {
        "best_metric": None,
        "global_step": 9,
        "log_history": records,
        "max_steps": 300,
        "trial_name": None,
        **(fields or {}),
    }
    return (json.dumps(document, indent=indent, sort_keys=True) + "\n").encode()


def line_of_key(data: bytes, record: int, key: str) -> int:
    """The line on which a key of the pretty-printed document stands, found by counting."""
    lines = data.decode().splitlines()
    starts = [i for i, line in enumerate(lines) if line == "    {"]
    spelled = f"      {json.dumps(key)}:"
    return 1 + next(i for i in range(starts[record], len(lines)) if lines[i].startswith(spelled))


@given(records=history(NUMBERS), piece=st.sampled_from([64, 512, 1 << 20]))
def test_round_trip_with_the_line_of_every_key(records: list[dict[str, Any]], piece: int) -> None:
    data = state(records)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hf, "CHUNK_BYTES", piece)
        frame = read_bytes("hf", data)
    expected: dict[str, list[tuple[int, float, int]]] = {}
    for i, record in enumerate(records):
        for key in record.keys() - {"step"}:
            expected.setdefault(key, []).append((record["step"], float(record[key]), line_of_key(data, i, key)))
    assert {frame.original_names[name]: found for name, found in everything(frame).items()} == expected
    assert frame.facts["total_steps"] == 300


@settings(max_examples=200)
@given(
    records=history(ODD),
    indent=INDENTS,
    piece=st.sampled_from([1, 64, 300]),
    ordered=st.booleans(),
    cut=st.integers(0, 5000),
)
def test_the_fast_and_the_tolerant_way_agree(
    records: list[dict[str, Any]], indent: int | None, piece: int, ordered: bool, cut: int
) -> None:
    document = {"epoch": 1.0, "log_history": records, "max_steps": 300}
    data = json.dumps(document, indent=indent, sort_keys=ordered).encode()
    for text in (data, data[: max(cut, 40)]):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(hf, "CHUNK_BYTES", piece)
            fast = _outcome(text)
            patch.setattr(Layout, "decode_list", lambda *_: None)
            assert fast == _outcome(text)


def _outcome(data: bytes) -> object:
    try:
        frame = read_bytes("hf", data)
    except FormatError as error:
        return str(error)
    return everything(frame), frame.dropped, frame.dropped_count, dict(frame.facts), frame.masked, frame.ended


def test_the_fast_way_is_taken_across_key_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hf, "CHUNK_BYTES", 1024)
    taken: list[int] = []
    lines = key_lines

    def counting(*arguments: Any) -> Any:
        found = lines(*arguments)
        taken.append(arguments[3] if found else 0)
        return found

    monkeypatch.setattr(hf, "key_lines", counting)
    records = [
        {"epoch": i / 9, "eval_loss": 2.0, "step": i} if i % 5 == 0 else {"epoch": i / 9, "loss": 1.0, "step": i}
        for i in range(1, 501)
    ]
    for indent in (2, None):
        taken.clear()
        frame = read_bytes("hf", state(records, indent))
        assert len(frame["loss"]) == 400
        assert sum(taken) > 450


def test_a_summary_is_the_end_and_no_point() -> None:
    records = [
        {"loss": 2.0, "step": 1, "epoch": 0.5},
        {
            "epoch": 1.0,
            "step": 2,
            "total_flos": 1e15,
            "train_loss": 2.1,
            "train_runtime": 60.0,
            "train_steps_per_second": 3.0,
        },
    ]
    frame = read_bytes("hf", state(records))
    assert frame.ended
    assert points(frame, "loss") == [(1, 2.0, 7)]
    assert set(frame) == {"loss", "epoch"}
    assert not read_bytes("hf", state(records[:1])).ended


def test_predictions_without_a_step_are_no_part_of_the_curve() -> None:
    records = [{"loss": 2.0, "step": 1}, {"epoch": 1.0, "predict_loss": 9.0, "predict_runtime": 5.0}]
    frame = read_bytes("hf", state(records))
    assert set(frame) == {"loss"}
    assert frame.dropped_count == 0


def test_a_hidden_loss_is_said_to_be_hidden() -> None:
    healthy = [{"loss": 2.0, "grad_norm": math.nan, "step": 1}]
    assert read_bytes("hf", state(healthy)).masked == {"loss"}
    honest = [*healthy, {"loss": math.nan, "step": 2}]
    frame = read_bytes("hf", state(honest))
    assert frame.masked == frozenset()
    assert [value for _, value, _ in points(frame, "loss")] == [2.0, "nan"]


def test_numbers_as_text() -> None:
    records = [{"loss": "2.5", "LR": "5.90e-05", "CPU/RAM": "14%/63%", "remaining_time": "59h:30m:19s", "step": "20"}]
    frame = read_bytes("hf", state(records))
    assert points(frame, "loss") == [(20, 2.5, 8)]
    assert points(frame, "lr") == [(20, 5.9e-05, 7)]
    assert set(frame) == {"loss", "lr"}


def test_a_run_that_logged_nothing() -> None:
    frame = read_bytes("hf", state([]))
    assert len(frame) == 0
    assert frame.facts["total_steps"] == 300


def test_facts_before_and_after_the_history() -> None:
    records = [{"loss": 2.0, "step": 1}]
    fields = {
        "num_train_epochs": 3,
        "logging_steps": 5,
        "train_batch_size": 8,
        "stateful_callbacks": {"a": [1, {"b": 2}]},
    }
    facts = read_bytes("hf", state(records, fields=fields)).facts
    assert {name: facts[name] for name in ("total_steps", "epochs", "logging_steps", "batch_size")} == {
        "total_steps": 300,
        "epochs": 3,
        "logging_steps": 5,
        "batch_size": 8,
    }
    assert facts.where("total_steps") == "trainer_state.json"


@pytest.mark.parametrize(
    ("best", "stands"), [(None, True), ("out/checkpoint-1500", True), ("out/checkpoint-749", False)]
)
def test_a_save_interval_is_a_fact_unless_the_best_checkpoint_lies_between(best: str | None, stands: bool) -> None:
    fields = {"best_model_checkpoint": best, "save_steps": 500}
    frame = read_bytes("hf", state([{"loss": 1.0, "step": 1}], fields=fields))
    assert ("save_steps" in frame.facts) == stands


def test_a_bare_list_of_records() -> None:
    records = [{"loss": 2.0, "step": 1}, {"loss": 1.5, "step": 2}]
    data = json.dumps(records, indent=2).encode()
    assert HFReader().sniff(data) > 0.5
    assert points(read_bytes("hf", data), "loss") == [(1, 2.0, 3), (2, 1.5, 7)]


RECORDS = [{"epoch": i / 10, "loss": 3.0 - i / 10, "step": i} for i in range(1, 11)]


@pytest.mark.parametrize("indent", [2, None])
def test_every_whole_record_before_a_cut_is_kept(indent: int | None) -> None:
    data = state(RECORDS, indent)
    cut = data.index(b'"loss"', data.index(b'"step": 7')) + 3
    frame = read_bytes("hf", data[:cut])
    assert frame["loss"].step.tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert [why for _, why in frame.dropped] == ["cut off inside a record"]


def test_fields_before_a_cut_are_kept() -> None:
    data = state(RECORDS, fields={"num_train_epochs": 3})
    frame = read_bytes("hf", data[: data.index(b'"num_train_epochs"') + 8])
    assert len(frame["loss"]) == 10
    assert frame.facts["total_steps"] == 300


@pytest.mark.parametrize(
    ("found", "put", "lost"),
    [
        (b'"loss": 2.5', b'"loss": 2.5.5', 5),
        (b'"loss": 2.5', b'"loss" 2.5', 5),
        (b'"step": 5\n    }', b'"step": 5\n    ', 5),
        (b'"step": 5\n', b'"step": 5.5\n', 5),
        (b'"loss": 2.5', b'"loss": ]', 5),
    ],
)
def test_a_damaged_record_costs_itself(found: bytes, put: bytes, lost: int) -> None:
    data = state(RECORDS)
    assert found in data
    frame = read_bytes("hf", data.replace(found, put))
    assert frame["loss"].step.tolist() == [step for step in range(1, 11) if step != lost]
    assert frame.dropped_count == 1
    assert frame.dropped[0].line >= 20


def test_things_that_are_no_records_cost_themselves() -> None:
    frame = read_bytes("hf", b'{"log_history": [null, {"loss": 2, "step": 1}, 7, [1], {"loss": 1, "step": 2}, "x"]}')
    assert frame["loss"].step.tolist() == [1, 2]
    assert frame.dropped_count >= 3


def test_text_after_the_document_is_told() -> None:
    data = state(RECORDS)
    frame = read_bytes("hf", data + b"garbage {\n")
    assert len(frame["loss"]) == 10
    assert frame.dropped == ((data.count(b"\n") + 1, "text after the end of the JSON document"),)
    assert frame.facts["total_steps"] == 300


def test_of_a_repeated_key_the_last_counts_and_its_line_is_told() -> None:
    data = b'{"log_history": [\n{"loss": 1,\n"loss": 2,\n"step": 1}\n]}'
    assert points(read_bytes("hf", data), "loss") == [(1, 2.0, 3)]


def test_nested_metrics_have_the_line_of_their_own_key() -> None:
    frame = read_bytes("hf", state([{"loss": 1.0, "step": 1, "time": {"fwd": 2.0, "bwd": [1]}}]))
    (name,) = set(frame) - {"loss"}
    assert frame[name].line.tolist() == [12]


def test_huge_numbers() -> None:
    data = b'{"log_history": [{"loss": 1' + b"0" * 5000 + b', "step": 1}, {"loss": 1, "step": 1' + b"0" * 400 + b"}]}"
    frame = read_bytes("hf", data)
    assert points(frame, "loss") == [(1, math.inf, 1)]
    assert frame.dropped_count == 1


@pytest.mark.parametrize(
    "data", [b"", b"{}", b'{"log_history": 3}', b"version https://git-lfs.github.com/spec/v1\n", b"\x00\x01"]
)
def test_other_files_are_refused_in_one_line(data: bytes) -> None:
    with pytest.raises(FormatError, match="no log_history list"):
        pour("hf", data)


@pytest.mark.parametrize(
    "text",
    [
        b'{"log_history": [' + b'{"a": ' * 100_000,
        b'{"log_history": [' + b",{" * 20_000,
        b'{"log_history": [' + b'{"a' * 20_000,
        b'{"log_history": [{"a": "' + b'\\"' * 100_000,
        b'{"log_history": [{}}}}]]]',
    ],
)
def test_hostile_structure_is_survived(text: bytes) -> None:
    assert len(read_bytes("hf", text)) == 0


@given(st.binary(max_size=200), st.integers(0, 900))
def test_any_bytes_inside_are_survived(noise: bytes, at: int) -> None:
    data = state(RECORDS)
    _outcome(data[:at] + noise + data[at:])


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"{}",
        b'{"log_history_of": []}',
        b'[{"instruction": "a", "output": "b"}]',
        b"[1, 2, 3]",
        b'[{"id": 1, "score": 3}]',
        b'{"step": 1, "loss": 2}\n',
        b"[{" * 1000,
    ],
)
def test_other_files_are_not_claimed(head: bytes) -> None:
    assert HFReader().sniff(head) == 0


def test_states_are_claimed_in_any_layout() -> None:
    for indent in (2, 4, None):
        assert HFReader().sniff(state(RECORDS, indent)) > 0.9
    assert HFReader().sniff(state([])) > 0.9
