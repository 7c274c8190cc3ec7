"""The logs that the benchmark reads: made here, with a fixed seed."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trainproof.readers.tfrecord import crc32c, masked

SEED = 20260101
BLOCK = 10_000


def records(n: int, seed: int = 0) -> Iterator[dict[str, float]]:
    """A healthy run of n records: a falling loss with noise, warm-up and linear decay of the learning rate."""
    random = np.random.default_rng(SEED + seed)
    for begin in range(0, n, BLOCK):
        size = min(BLOCK, n - begin)
        at = np.arange(begin + 1, begin + size + 1)
        loss = (1.15 + 0.65 * np.exp(-5 * at / n)) * random.lognormal(0, 0.1, size)
        norm = random.lognormal(0, 0.3, size)
        rate = 5e-5 * np.minimum(at / (0.05 * n), (n - at) / (0.95 * n))
        for step, *values in zip(at.tolist(), loss.tolist(), norm.tolist(), rate.tolist(), strict=True):
            yield {
                "step": step,
                **dict(zip(("loss", "grad_norm", "learning_rate"), values, strict=True)),
                "epoch": 10 * step / n,
                "tokens": 4096 * step,
            }


def write_jsonl(path: Path, n: int, seed: int = 0) -> Path:
    with path.open("w") as log:
        for record in records(n, seed):
            log.write(json.dumps(record) + "\n")
    return path


def write_trainer_state(path: Path, n: int, seed: int = 0) -> Path:
    """As the HF Trainer writes it: indented by 2, keys sorted, an evaluation every hundredth record, a closing summary."""
    history: list[dict[str, float]] = []
    for record in records(n, seed):
        del record["tokens"]
        if record["step"] % 100:
            history.append(record)
        else:
            history.append({"epoch": record["epoch"], "eval_loss": record["loss"], "step": record["step"] - 1})
    history.append({"epoch": 10.0, "step": n, "train_loss": 1.3, "train_runtime": 3600.0, "total_flos": 1e15})
    state = {"best_metric": None, "global_step": n, "log_history": history, "max_steps": n, "num_train_epochs": 10}
    path.write_text(json.dumps(state, indent=2, sort_keys=True) + "\n")
    return path


#: how two loggers print a record
SPEEDRUN_LINE = "step:{step}/2000000 train_loss:{loss:.4f} lr:{learning_rate:.6f} grad_norm:{grad_norm:.4f} train_time:{tokens}ms step_avg:163.40ms\n"
MEGATRON_LINE = (
    " [2026-05-28 10:03:49] iteration {step:8d}/ 2000000 | consumed samples: {tokens:12d} | elapsed time per iteration (ms): 10223.0 | "
    "learning rate: {learning_rate:.6E} | global batch size:    64 | lm loss: {loss:.6E} | loss scale: 1.0 | grad norm: {grad_norm:.3f} | "
    "number of skipped iterations:   0 | number of nan iterations:   0 |\n"
)
#: the same lines as regular expressions, anchored, with a group a value
SPEEDRUN_SCAN = rb"(?m)^step:(\d+)/(\d+) train_loss:(\S+) lr:(\S+) grad_norm:(\S+) train_time:(\S+)ms step_avg:(\S+)ms$"
MEGATRON_SCAN = (
    rb"(?m)^ \[[^\]]*\] iteration +(\d+)/ *(\d+) \| consumed samples: +(\d+) \| elapsed time per iteration \(ms\): (\S+) \| "
    rb"learning rate: (\S+) \| global batch size: +(\d+) \| lm loss: (\S+) \| loss scale: (\S+) \| grad norm: (\S+) \| "
    rb"number of skipped iterations: +(\d+) \| number of nan iterations: +(\d+) \|$"
)
#: what other lines a console shows between the records
CHATTER = "2026-05-28 10:03:50 INFO worker 3 of 16: shard 00017 of the corpus is done, 123456 documents, the next one is being fetched\n"


def write_console(path: Path, line: str, megabytes: int, chatter: int = 0) -> Path:
    """Records as console output, with `chatter` other lines before each."""
    size = 0
    with path.open("w") as log:
        for record in records(2_000_000):
            text = CHATTER * chatter + line.format(**record)
            size += log.write(text)
            if size >= megabytes * 10**6:
                return path
    return path


def write_events(path: Path, n: int) -> Path:
    """Scalars of three tags as PyTorch writes them, one an event, all of one size."""
    random = np.random.default_rng(SEED)
    version = struct.pack("<Bd", 9, 1.7e9) + b"\x1a\x0dbrain.Event:2"
    with path.open("wb") as log:
        log.write(_framed([version]))
        for begin in range(0, n, BLOCK):
            events = [
                struct.pack("<BdB3s", 9, 1.7e9 + step, 16, _three_bytes(step))
                + b"\x2a\x13\x0a\x11\x0a\x0a"
                + tag
                + b"\x15"
                + struct.pack("<f", value)
                for step in range(2**14 + begin, 2**14 + min(begin + BLOCK, n))
                for tag, value in zip(
                    (b"train/loss", b"train/lr_0", b"train/norm"), random.random(3).tolist(), strict=True
                )
            ]
            log.write(_framed(events))
    return path


def _three_bytes(number: int) -> bytes:
    """A varint of three bytes."""
    return bytes([number & 127 | 128, number >> 7 & 127 | 128, number >> 14])


def _framed(events: list[bytes]) -> bytes:
    """Events of one size as TFRecords."""
    length = struct.pack("<Q", len(events[0]))
    head = length + _checksums(np.frombuffer(length, np.uint8)[:, None])[0]
    columns = np.frombuffer(b"".join(events), np.uint8).reshape(len(events), -1).T
    return b"".join(head + event + crc for event, crc in zip(events, _checksums(columns), strict=True))


def _checksums(columns: NDArray[np.uint8]) -> list[bytes]:
    return [struct.pack("<I", int(crc)) for crc in masked(crc32c(np.ascontiguousarray(columns)))]
