"""From paths, folders and globs to runs: everything is found, once, in order, and only what was named is complained of."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

from tests.readers.eventfiles import VERSION, event, scalar
from trainproof.errors import UsageError
from trainproof.facts import Facts
from trainproof.readers.discover import Log, read_logs


def jsonl(records: int = 5, name: str = "loss") -> bytes:
    return "".join(json.dumps({"step": i, name: 1 / i}) + "\n" for i in range(1, records + 1)).encode()


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of runs as they lie about, and the working directory."""
    files = {
        "b/log.jsonl": jsonl(),
        "a/log.jsonl": jsonl(6),
        "a/deep/er/log.jsonl.gz": gzip.compress(jsonl(7)),
        "a/model.bin": bytes(range(256)) * 9,
        "a/README.md": b"# A model\n\nIt was trained.\n",
        "a/pointer.json": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
        "a/empty.jsonl": b"",
        ".git/log.jsonl": jsonl(9),
    }
    for name, data in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def paths(logs: list[Log]) -> list[str]:
    assert all(log.problem is None and log.frames for log in logs)
    return [log.path for log in logs]


@pytest.mark.usefixtures("runs")
def test_a_directory_holds_every_run_below_it_and_no_complaints() -> None:
    found = list(read_logs(["."]))
    assert paths(found) == ["./a/log.jsonl", "./a/deep/er/log.jsonl.gz", "./b/log.jsonl"]
    assert [log.frames[0].records for log in found] == [6, 7, 5]
    assert {log.named for log in found} == {"."}


def test_no_number_of_runs_is_too_large(tmp_path: Path) -> None:
    for i in range(300):
        (tmp_path / f"run{i:03}.jsonl").write_bytes(jsonl())
    assert paths(list(read_logs([str(tmp_path)]))) == [f"{tmp_path}/run{i:03}.jsonl" for i in range(300)]


def test_links_are_followed_once_and_a_loop_ends(runs: Path) -> None:
    (runs / "a" / "loop").symlink_to(runs)
    (runs / "aa-latest").symlink_to(runs / "b")
    (runs / "dangling").symlink_to(runs / "nothing")
    assert paths(list(read_logs(["."]))) == ["./a/log.jsonl", "./a/deep/er/log.jsonl.gz", "./b/log.jsonl"]


def test_a_linked_folder_outside_is_searched(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("scratch")
    (elsewhere / "log.jsonl").write_bytes(jsonl())
    (runs / "b" / "scratch").symlink_to(elsewhere)
    assert paths(list(read_logs(["b"]))) == ["b/log.jsonl", "b/scratch/log.jsonl"]


@pytest.mark.usefixtures("runs")
def test_a_log_named_twice_is_read_once() -> None:
    assert paths(list(read_logs(["b", "b/log.jsonl", "./b/log.jsonl", "b/*"]))) == ["b/log.jsonl"]


@pytest.mark.usefixtures("runs")
def test_globs_match_as_in_a_shell() -> None:
    assert paths(list(read_logs(["*/log.jsonl"]))) == ["a/log.jsonl", "b/log.jsonl"]
    assert paths(list(read_logs(["a/**/*.gz"]))) == ["a/deep/er/log.jsonl.gz"]


def test_a_name_with_a_glob_sign_in_it_is_a_name(runs: Path) -> None:
    (runs / "run[1].jsonl").write_bytes(jsonl())
    assert paths(list(read_logs(["run[1].jsonl"]))) == ["run[1].jsonl"]


@pytest.mark.usefixtures("runs")
@pytest.mark.parametrize(
    ("named", "problem"),
    [
        ("no/such.jsonl", "no/such.jsonl: no such file or directory"),
        ("no/*.jsonl", "no/*.jsonl: no such file or directory"),
        ("a/README.md", "a/README.md: not a training log in a known format"),
        ("a/model.bin", "a/model.bin: not a training log in a known format"),
        ("a/pointer.json", "a/pointer.json: a Git LFS pointer"),
        ("a/empty.jsonl", "a/empty.jsonl: empty"),
    ],
)
def test_what_was_named_and_cannot_be_read_is_told(named: str, problem: str) -> None:
    first, second = read_logs([named, "b/log.jsonl"])
    assert first.frames == []
    assert str(first.problem).startswith(problem)
    assert "\n" not in str(first.problem)
    assert paths([second]) == ["b/log.jsonl"]


def test_a_directory_without_logs(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing")
    (log,) = read_logs([str(tmp_path)])
    assert str(log.problem) == f"{tmp_path}: no training log below this directory; name the file if it is one"


@pytest.mark.usefixtures("runs")
def test_an_unknown_format_is_wrong_usage() -> None:
    with pytest.raises(UsageError, match="unknown format 'excel'; known: hf, "):
        list(read_logs(["b"], format_name="excel"))


@pytest.mark.usefixtures("runs")
def test_a_forced_format_reads_what_was_named_and_only_its_own_in_a_directory() -> None:
    (log,) = read_logs(["b/log.jsonl"], format_name="hf")
    assert log.problem is not None
    (log,) = read_logs(["b"], format_name="hf")
    assert "no training log below" in str(log.problem)


@pytest.mark.usefixtures("runs")
def test_a_map_that_fits_one_log_does_not_lose_the_others(runs: Path) -> None:
    (runs / "b" / "other.jsonl").write_bytes(jsonl(4, "my_thing"))
    first, second = read_logs(["b"], mapping={"loss": "my_thing"})
    assert "--map loss=my_thing: the log has no 'my_thing'" in str(first.problem)
    assert second.frames[0]["loss"].value[0] == 1.0


def test_event_files_of_one_folder_are_one_run(tmp_path: Path) -> None:
    run = tmp_path / "lightning_logs" / "version_0"
    run.mkdir(parents=True)
    for i in (1, 2):
        data = VERSION + event(i, scalar("train_loss", 1 / i))
        (run / f"events.out.tfevents.{i}.host").write_bytes(data)
    (run / "hparams.yaml").write_text("max_steps: 77\n")
    (log,) = read_logs([str(tmp_path)])
    assert log.path == str(run)
    assert log.frames[0]["loss"].step.tolist() == [1, 2]
    assert log.frames[0].facts["total_steps"] == 77


def test_given_facts_win_over_the_log_and_the_log_over_its_folder(tmp_path: Path) -> None:
    state = {"max_steps": 20, "log_history": [{"step": i, "loss": 1 / i} for i in range(1, 9)]}
    (tmp_path / "trainer_state.json").write_text(json.dumps(state))
    (tmp_path / "args.yaml").write_text("max_steps: 30\nvocab_size: 50\nnum_epochs: 3\n")
    (log,) = read_logs([str(tmp_path / "trainer_state.json")], facts=Facts({"epochs": 5}))
    facts = log.frames[0].facts
    assert (facts["total_steps"], facts["vocab_size"], facts["epochs"]) == (20, 50, 5)


@pytest.mark.skipif(os.name == "nt", reason="names are Unicode there")
def test_a_name_that_is_no_text_can_be_shown(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/run\xff.jsonl"
    Path(os.fsdecode(path)).write_bytes(jsonl())
    (log,) = read_logs([os.fsdecode(path)])
    assert log.path.encode().endswith(b"/run?.jsonl")
