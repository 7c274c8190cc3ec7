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
from trainproof.plugins import described
from trainproof.record.goal import VARIABLE
from trainproof.record.tape import Script

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
    "counterfactual": "trainproof.replay.fresh:run_counterfactual",
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
        commands = [["-m", "trainproof.replay.worker", str(question), str(answer)] for answer in answers]
        codes, last = _run(commands, {"PYTHONPATH": _path(), **(environment or {})}, None, echo)
        said = [_said(*one) for one in zip(codes, last, answers, strict=True)]
    # what a rank says of itself goes before what became of those that waited for it
    failed = max((one for one in said if "error" in one), key=lambda one: one["told"], default=None)
    if failed is not None:
        raise (UsageError if failed["usage"] else InputError)(failed["error"])
    return said[0]["answer"]


def rerun(script: Script, goal: dict[str, Any], recorded: str, ranks: int) -> None:
    """Run a script that records itself again, for a goal (trainproof.record.goal). Where it ends at an evaluation, the other ranks end with
    rank 0. Raises InputError in one line when it fails."""
    command = [*(["-m", script.module] if script.module else [script.file]), *script.arguments]
    led = goal.get("level") is not None
    with tempfile.TemporaryDirectory(prefix="trainproof-") as folder:
        told = Path(folder) / "goal.json"
        told.write_text(json.dumps(goal))
        environment = {VARIABLE: str(told), "TRAINPROOF_RUN": recorded, "PYTHONPATH": _path()}
        codes, last = _run([command] * ranks, environment, script.folder, False, led)
    ended = list(zip(codes, last, strict=True))
    # one that was ended by us says nothing of why
    for code, line in [] if led and codes[0] == 0 else sorted(ended, key=lambda one: one[0] < 0):
        if code:
            raise InputError(f"{script.file} ended with code {code}{f': {line}' if line else ''}")


def _run(
    commands: list[list[str]], environment: dict[str, str], folder: str | None, echo: bool, led: bool = False
) -> tuple[list[int], list[str]]:
    """Run Python at once with each command, one a rank; their exit codes and the last lines of what they wrote to standard error. led: all are
    done when rank 0 is."""
    ranks = len(commands)
    together = _together(ranks) if ranks > 1 else {}
    started = []
    with tempfile.TemporaryDirectory(prefix="trainproof-") as place:
        errors = [Path(place) / f"error-{rank}" for rank in range(ranks)]
        for rank, (command, error) in enumerate(zip(commands, errors, strict=True)):
            own = {"RANK": str(rank), "LOCAL_RANK": str(rank)} if ranks > 1 else {}
            with error.open("wb") as stderr:
                started.append(
                    subprocess.Popen(  # noqa: S603  our own module or the user's own script, by this interpreter
                        [sys.executable, *command],
                        env={**os.environ, **together, **own, **environment},
                        cwd=folder,
                        stdin=subprocess.DEVNULL,
                        stdout=sys.stderr if echo else subprocess.DEVNULL,
                        stderr=None if echo else stderr,
                    )
                )
        _ended(started, led)
        texts = [error.read_text("utf-8", "replace").strip() for error in errors]
    return [process.returncode for process in started], [text.splitlines()[-1][:300] if text else "" for text in texts]


def _path() -> str:
    return os.pathsep.join(path for path in sys.path if path)


def _together(ranks: int) -> dict[str, str]:
    """The variables by which processes of one machine find each other; on a port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}


def _ended(started: list[subprocess.Popen[bytes]], led: bool) -> None:
    """Wait for all; where one fails, where rank 0 is done and leads, or the user interrupts, the others, who would wait, are ended."""
    try:
        while None in (codes := [process.poll() for process in started]) and not any(codes):
            if led and codes[0] == 0:
                break
            time.sleep(POLL)
    finally:
        for process in started:
            if process.poll() is None:
                process.terminate()
            process.wait()


def _said(code: int, last: str, answer: Path) -> dict[str, Any]:
    if answer.exists():
        said: dict[str, Any] = json.loads(answer.read_text())
        return said
    told = f"the job's process ended with code {code}{f': {last}' if last else ''}"
    return {"error": told, "usage": False, "told": False}


def main(question: str, answer: str) -> int:
    request = json.loads(Path(question).read_text())
    module, _, name = TASKS[request.pop("task")].partition(":")
    task: Callable[..., Any] = getattr(import_module(module), name)
    try:
        said = {"answer": task(**request)}
    except TrainproofError as error:
        said = {"error": str(error), "usage": isinstance(error, UsageError), "told": True}
    except Exception as error:  # what a recording or a job holds that nobody thought of costs one line, too
        said = {"error": f"{name}: {described(error)}", "usage": False, "told": True}
    written = Path(answer).with_suffix(".tmp")
    written.write_text(json.dumps(said))
    written.rename(answer)
    return int("error" in said)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
