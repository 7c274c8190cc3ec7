"""The work on a local Ray cluster of two nodes gives the bytes of one process, also when a worker is killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.preflight.helpers import jsonl
from tools.speech_faults import clean_items, write_pack
from tools.text_faults import CHAT_FAULTS, clean_chats, with_faults, write
from trainproof.preflight import inputs, rows
from trainproof.preflight.found import Options, merged
from trainproof.preflight.running import run_pieces
from trainproof.preflight_command import DataOptions, run_data

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.filterwarnings("ignore"),  # Ray's own
]
JSON = {"output_format": "json", "no_html": True, "quiet": True}


@pytest.fixture(scope="module")
def _cluster() -> Iterator[None]:
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, log_to_driver=False)
    assert len(ray.nodes()) == 2
    yield
    ray.shutdown()
    cluster.shutdown()


@pytest.mark.usefixtures("_cluster")
@pytest.mark.parametrize("kind", ["chat", "speech", "guarded"])
def test_ray_gives_the_bytes_of_one_process(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "PIECE_BYTES", 50_000)
    monkeypatch.setattr(inputs, "CLIPS", 5)
    if kind == "chat":
        path = write(tmp_path / "chats.jsonl", with_faults(list(clean_chats(400)), CHAT_FAULTS, 2)[0])
    else:
        path = write_pack(tmp_path / "pack", clean_items(20))
        if kind == "guarded":  # a sound that another decoder than our own has to read, and cannot
            (path / "wavs" / "noise.flac").write_bytes(b"fLaC" + bytes(1000))
            (path / "metadata.csv").unlink()
            sounds = sorted((path / "wavs").iterdir())
            path = jsonl(
                path / "manifest.jsonl",
                *({"audio_filepath": str(sound), "text": f"{sound.stem} says it."} for sound in sounds),
            )
    assert inputs.plan_of([str(path)], [], None, Options()).guarded == (kind == "guarded")
    own = DataOptions((str(path),), workers=1, rejects=str(tmp_path / "own.rejects"))
    run_data(own, {**JSON, "output": str(tmp_path / "own.json")})
    own = own._replace(engine="ray", resume=str(tmp_path / "kept"), rejects=str(tmp_path / "ray.rejects"))
    run_data(own, {**JSON, "output": str(tmp_path / "ray.json")})
    assert (tmp_path / "ray.json").read_bytes() == (tmp_path / "own.json").read_bytes()
    assert (tmp_path / "ray.rejects").read_bytes() == (tmp_path / "own.rejects").read_bytes()
    assert len(list((tmp_path / "kept").iterdir())) > 3


@pytest.mark.usefixtures("_cluster")
def test_a_worker_of_ray_that_is_killed_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from trainproof.preflight.on_ray import run_on_ray

    monkeypatch.setattr(rows, "PIECE_BYTES", 200_000)
    path = write(tmp_path / "chats.jsonl", with_faults(list(clean_chats(6000)), CHAT_FAULTS, 2)[0])
    plan = inputs.plan_of([str(path)], [], None, Options())
    killed: list[int] = []

    def kill_once() -> None:
        if not killed and (workers := _working(os.getpid())):
            os.kill(workers[0], signal.SIGKILL)
            killed.append(workers[0])

    through_ray = merged(run_on_ray(plan, plan.pieces, 2, kill_once))
    alone = merged(run_pieces(plan, plan.pieces, 1))
    assert killed
    assert (through_ray.rows, through_ray.places) == (alone.rows, alone.places)
    assert repr(through_ray.examples) == repr(alone.examples)


def _working(ancestor: int) -> list[int]:
    """The processes below this one that run a task of Ray."""
    parents, titles = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            titles[int(folder.name)] = (folder / "cmdline").read_bytes()
        except OSError:
            continue
    below = {ancestor}
    while more := {process for process, parent in parents.items() if parent in below} - below:
        below |= more
    return [process for process in below if titles.get(process, b"").startswith(b"ray::Map")]
