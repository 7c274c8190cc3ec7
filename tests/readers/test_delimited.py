"""CSV, TSV and their kin."""

from __future__ import annotations

import contextlib
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainproof.errors import FormatError
from trainproof.frame import Frame, Source
from trainproof.readers.builder import FrameBuilder
from trainproof.readers.delimited import DelimitedReader
from trainproof.readers.header import Table, find_table
from trainproof.readers.plain_rows import PlainRows
from trainproof.readers.source import LogInput

Points = list[tuple[int, float, int]]

SIMPLE = "step,loss,lr\n10,2.5,0.1\n20,2.25,0.1\n30,2.0,0.05\n"


def frames(text: str | bytes, path: str = "metrics.csv") -> list[Frame]:
    out = FrameBuilder()
    DelimitedReader().read(LogInput(path, text.encode() if isinstance(text, str) else text), out)
    return out.build(Source(path, "csv"))


def frame(text: str | bytes, path: str = "metrics.csv") -> Frame:
    (run,) = frames(text, path)
    return run


def points(run: Frame, name: str) -> Points:
    series = run[name]
    return list(zip(series.step.tolist(), series.value.tolist(), series.line.tolist(), strict=True))


def curve(run: Frame, name: str) -> list[tuple[int, float]]:
    return [(step, value) for step, value, _ in points(run, name)]


def dropped(run: Frame) -> list[tuple[int, str]]:
    return [(d.line, d.why) for d in run.dropped]


def sniffed(text: str) -> bool:
    return DelimitedReader().sniff(text.encode()) > 0


@pytest.mark.parametrize("delimiter", [",", "\t", ";", "|", "   ", " , ", ", "])
def test_any_delimiter(delimiter: str) -> None:
    text = SIMPLE.replace(",", delimiter)
    assert sniffed(text)
    assert points(frame(text), "loss") == [(10, 2.5, 2), (20, 2.25, 3), (30, 2.0, 4)]
    assert curve(frame(text), "lr") == [(10, 0.1), (20, 0.1), (30, 0.05)]


@pytest.mark.parametrize(
    "text",
    [
        "\ufeff" + SIMPLE,
        SIMPLE.replace("\n", "\r\n"),
        "\n\n" + SIMPLE,
        SIMPLE.removesuffix("\n"),
        "".join(",".join(f'"{cell}"' for cell in line.split(",")) + "\n" for line in SIMPLE.splitlines()),
        SIMPLE.replace("\n", ",\n").replace("lr,\n", "lr\n"),  # each row ends with a delimiter, the header does not
        "# made by hand\n" + SIMPLE.replace("20,", "# half-way\n20,"),
        SIMPLE.replace("10,", "1.0e1,"),
    ],
)
def test_the_same_table_in_other_dress(text: str) -> None:
    assert sniffed(text)
    assert curve(frame(text), "loss") == [(10, 2.5), (20, 2.25), (30, 2.0)]
    assert frame(text).dropped_count == 0


def test_utf_16_reads_the_same() -> None:
    assert points(frame(SIMPLE.encode("utf-16")), "loss") == points(frame(SIMPLE), "loss")


def test_a_blank_cell_is_a_metric_that_was_not_logged() -> None:
    text = "train_loss,epoch,step,val_loss\r\n0.5,0,49,\r\n,0,49,0.75\r\n0.25,1,99,\r\n,1,99,  \r\n"
    run = frame(text)
    assert points(run, "loss") == [(49, 0.5, 2), (99, 0.25, 4)]
    assert points(run, "eval/loss") == [(49, 0.75, 3)]
    assert [value for _, value in curve(run, "epoch")][-1] == 1.0


def test_measurements_of_several_kinds_of_rows_keep_apart() -> None:
    text = "global_step,grad_norm,loss,validation/loss,test/loss\n0,1.5,7.0,,\n1,,,6.5,6.25\n1,1.25,6.75,,\n2,,,,\n"
    run = frame(text)
    assert points(run, "loss") == [(0, 7.0, 2), (1, 6.75, 4)]
    assert points(run, "eval/loss") == [(1, 6.5, 3)]
    assert dropped(run) == [(5, "no number beside the step")]


def test_padded_names_and_cells() -> None:
    text = "               epoch,      train/box_loss,             x/lr0\n                   0,              1.9035,           0.07\n"
    run = frame(text)
    assert points(run, "loss/box") == [(0, 1.9035, 2)]
    assert points(run, "lr") == [(0, 0.07, 2)]


def test_epochs_number_the_rows_where_there_is_no_step() -> None:
    run = frame("EPOCH\tTIMESTAMP\tLEARNING_RATE\tTRAIN_LOSS\n1\t13:54:52\t0.1\t0.5\n2\t14:06:52\t0.1\t0.25\n")
    assert curve(run, "loss") == [(1, 0.5), (2, 0.25)]
    assert curve(run, "lr") == [(1, 0.1), (2, 0.1)]
    assert "TIMESTAMP" not in run


@pytest.mark.parametrize("epochs", [(0, 0, 1, 1), (0.25, 0.5, 0.75, 1.0)])
def test_epochs_that_repeat_or_are_fractions_do_not_number_the_rows(epochs: tuple[float, ...]) -> None:
    run = frame("epoch,loss\n" + "".join(f"{epoch},{i}\n" for i, epoch in enumerate(epochs)))
    assert curve(run, "loss") == [(1, 0.0), (2, 1.0), (3, 2.0), (4, 3.0)]
    assert [value for _, value in curve(run, "epoch")] == list(epochs)


def test_a_repeated_header_is_a_restart_and_no_bad_row() -> None:
    first, second = ("".join(f"{i},{scale / (i + 1)}\n" for i in range(10)) for scale in (4, 8))
    runs = frames("epoch,loss\n" + first + " epoch,loss \n" + second)
    assert [curve(run, "loss")[0] for run in runs] == [(0, 4.0), (0, 8.0)]
    assert [run.dropped_count for run in runs] == [0, 0]


def test_rows_without_a_step_are_numbered_anew_behind_a_repeated_header() -> None:
    first, second = ("".join(f"{scale / (i + 1)},0.1\n" for i in range(10)) for scale in (4, 8))
    runs = frames("loss,lr\n" + first + "loss,lr\n" + second)
    assert [points(run, "loss")[0] for run in runs] == [(1, 4.0, 2), (1, 8.0, 13)]


def test_a_comment_may_be_the_header() -> None:
    text = "# step loss\n1.000e+00 2.500e+00\n2.000e+00 2.250e+00\n"
    assert sniffed(text)
    assert points(frame(text), "loss") == [(1, 2.5, 2), (2, 2.25, 3)]


def test_non_finite_spellings() -> None:
    run = frame("step,loss\n1,nan\n2,inf\n3,-Infinity\n4,-nan(ind)\n5,NaN\n6,1e400\n7,1.5\n")
    assert repr([value for _, value in curve(run, "loss")]) == "[nan, inf, -inf, nan, nan, inf, 1.5]"
    assert run.dropped_count == 0


def test_decimal_commas_between_semicolons() -> None:
    run = frame("step;loss;lr\n1;2,5;1,5e-04\n2;2.25;0,1\n")
    assert curve(run, "loss") == [(1, 2.5), (2, 2.25)]
    assert curve(run, "lr") == [(1, 1.5e-4), (2, 0.1)]


def test_quoted_cells_may_hold_delimiters_and_text_columns_are_passed_over() -> None:
    run = frame('step,"loss, mean",note\n1,2.5,"so, so"\n"2","2.25",""\n"1,003",2.0,x\n')
    assert curve(run, "loss, mean") == [(1, 2.5), (2, 2.25), (1003, 2.0)]
    assert set(run) == {"loss, mean"}


def test_ragged_rows_are_dropped_with_the_reason() -> None:
    run = frame("step,loss,lr\n1,2.5,0.1\n2,2.25\n3,2.0,0.1,7\n4,1.75,0.1\n5,1.")
    assert curve(run, "loss") == [(1, 2.5), (4, 1.75)]
    assert dropped(run) == [(3, "2 cells, expected 3"), (4, "4 cells, expected 3"), (6, "2 cells, expected 3")]


def test_an_unusable_step_costs_its_row() -> None:
    run = frame(f"step,loss\n1,2.5\nx,2.25\n2.5,2.0\n{'9' * 400},2.0\n3,1.75\n")
    assert curve(run, "loss") == [(1, 2.5), (3, 1.75)]
    assert [line for line, _ in dropped(run)] == [3, 4, 5]


def test_a_text_cell_costs_itself() -> None:
    run = frame("step,loss,lr\n1,2.5,0.1\n2,n/a,0.1\n3,2_0,0.1\n")
    assert curve(run, "loss") == [(1, 2.5)]
    assert curve(run, "lr") == [(1, 0.1), (2, 0.1), (3, 0.1)]


def test_repeated_names_do_not_hide_each_other() -> None:
    run = frame("step,acc,acc\n1,0.5,0.25\n")
    assert curve(run, "acc") == [(1, 0.5)]
    assert curve(run, "acc~2") == [(1, 0.25)]


def test_the_nameless_index_of_pandas_is_no_metric() -> None:
    run = frame(",step,loss\n0,10,2.5\n1,20,2.25\n")
    assert curve(run, "loss") == [(10, 2.5), (20, 2.25)]
    assert set(run) == {"loss"}


def test_lines_stay_right_over_the_pieces_of_a_large_file() -> None:
    rows = [f"{i},{i % 97 / 8},{'' if i % 3 else i}\n" for i in range(200_000)]
    rows[70_000] = "70000,nan,\n"
    rows[150_000] = "broken\n"
    run = frame("step,loss,eval_loss\n" + "".join(rows))
    assert len(run["loss"]) == 199_999
    assert run["loss"].line.tolist()[-1] == 200_001
    assert (run["loss"].line - run["loss"].step == 2).all()
    assert math.isnan(run["loss"].value[70_000])
    assert (run["eval/loss"].value == run["eval/loss"].step).all()
    assert dropped(run) == [(150_002, "1 cells, expected 3")]


@pytest.mark.parametrize("text", [SIMPLE[:21], "loss,step\n2.5,1\n", "epoch,time,train/box_loss\n1,11.9,1.64"])
def test_one_row_is_enough(text: str) -> None:
    assert sniffed(text)
    assert frame(text).records == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "step,loss,lr\n",
        "1,2.5,0.1\n2,2.25,0.1\n",
        "name,city\nann,3\nbob,4\n",
        "The loss was high, then the learning rate fell, and 3 runs died.\nIt rose, then 4 more, died.\n",
        "the loss was bad\nrun 3 was fine\nrun 4 was worse\n",
        "loss rate\nfell by\n3 %\n",
        "import loss, step\nx = loss(1, 2)\ny = step(2, 3)\n",
        "loss = [0.5, 0.4, 0.3,\n        0.2, 0.1, 0.0,\n        0.2, 0.1, 0.0]\n",
        "numpy>=1.0,<2\ntorch>=2.0,<3\n",
        "2024-01-01 10:00:00,123 INFO step 1, loss 2.5\n2024-01-01 10:00:01,456 INFO step 2, loss 2.25\n",
        "step 1, loss 2.5\nstep 2, loss 2.25\n",
        '{"step": 1, "loss": 2.5}\n{"step": 2, "loss": 2.25}\n',
        "model,loss\nsmall,low\nlarge,lower\n",
        "| step | loss |\n|---|---|\n| 1 | 2.5 |\n",
    ],
)
def test_what_is_no_table_of_a_training_log_is_not_claimed(text: str) -> None:
    assert not sniffed(text)


@pytest.mark.parametrize("data", [b"", b"\0" * 1000, b"x" * 10_000_000, b"1,2\n3,4\n", bytes(range(256)) * 50])
def test_what_has_no_header_is_one_clear_error(data: bytes) -> None:
    assert DelimitedReader().sniff(data[:65536]) == 0.0
    with pytest.raises(FormatError, match="no header line"):
        frame(data)


def test_a_line_of_ten_megabytes_costs_itself() -> None:
    run = frame(SIMPLE + "40," + "1" * 10_000_000 + "\n" + ",".join("1" * 3_000_000) + "\n50,1.5,0.1\n")
    assert curve(run, "loss")[-1] == (50, 1.5)
    assert [line for line, _ in dropped(run)] == [5, 6]


_CELLS = st.one_of(
    st.just(""),
    st.integers(-(10**20), 10**20).map(str),
    st.floats().map(repr),
    st.sampled_from(
        ["null", "true", "1e5", "-0", "007", ".5", "1.", "+1", " 2", "2 ", "1_0", "[1", "1]", "0x1", '"3"']
    ),
)


@given(st.integers(1, 4).flatmap(lambda width: st.lists(st.lists(_CELLS, min_size=width, max_size=width), min_size=1)))
def test_plain_rows_are_read_as_cell_by_cell(rows: list[list[str]]) -> None:
    """A comment in the same piece sends it cell by cell; the result must not depend on that."""
    header = "step," + ",".join(f"m{i}" for i in range(len(rows[0]))) + "\n"
    body = "".join(f"{i}," + ",".join(row) + "\n" for i, row in enumerate(rows))
    plain, tolerant = frame(header + body), frame(header + body + "# end\n")
    assert set(plain) == set(tolerant)
    for name in plain:
        assert plain[name].step.tolist() == tolerant[name].step.tolist()
        assert plain[name].line.tolist() == tolerant[name].line.tolist()
        assert np.array_equal(plain[name].value, tolerant[name].value, equal_nan=True)
    assert dropped(plain) == dropped(tolerant)


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_plain_rows_refuse_what_they_cannot_tell(delimiter: str) -> None:
    reader = PlainRows(2, delimiter)
    good = reader.columns(f"1{delimiter}\r\n{delimiter}2.5".encode())
    assert good is not None
    assert [list(column.values) for column in good] == [[1.0], [2.5]]
    for text in ("1,nan", "1", "1,2,3", "1,2\n\n", "1,[2]", '"1","2"', "# 1,2", "1,x", "1, "):
        assert reader.columns(text.replace(",", delimiter).encode()) is None


@given(st.text(max_size=300), st.sampled_from(["", "step,loss\n", "step;loss\n", "step loss\n"]))
def test_any_text_is_a_frame_or_one_clear_error(text: str, header: str) -> None:
    data = (header + text).encode("utf-8", "surrogatepass")
    DelimitedReader().sniff(data)
    with contextlib.suppress(FormatError):
        assert all(len(run[name]) for run in frames(data) for name in run)


_SAMPLE = b'#{"a": 1}\nstep, loss,"lr"\r\n1,2.5,\r\n2,nan,0.1\r\nstep, loss,"lr"\n1,2.25,"0.1"\n'


@given(
    st.lists(st.tuples(st.integers(0, len(_SAMPLE) - 1), st.integers(0, 255)), max_size=6), st.integers(0, len(_SAMPLE))
)
def test_damaged_bytes_are_a_frame_or_one_clear_error(changes: list[tuple[int, int]], end: int) -> None:
    data = bytearray(_SAMPLE)
    for at, byte in changes:
        data[at] = byte
    DelimitedReader().sniff(bytes(data[:end]))
    with contextlib.suppress(FormatError):
        assert all(len(run[name]) for run in frames(bytes(data[:end])) for name in run)


def test_the_table_is_told_by_its_header() -> None:
    assert find_table(["# x", "", "step; loss"]) == Table(";", ("step", "loss"), 3)
    assert find_table(["loss"]) is None
    assert find_table([]) is None
