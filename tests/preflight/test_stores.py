"""Data in an object store is judged as data on a disk is."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.preflight.helpers import jsonl, judged
from tools.speech_faults import SPEECH_FAULTS, clean_items, encoded, write_pack
from tools.speech_faults import with_faults as with_speech_faults
from tools.text_faults import CHAT_FAULTS, clean_chats, with_faults, write
from trainproof.errors import InputError
from trainproof.preflight import rows, stores
from trainproof.preflight.clips import clips_of, manifest_kind
from trainproof.preflight.found import Options
from trainproof.preflight.inputs import plan_of
from trainproof.preflight.stores import Stored, path_of, version_of
from trainproof.preflight_command import DataOptions, run_data

fsspec = pytest.importorskip("fsspec")
JSON = {"output_format": "json", "no_html": True, "quiet": True}


@pytest.fixture
def store() -> Iterator[str]:
    """An empty folder in memory."""
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    memory.pseudo_dirs[:] = [""]
    stores._names.cache_clear()
    clips_of.cache_clear()
    yield "memory://bucket"
    memory.store.clear()


def put(folder: Path, store: str) -> str:
    """The store's path of a copy of the folder."""
    fsspec.filesystem("memory").put(str(folder), f"{store}/{folder.name}", recursive=True)
    return f"{store}/{folder.name}"


def reports(paths: tuple[str, str], folder: Path) -> list[str]:
    """The JSON reports on a folder of the disk and on its copy, with the same name for both."""
    texts = []
    for i, path in enumerate(paths):
        run_data(DataOptions((path,), workers=1), {**JSON, "output": str(folder / f"{i}.json")})
        texts.append((folder / f"{i}.json").read_text().replace(path, "DATA"))
    return texts


def test_chats_in_a_store(store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "PIECE_BYTES", 50_000)
    folder = tmp_path / "chats"
    folder.mkdir()
    lines, _ = with_faults(list(clean_chats(300)), CHAT_FAULTS, 1)
    train = write(folder / "train.jsonl", lines[:250])
    (folder / "valid.jsonl.gz").write_bytes(gzip.compress(b"\n".join(lines[250:])))
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.Table.from_pylist(list(clean_chats(20, seed=9)))
    pytest.importorskip("pyarrow.parquet").write_table(table, folder / "more.parquet")
    there = put(folder, store)
    own, stored = reports((str(folder), there), tmp_path)
    assert stored == own
    assert json.loads(own)["runs"][0]["records"] == 320
    found = plan_of([f"{there}/*.jsonl"], [], None, Options())
    assert [file.path for file in found.files] == [f"{there}/{train.name}"]


@pytest.mark.parametrize("layout", ["piped", "pairs", "kaldi", "nemo"])
def test_speech_in_a_store(layout: str, store: str, tmp_path: Path) -> None:
    items, _ = with_speech_faults(clean_items(12), 1, dict(list(SPEECH_FAULTS.items())[5:9]))
    pack = write_pack(tmp_path / "pack", items)
    names = sorted(path.name for path in (pack / "wavs").iterdir())
    if layout != "piped":
        (pack / "metadata.csv").unlink()
    if layout == "nemo":
        texts = [{"audio_filepath": f"wavs/{name}", "text": item.text} for name, item in zip(names, items, strict=True)]
        jsonl(pack / "manifest.jsonl", *texts)
    for name, item in zip(names, items, strict=True):
        if layout == "pairs":
            (pack / "wavs" / name).with_suffix(".txt").write_text(item.text)
        if layout == "kaldi":
            for file, text in (("wav.scp", f"wavs/{name}"), ("text", item.text), ("utt2spk", "eve")):
                with (pack / file).open("a") as lines:
                    lines.write(f"{name[:-4]} {text}\n")
    own, stored = reports((str(pack), put(pack, store)), tmp_path)
    assert stored == own
    assert {finding["rule"] for finding in json.loads(own)["runs"][0]["findings"]} >= {"TPD202", "TPD203"}


def test_a_manifest_of_the_disk_may_name_sounds_of_a_store(store: str, tmp_path: Path) -> None:
    (item,) = clean_items(1)
    fsspec.filesystem("memory").pipe("bucket/a.wav", encoded(item))
    jsonl(
        tmp_path / "m.jsonl",
        {"audio_filepath": f"{store}/a.wav", "text": item.text},
        {"audio_filepath": f"{store}/b.wav", "text": "b"},
    )
    report, found = judged(tmp_path / "m.jsonl")
    assert found.table("clips")["rate"].tolist() == [item.rate]
    assert "TPD241" in {finding.rule for finding in report.findings}


def test_paths_of_a_store(store: str) -> None:
    path = path_of("s3://bucket/a/b.tar.gz")
    assert isinstance(path, Stored)
    assert (str(path), path.name, path.suffix) == ("s3://bucket/a/b.tar.gz", "b.tar.gz", ".gz")
    assert (path.parent / "../c").normal() == "s3://bucket/c"
    assert isinstance(path_of("folder/a:b"), Path)
    with pytest.raises(InputError, match="no such file"):
        plan_of([f"{store}/nothing.jsonl"], [], None, Options())
    fsspec.filesystem("memory").pipe("bucket/a.txt", b"first")
    before = version_of(f"{store}/a.txt")
    assert before[0] == 5
    assert manifest_kind(f"{store}/a.txt") is None


@pytest.mark.parametrize(("path", "says"), [("nonsense://a/b.jsonl", "Protocol not known"), ("s3://a/b.jsonl", "s3fs")])
def test_a_store_that_nobody_knows_is_one_line(path: str, says: str, tmp_path: Path) -> None:
    if says == "s3fs" and _is_installed("s3fs"):
        pytest.skip("s3fs is there")
    done = subprocess.run(
        [sys.executable, "-m", "trainproof", "data", path], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert says in done.stderr


def test_without_fsspec_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(InputError, match=r"pip install trainproof\[store\]"):
        plan_of(["s3://bucket/a.jsonl"], [], None, Options())


def _is_installed(name: str) -> bool:
    from importlib.util import find_spec

    return find_spec(name) is not None
