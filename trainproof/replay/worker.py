"""A fresh process for each experiment: what it is asked for comes as JSON, what it found goes back as JSON, tensors by checkpoint.

python -m trainproof.replay.worker REQUEST ANSWER
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from trainproof.errors import InputError, TrainproofError, UsageError

#: seconds between two looks at processes that run
POLL = 0.02
#: what a worker can be asked for -> the function that does it
TASKS = {
    "reference": "trainproof.replay.resuming:run_reference",
    "resumed": "trainproof.replay.resuming:run_resumed",
    "twice": "trainproof.replay.checking:run_once",
    "record": "trainproof.replay.recording:run_recorded",
    "forensic": "trainproof.replay.forensic:run_forensic",
    "try": "trainproof.replay.bisecting:run_try",
    "bisect": "trainproof.replay.bisecting:run_bisect",
}


def ask(
    task: str,
    request: dict[str, Any],
    *,
    environment: dict[str, str] | None = None,
    echo: bool = False,
    ranks: int = 1,
) -> Any:
    """Do a task in a fresh process and return its answer. echo: let the job's own output through, to standard error. ranks: do it in so many
    processes at once, which find each other by the variables that torch.distributed reads; the answer is that of rank 0.

    Raises InputError in one line when the task failed or a process died.
    """
    with tempfile.TemporaryDirectory(prefix="trainproof-") as folder:
        question = Path(folder) / "request.json"
        question.write_text(json.dumps({"task": task, **request}))
        answers = [Path(folder) / f"answer-{rank}.json" for rank in range(ranks)]
        errors = [Path(folder) / f"error-{rank}" for rank in range(ranks)]
        together = _together(ranks) if ranks > 1 else {}
        started = []
        for rank, (answer, error) in enumerate(zip(answers, errors, strict=True)):
            own = {"RANK": str(rank), "LOCAL_RANK": str(rank)} if ranks > 1 else {}
            with error.open("wb") as stderr:
                started.append(
                    subprocess.Popen(  # noqa: S603  our own module, by this interpreter
                        [sys.executable, "-m", "trainproof.replay.worker", str(question), str(answer)],
                        env={**os.environ, "PYTHONPATH": _path(), **together, **own, **(environment or {})},
                        stdin=subprocess.DEVNULL,
                        stdout=sys.stderr if echo else subprocess.DEVNULL,
                        stderr=None if echo else stderr,
                    )
                )
        _ended(started)
        said = [_said(*one) for one in zip(started, answers, errors, strict=True)]
    # what a rank says of itself goes before what became of those that waited for it
    failed = max((one for one in said if "error" in one), key=lambda one: one["told"], default=None)
    if failed is not None:
        raise (UsageError if failed["usage"] else InputError)(failed["error"])
    return said[0]["answer"]


def _path() -> str:
    return os.pathsep.join(path for path in sys.path if path)


def _together(ranks: int) -> dict[str, str]:
    """The variables by which processes of one machine find each other; on a port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}


def _ended(started: list[subprocess.Popen[bytes]]) -> None:
    """Wait for all; where one fails or the user interrupts, the others, who would wait for it, are ended."""
    try:
        while None in (codes := [process.poll() for process in started]) and not any(codes):
            time.sleep(POLL)
    finally:
        for process in started:
            if process.poll() is None:
                process.terminate()
            process.wait()


def _said(process: subprocess.Popen[bytes], answer: Path, error: Path) -> dict[str, Any]:
    if answer.exists():
        said: dict[str, Any] = json.loads(answer.read_text())
        return said
    last = error.read_text("utf-8", "replace").strip().splitlines()[-1:]
    told = f"the job's process ended with code {process.returncode}{f': {last[0][:300]}' if last else ''}"
    return {"error": told, "usage": False, "told": False}


def main(question: str, answer: str) -> int:
    request = json.loads(Path(question).read_text())
    module, _, name = TASKS[request.pop("task")].partition(":")
    task: Callable[..., Any] = getattr(import_module(module), name)
    try:
        said = {"answer": task(**request)}
    except TrainproofError as error:
        said = {"error": str(error), "usage": isinstance(error, UsageError), "told": True}
    written = Path(answer).with_suffix(".tmp")
    written.write_text(json.dumps(said))
    written.rename(answer)
    return int("error" in said)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
