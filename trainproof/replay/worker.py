"""A fresh process for each experiment: what it is asked for comes as JSON, what it found goes back as JSON, tensors by checkpoint.

python -m trainproof.replay.worker REQUEST ANSWER
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from trainproof.errors import InputError, TrainproofError, UsageError

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


def ask(task: str, request: dict[str, Any], *, environment: dict[str, str] | None = None, echo: bool = False) -> Any:
    """Do a task in a fresh process and return its answer. echo: let the job's own output through, to standard error.

    Raises InputError in one line when the task failed or the process died.
    """
    with tempfile.TemporaryDirectory(prefix="trainproof-") as folder:
        question, answer = Path(folder) / "request.json", Path(folder) / "answer.json"
        question.write_text(json.dumps({"task": task, **request}))
        command = [sys.executable, "-m", "trainproof.replay.worker", str(question), str(answer)]
        done = subprocess.run(  # noqa: S603  our own module, by this interpreter
            command,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr if echo else subprocess.DEVNULL,
            stderr=None if echo else subprocess.PIPE,
            check=False,
        )
        if not answer.exists():
            last = (done.stderr or b"").decode("utf-8", "replace").strip().splitlines()[-1:]
            raise InputError(
                f"the job's process ended with code {done.returncode}{f': {last[0][:300]}' if last else ''}"
            )
        said = json.loads(answer.read_text())
    if "error" in said:
        raise (UsageError if said["usage"] else InputError)(said["error"])
    return said["answer"]


def main(question: str, answer: str) -> int:
    request = json.loads(Path(question).read_text())
    module, _, name = TASKS[request.pop("task")].partition(":")
    task: Callable[..., Any] = getattr(import_module(module), name)
    try:
        said = {"answer": task(**request)}
    except TrainproofError as error:
        said = {"error": str(error), "usage": isinstance(error, UsageError)}
    written = Path(answer).with_suffix(".tmp")
    written.write_text(json.dumps(said))
    written.rename(answer)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
