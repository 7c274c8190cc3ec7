"""`trainproof data` on other formats, sides and hostile input."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import zstandard

from tests.preflight.helpers import codes, jsonl, judged, rows_told
from tools.text_faults import clean_chats, clean_pairs
from trainproof.errors import InputError
from trainproof.judge import report_of
from trainproof.preflight.found import Options
from trainproof.report.json import render_json


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "trainproof", "data", *arguments]
    root = Path(__file__).resolve().parents[2]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=cwd, env={"PYTHONPATH": str(root), "PATH": ""}, check=False
    )


def alpaca(count: int) -> list[dict[str, str]]:
    return [{"instruction": pair["prompt"], "input": "", "output": pair["chosen"]} for pair in clean_pairs(count)]


def test_packed_files_are_read(tmp_path: Path) -> None:
    lines = "".join(json.dumps(record) + "\n" for record in clean_chats(50)).encode()
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(lines))
    (tmp_path / "b.jsonl.zst").write_bytes(zstandard.compress(lines.replace(b"number", b"figure")))
    report, found = judged(tmp_path)
    assert (report.verdict, found.rows) == ("WARN", 100)  # the answers are the same: near duplicates
    assert codes(report) == {"TPD109"}


@pytest.mark.parametrize("document", ["list", "split"])
def test_json_documents(document: str, tmp_path: Path) -> None:
    records = alpaca(40)
    records[7]["output"] = " "
    path = tmp_path / "data.json"
    path.write_text(json.dumps(records if document == "list" else {"version": 1, "train": records}, indent=1))
    report, found = judged(path)
    assert found.kind == "chat"
    assert rows_told(report, found, "TPD128") == {8}


def test_tables(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text('prompt,completion\n"a, b",first\n"line\nbreak",second\nonly one cell\nx,\n')
    report, found = judged(path)
    assert rows_told(report, found, "TPD003") == {5}
    assert rows_told(report, found, "TPD128") == {6}


def test_parquet_and_arrow(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    records = list(clean_chats(30))
    records[3]["messages"][-1]["content"] = ""
    table = pyarrow.Table.from_pylist(records)
    pytest.importorskip("pyarrow.parquet").write_table(table, tmp_path / "train.parquet")
    with pytest.importorskip("pyarrow.ipc").new_stream(str(tmp_path / "other.arrow"), table.schema) as out:
        out.write_table(table)
    for name in ("train.parquet", "other.arrow"):
        report, found = judged(tmp_path / name)
        assert rows_told(report, found, "TPD128") == {4}


def test_leaks_between_sides(tmp_path: Path) -> None:
    records = alpaca(60)
    held_out = alpaca(100)[60:80]
    held_out[2] = records[5]
    held_out[4] = {**records[6], "output": "Quite another answer."}
    words = records[7]["output"].split()
    held_out[6] = {
        **records[7],
        "instruction": records[7]["instruction"] + " Please.",
        "output": " ".join([*words, "So."]),
    }
    train, valid = jsonl(tmp_path / "train.jsonl", *records), jsonl(tmp_path / "valid.jsonl", *held_out)
    for paths, others in ((tmp_path, ()), (train, (valid,))):
        report, found = judged(paths, *others)
        assert {c: rows_told(report, found, c) for c in ("TPD161", "TPD162", "TPD163")} == {
            "TPD161": {3},
            "TPD162": {5},
            "TPD163": {7},
        }
        assert "TPD108" not in codes(report)


def test_without_a_second_side_leaks_are_skipped(tmp_path: Path) -> None:
    report, _ = judged(jsonl(tmp_path / "data.jsonl", *alpaca(20)))
    assert set(report.skipped) >= {"TPD161", "TPD162", "TPD163"}


def test_type_of_a_field_that_changes_late(tmp_path: Path) -> None:
    """tloen/alpaca-lora#239: Arrow stops at a column that changed from object to array."""
    records: list[dict[str, object]] = [{**record, "meta": {"a": 1}} for record in alpaca(50)]
    records[40]["meta"] = [1]
    records[3]["meta"] = None
    report, found = judged(jsonl(tmp_path / "data.jsonl", *records))
    assert rows_told(report, found, "TPD006") == {41}


def test_truncation_loses_the_answer(tmp_path: Path) -> None:
    """huggingface/trl#6025, unslothai/unsloth#11333: the prompt fills the context, and no label is left."""
    tokenizers = pytest.importorskip("tokenizers")
    model = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    model.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    model.save(str(tmp_path / "tokenizer.json"))
    records = [
        {"prompt": "one two three", "completion": "four"},
        {"prompt": "w " * 30, "completion": "lost"},
        {"prompt": "w " * 18, "completion": "half of it"},
    ]
    options = Options(max_length=20, tokenizer=str(tmp_path / "tokenizer.json"), keep=1 << 40)
    report, found = judged(jsonl(tmp_path / "data.jsonl", *records), options=options)
    assert rows_told(report, found, "TPD136") == {2}
    assert rows_told(report, found, "TPD118") == {2, 3}


def test_workers_and_pieces_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = list(clean_chats(300))
    records[250] = records[9]
    records[251]["messages"] = []
    path = jsonl(tmp_path / "data.jsonl", *records)
    alone, _ = judged(path)
    monkeypatch.setattr("trainproof.preflight.rows.PIECE_BYTES", 20_000)
    for workers in (1, 2):
        other, _ = judged(path, workers=workers)
        assert render_json(report_of([other], "data")) == render_json(report_of([alone], "data"))


@pytest.mark.parametrize(
    "content",
    [b"\x00\x01\x02", b"[" * 100_000, b'{"messages": ' + b"[" * 100_000 + b"\n", b"{}\n[]\n1\nnull\n", b'{"text": "\\ud800"}\n', b'"', b"a,b\n\"", b"PAR1nonsense", b"\n\n", b"|", b"|\n|||\n", b"\xff\xff\xff\xff\x00"],
)  # fmt: skip
def test_hostile_bytes_are_findings_or_one_line(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_bytes(content)
    with suppress(InputError):
        report, _ = judged(path)
        assert report.verdict in ("FAIL", "WARN", "SKIP")
    done = run("data.jsonl", "--no-html", "--workers", "1", cwd=tmp_path)
    assert done.returncode in (0, 1, 2)
    assert "internal error" not in done.stderr
    assert done.stderr.count("\n") <= 1


def test_a_bomb_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data.jsonl.zst").write_bytes(zstandard.compress(b'{"text": "' + b"a" * (200 << 20)))
    report, _ = judged(tmp_path / "data.jsonl.zst")
    assert codes(report) == {"TPD001"}


def test_a_loop_of_links_ends(tmp_path: Path) -> None:
    jsonl(tmp_path / "data.jsonl", *alpaca(20))
    (tmp_path / "again").symlink_to(tmp_path)
    assert judged(tmp_path)[1].rows == 20


def test_command_writes_report_rejects_and_exit_code(tmp_path: Path) -> None:
    records = alpaca(30)
    records[4]["output"] = ""
    records[9]["output"] += " \x1b[31m<script>alert(1)</script> \0"
    jsonl(tmp_path / "data.jsonl", *records)
    done = run("data.jsonl", "--rejects", "bad.jsonl", "--workers", "1", cwd=tmp_path)
    assert done.returncode == 1
    assert "FAIL  TPD128 empty-turn, data.jsonl:5" in done.stdout
    assert "\x1b" not in done.stdout
    rejects = [json.loads(line) for line in (tmp_path / "bad.jsonl").read_text().splitlines()]
    assert {(r["row"], r["rule"]) for r in rejects} == {(5, "TPD128"), (10, "TPD102")}
    page = (tmp_path / ".trainproof" / "data-data.html").read_text()
    assert "<script>" not in page
    assert "data.jsonl:5" in page


def test_command_on_nothing_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for arguments in (("missing.jsonl",), ("empty",), (".", "--max-length", "5")):
        done = run(*arguments, cwd=tmp_path)
        assert done.returncode == 2
        assert done.stderr.startswith("trainproof: ")
        assert done.stderr.count("\n") == 1
