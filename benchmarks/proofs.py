"""python -m benchmarks.proofs: what recording and replaying cost, and how fast a checkpoint is looked through. Needs torch (`make proofs`).

User CPU seconds of alternating runs are compared, so that other processes of the machine count for nothing; one thread.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.run import Ratio
from trainproof.checkpoint.inspecting import inspect_checkpoint
from trainproof.judge import DEFAULTS
from trainproof.record.codec import Raw
from trainproof.record.framework import torch
from trainproof.record.recorder import Recorder
from trainproof.record.storage import safetensors_of
from trainproof.record.tape import Tape
from trainproof.replay.replaying import Segment, request
from trainproof.replay.worker import ask

MLP = Path(__file__).resolve().parent.parent / "examples" / "bisect" / "mlp.py"
WIDTH, LAYERS, WORDS, LENGTH, BATCH = 256, 4, 512, 64, 16
#: turns of each recorder, and steps of a turn
TURNS, STEPS = 24, 4
REPLAYED_STEPS, REPLAY_TURNS = 2000, 3
GIGABYTE, CHUNK, SCAN_TURNS = 1 << 30, 1 << 24, 5


def cpu(action: Callable[[], object], who: int = resource.RUSAGE_SELF) -> float:
    """User CPU seconds of an action; who: resource.RUSAGE_CHILDREN where it runs in processes of its own."""
    before = resource.getrusage(who).ru_utime
    action()
    return resource.getrusage(who).ru_utime - before


class Training:
    """A transformer of 3.4 million parameters, with AdamW, dropout and clipping."""

    def __init__(self) -> None:
        t = torch()
        t.manual_seed(0)
        layer = t.nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.1, batch_first=True)
        self.model = t.nn.Sequential(
            t.nn.Embedding(WORDS, WIDTH), t.nn.TransformerEncoder(layer, LAYERS), t.nn.Linear(WIDTH, WORDS)
        )
        self.optimizer = t.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.batch = {"words": t.randint(0, WORDS, (BATCH, LENGTH)), "ids": t.arange(BATCH)}

    def steps(self, recorder: Recorder | None) -> None:
        for _ in range(STEPS):
            if recorder is not None:
                recorder.fetched(self.batch)
            with recorder.step() if recorder is not None else nullcontext() as step:
                words = self.batch["words"]
                scores = self.model(words[:, :-1]).transpose(1, 2)
                loss = torch().nn.functional.cross_entropy(scores, words[:, 1:])
                loss.backward()
                torch().nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                self.optimizer.step()
                self.optimizer.zero_grad()
                if step is not None:
                    step.loss(loss)
                else:
                    loss.item()


def recorder(folder: Path) -> list[Ratio]:
    """A training step with a recorder against one without, in alternating turns of the same process."""
    torch().set_num_threads(1)
    plain, hashed, light = Training(), Training(), Training()
    recorders: list[Recorder | None] = [None]
    for job, hashes in ((hashed, True), (light, False)):
        place = folder / f"hashes-{hashes}"
        recorders.append(Recorder(place, model=job.model, optimizer=job.optimizer, hashes=hashes))
    turns: list[list[float]] = []
    for _ in range(TURNS + 1):
        pairs = zip((plain, hashed, light), recorders, strict=True)
        turns.append([_turn(job, own) for job, own in pairs])
    base, all_of_it, order = ([turn[i] for turn in turns[1:]] for i in range(3))
    return [
        _paired("a step recorded with hashes", all_of_it, base, 1.02),
        _paired("a step recorded, order and loss only", order, base, 1.01),
    ]


def _turn(job: Training, own: Recorder | None) -> float:
    return cpu(lambda: job.steps(own)) / STEPS


def _paired(what: str, measured: list[float], base: list[float], limit: float) -> Ratio:
    """The median of the ratios of neighbouring turns, as seconds of a step."""
    ratio = median(a / b for a, b in zip(measured, base, strict=True))
    return Ratio(what, "the same step without", 1e3 * ratio * median(base), 1e3 * median(base), limit, "ms")


def replayed(folder: Path) -> list[Ratio]:
    """A whole small run again from its first checkpoint, against recording it; each in a fresh process."""
    names = {"named": f"{MLP}:make", "settings": {}, "until": REPLAYED_STEPS, "checkpoint_every": 500}
    recorded, again = [], []
    for turn in range(REPLAY_TURNS):
        out = folder / f"run-{turn}"
        recorded.append(_asked({**names, "out": str(out)}))
        tape = Tape(out)
        segment = Segment(0, tape.checkpoints()[0], REPLAYED_STEPS)
        again.append(_asked(request(tape, folder / f"again-{turn}", segment)))
    return [Ratio(f"a run of {REPLAYED_STEPS} steps, replayed once", "recording it", min(again), min(recorded), 1.1)]


def _asked(what: dict[str, Any]) -> float:
    return cpu(lambda: ask("record", what), resource.RUSAGE_CHILDREN)


def scanned(folder: Path) -> list[Ratio]:
    """1 GB of bfloat16 weights: `trainproof checkpoint` against one pass of NumPy over the bytes (a sum), after reading them."""
    path = folder / "model.safetensors"
    rows = np.random.default_rng(0).integers(0x3C00, 0x4000, CHUNK // 2, np.uint16)
    data = memoryview(rows.tobytes())
    tensors = {f"layers.{i}.weight": Raw("bfloat16", (len(rows),), data) for i in range(GIGABYTE // CHUNK)}
    with path.open("wb") as file:
        file.writelines(safetensors_of(tensors))
    turns = [(_seconds(lambda: _pass(path)), _seconds(lambda: _scan(path))) for _ in range(SCAN_TURNS)]
    base, measured = (min(column) for column in zip(*turns, strict=True))
    return [Ratio("1 GB of weights looked through", "one NumPy pass", measured, base, 2.0)]


def _seconds(action: Callable[[], object]) -> float:
    """User and system CPU seconds: reading is the system's work."""
    before = time.process_time()
    action()
    return time.process_time() - before


def _pass(path: Path) -> None:
    buffer = bytearray(CHUNK)
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            np.frombuffer(buffer, np.uint64, count // 8).sum()


def _scan(path: Path) -> None:
    (run, *_) = inspect_checkpoint(str(path), None, DEFAULTS)
    if run.findings:
        raise AssertionError(f"healthy weights were warned of: {run.findings}")


def main() -> int:
    over = 0
    for part in (recorder, replayed, scanned):
        with tempfile.TemporaryDirectory() as folder:
            for row in part(Path(folder)):
                over += row.value > row.limit
                numbers = f"{row.measured:9.3f} {row.unit:>3} {row.base:9.3f} {row.unit:>3}"
                print(f"{row.what:42} {row.against:22} {numbers} {row.value:6.3f} {row.limit:6.2f}", flush=True)
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
