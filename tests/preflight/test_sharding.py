"""Shards merged give the same bytes as one process."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from tests.preflight.helpers import jsonl
from tests.preflight.test_data import run
from tools.speech_faults import SPEECH_FAULTS, clean_items, write_pack
from tools.speech_faults import with_faults as with_speech_faults
from tools.text_faults import CHAT_FAULTS, clean_chats, with_faults, write
from trainproof.errors import InputError
from trainproof.preflight import inputs, rows, running, sharding
from trainproof.preflight.found import Options, Partial, merged
from trainproof.preflight_command import DataOptions, run_data, run_merge

JSON = {"output_format": "json", "no_html": True, "quiet": True}


@pytest.mark.parametrize("kind", ["chat", "speech"])
def test_shards_give_the_bytes_of_one_process(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "PIECE_BYTES", 50_000)
    monkeypatch.setattr(inputs, "CLIPS", 20)
    if kind == "chat":
        lines, _ = with_faults(list(clean_chats(500)), CHAT_FAULTS, 2)
        path = write(tmp_path / "chats.jsonl", lines)
    else:
        path = write_pack(tmp_path / "pack", with_speech_faults(clean_items(120), 1, SPEECH_FAULTS)[0])
    own = DataOptions((str(path),), workers=1, rejects=str(tmp_path / "whole.rejects"))
    assert run_data(own, {**JSON, "output": str(tmp_path / "whole.json")}) == 1
    for i in (1, 2, 3):
        run_data(own._replace(shard=f"{i}/3", partial=str(tmp_path / f"{i}.part")), JSON)
    partials = tuple(str(tmp_path / f"{i}.part") for i in (3, 1, 2))
    assert run_merge(partials, str(tmp_path / "merged.rejects"), {**JSON, "output": str(tmp_path / "merged.json")}) == 1
    assert (tmp_path / "merged.json").read_bytes() == (tmp_path / "whole.json").read_bytes()
    assert (tmp_path / "merged.rejects").read_bytes() == (tmp_path / "whole.rejects").read_bytes()
    with pytest.raises(InputError, match="name all shards"):
        run_merge(partials[:2], None, JSON)
    with pytest.raises(InputError, match="name each shard once"):
        run_merge((*partials, partials[0]), None, JSON)


def test_two_processes_give_the_bytes_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "PIECE_BYTES", 20_000)
    path = write(tmp_path / "chats.jsonl", with_faults(list(clean_chats(400)), CHAT_FAULTS, 2)[0])
    assert len(inputs.plan_of([str(path)], [], None, Options()).pieces) > 2 * running.AHEAD
    texts = []
    for workers in (1, 2):
        own = DataOptions((str(path),), workers=workers, rejects=str(tmp_path / "rejects"))
        assert run_data(own, {**JSON, "output": str(tmp_path / "report.json")}) == 1
        texts.append((tmp_path / "report.json").read_bytes() + (tmp_path / "rejects").read_bytes())
    assert texts[0] == texts[1]


def test_what_is_no_partial_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "other.npz", a=np.zeros(3))
    np.save(tmp_path / "pickled.npy", np.array([{}], object), allow_pickle=True)
    np.save(tmp_path / "array.npy", np.zeros(3))
    (tmp_path / "text").write_text("nothing")
    for name in ("other.npz", "pickled.npy", "array.npy", "text", "missing", "."):
        with pytest.raises(InputError, match="partial"):
            sharding.load(str(tmp_path / name))


def test_a_worker_that_is_killed_once_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = jsonl(tmp_path / "chats.jsonl", *clean_chats(200))
    monkeypatch.setattr(rows, "PIECE_BYTES", 30_000)
    plan = inputs.plan_of([str(path)], [], None, Options())
    whole = merged(running.run_pieces(plan, plan.pieces, 1))
    monkeypatch.setattr(running, "partial_of", _killed_once)
    monkeypatch.setenv("KILLED", str(tmp_path / "killed"))
    again = merged(running.run_pieces(plan, plan.pieces, 2))
    assert (tmp_path / "killed").exists()
    assert (again.rows, again.places) == (whole.rows, whole.places)


_partial_of = running.partial_of  # a worker that is a copy of this process has the patched one


def _killed_once(plan: inputs.Plan, piece: rows.Piece) -> object:
    flag = Path(os.environ["KILLED"])
    if piece.start and not flag.exists():
        flag.touch()
        os._exit(9)
    return _partial_of(plan, piece)


def test_wrong_shards_are_one_line(tmp_path: Path) -> None:
    jsonl(tmp_path / "chats.jsonl", *clean_chats(5))
    for arguments in (("--shard", "0/2", "--partial", "p"), ("--shard", "1/2"), ("--partial", "p")):
        done = run("chats.jsonl", *arguments, cwd=tmp_path)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)


@pytest.mark.parametrize("kind", ["chat", "speech"])
def test_a_run_that_was_killed_goes_on_where_it_was(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "PIECE_BYTES", 50_000)
    monkeypatch.setattr(inputs, "CLIPS", 5)
    if kind == "chat":
        path = write(tmp_path / "chats.jsonl", with_faults(list(clean_chats(300)), CHAT_FAULTS, 1)[0])
    else:
        faults = dict(list(SPEECH_FAULTS.items())[:4])
        path = write_pack(tmp_path / "pack", with_speech_faults(clean_items(20), 1, faults)[0])
    own = DataOptions((str(path),), workers=1)
    run_data(own, {**JSON, "output": str(tmp_path / "whole.json")})
    own = own._replace(resume=str(tmp_path / "kept"))
    done: list[rows.Piece] = []

    def dies_at_the_third(plan: inputs.Plan, piece: rows.Piece) -> Partial:
        done.append(piece)
        if len(done) == 3:
            raise KeyboardInterrupt
        return part(plan, piece)

    part = running.partial_of
    monkeypatch.setattr(running, "partial_of", dies_at_the_third)
    with pytest.raises(KeyboardInterrupt):
        run_data(own, JSON)
    kept = sorted((tmp_path / "kept").iterdir())
    assert len(kept) == 2
    kept[0].write_bytes(kept[0].read_bytes()[:100])  # a disk that was full
    run_data(own, {**JSON, "output": str(tmp_path / "again.json")})
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "whole.json").read_bytes()
    assert len(set(done)) == len(done) - 2  # the third piece and the one whose file was broken are done twice
    done.clear()
    run_data(own, JSON)
    assert done == []
    with pytest.raises(KeyboardInterrupt):  # with other options all is done again
        run_data(own._replace(near=False), JSON)
