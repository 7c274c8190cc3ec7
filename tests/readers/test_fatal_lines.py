"""Which lines of a text log say that the run came to grief, and which only look like it."""

from __future__ import annotations

import pytest

from tests.readers.logs import pour, read_bytes
from trainproof.frame import Event, Source

TRACEBACK = 'Traceback (most recent call last):\n  File "/home/me/train.py", line 102, in <module>\n    main()\n'


def nanogpt(*after: str, before: str = "", start: int = 4) -> str:
    records = "".join(f"iter {i}: loss {start - i / 20:.4f}, time 263.56ms, mfu -100.00%\n" for i in range(30))
    return before + records + "".join(f"{line}\n" for line in after)


def coqui(*after: str) -> str:
    records = "".join(
        f"   --> STEP: {i}/200 -- GLOBAL_STEP: {i}\n     | > loss: {4 - i / 20:.4f}  (4.0)\n" for i in range(30)
    )
    return records + "".join(f"{line}\n" for line in after)


def events(text: str, format_name: str = "nanogpt") -> tuple[Event, ...]:
    return read_bytes(format_name, text.encode()).events


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("exception", f"{TRACEBACK}ValueError: shapes (3,4) and (5,) are not aligned"),
        ("exception", "[rank3]: " + TRACEBACK.replace("\n", "\n[rank3]: ") + "mypackage.errors.DataError: the shard is empty"),
        ("exception", "7: " + TRACEBACK.replace("\n", "\n7: ") + "KeyError: 'labels'"),
        ("out-of-memory", f"{TRACEBACK}torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0)"),
        ("out-of-memory", "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB"),
        ("out-of-memory", "2023-06-30 14:18:28 | WARNING | fairseq.trainer | OOM: Ran out of memory with exception: CUDA out of memory."),
        ("out-of-memory", "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=123.batch."),
        ("collective-failed", "[E ProcessGroupNCCL.cpp:828] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5)"),
        ("collective-failed", f"{TRACEBACK}torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1333, remote process exited"),
        ("nonfinite-stop", "Loss is nan, stopping training"),
        ("nonfinite-stop", "[10:00:00.123456] Loss is inf, stopping training"),
        ("nonfinite-stop", "FloatingPointError: Loss became infinite or NaN at iteration=1234!"),
        ("nonfinite-stop", "Batch 23: Invalid loss, terminating training"),
        ("minimum-loss-scale", f"{TRACEBACK}FloatingPointError: Minimum loss scale reached (0.0001). Your loss is probably exploding."),
        ("killed", "run.sh: line 63: 183058 Killed                  python train.py"),
        ("killed", "Killed"),
        ("crashed", "Segmentation fault (core dumped)"),
        ("xid-79", "[123.4] NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus."),
    ],
)  # fmt: skip
def test_what_ends_a_run_is_told_with_its_line(kind: str, line: str) -> None:
    (event,) = events(nanogpt(*line.split("\n")))
    assert (event.kind, event.text, event.line) == (kind, line.split("\n")[-1], 30 + line.count("\n") + 1)


@pytest.mark.parametrize(
    "line",
    [
        f"{TRACEBACK}KeyboardInterrupt",
        f"{TRACEBACK}torch.distributed.elastic.multiprocessing.api.SignalException: Process 7689 got signal: 15",
        f"{TRACEBACK}SystemExit: 0",
        f"Exception ignored in: <function tqdm.__del__ at 0x7f>\n{TRACEBACK}AttributeError: 'tqdm' object has no attribute 'disp'",
        "NOTE: gradient overflow detected, ignoring gradient, setting loss scale to: 256.0",
        "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768",
        "UserWarning: Loss is nan-safe",
        '    raise RuntimeError("CUDA out of memory")',
        'print("Loss is {}, stopping training".format(loss_value))',
        "stopping_early: wallclock_cap train_time:600038ms step:11564/20000",
        "slurmstepd: error: *** JOB 123 ON node1 CANCELLED AT 2024-01-01T00:00:00 DUE TO TIME LIMIT ***",
        "W0327 17:28:13.771000 130460598003520 server/api.py:688] Received 15 death signal, shutting down workers",
        "the words Killed, Error and Traceback (most recent call last) in a sentence",
    ],
)
def test_what_only_looks_like_it_is_not(line: str) -> None:
    assert events(nanogpt(*line.split("\n"))) == ()


def test_other_ranks_that_fall_with_an_interrupted_one_are_no_failure() -> None:
    ranks = f"{TRACEBACK}KeyboardInterrupt\n[rank1]: {TRACEBACK}RuntimeError: NCCL communicator was aborted"
    assert events(nanogpt(*ranks.split("\n"))) == ()


@pytest.mark.parametrize(
    "line", [f"{TRACEBACK}ModuleNotFoundError: No module named 'wandb'", "RuntimeError: CUDA out of memory."]
)
def test_what_training_recovered_from_is_not_told(line: str) -> None:
    assert events(nanogpt(before=f"{line}\n")) == ()


def test_a_loss_that_stopped_the_run_is_told_even_when_another_run_follows() -> None:
    text = nanogpt(before=nanogpt("Loss is nan, stopping training"), start=5)
    first, second = pour("nanogpt", text.encode()).build(Source("log", "nanogpt"))
    assert [event.line for event in first.events] == [31]
    assert second.events == ()


def test_a_foreign_line_in_a_traceback_is_passed_over() -> None:
    text = nanogpt(*TRACEBACK.rstrip("\n").split("\n"), "wandb: Waiting for the process to finish", "ValueError: no")
    assert [(event.text, event.line) for event in events(text)] == [("ValueError: no", 35)]


def test_an_exception_after_the_last_planned_step_is_not_the_trainings() -> None:
    lines = [f"step {i}/30 | loss {4 - i / 20:.4f} | norm 1.0" for i in range(1, 31)]
    text = "\n".join([*lines, TRACEBACK.rstrip("\n"), "OSError: the hub does not answer", ""])
    assert events(text) == ()
    assert [event.kind for event in events(text.replace("/30 |", "/99 |"))] == ["exception"]


def test_coqui_logs_are_watched_too() -> None:
    lines = f"{TRACEBACK}RuntimeError: CUDA out of memory. Tried to allocate 20 MiB".split("\n")
    (event,) = events(coqui(*lines), "coqui")
    assert (event.kind, event.line) == ("out-of-memory", 64)
    assert events(coqui(*f" ! Run is kept\n{TRACEBACK}KeyboardInterrupt".split("\n")), "coqui") == ()
