"""`--exec`: a command for each finding, which never holds up the watch."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from typing import NamedTuple

import msgspec

from trainproof.output import tell
from trainproof.report.escape import printable
from trainproof.verdict import Finding

#: seconds after which a command is killed
TIMEOUT = 30.0


class _Started(NamedTuple):
    process: subprocess.Popen[bytes]
    until: float


class Commands:
    """Runs `command` in a shell: the finding as JSON on standard input, its parts in TRAINPROOF_RULE, _SEVERITY, _STEP, _SOURCE, _MESSAGE."""

    def __init__(self, command: str | None, timeout: float = TIMEOUT) -> None:
        self._command, self._timeout = command, timeout
        self._started: list[_Started] = []

    def run(self, source: str, finding: Finding) -> None:
        """Start the command for one finding."""
        if self._command is None:
            return
        with tempfile.TemporaryFile() as given:  # a pipe that nobody reads would fill up and block
            given.write(msgspec.json.encode({"source": source, **msgspec.to_builtins(finding)}) + b"\n")
            given.seek(0)
            try:
                process = subprocess.Popen(  # noqa: S602  the user's own command line
                    self._command, shell=True, stdin=given, env=_environment(source, finding), start_new_session=True
                )
            except OSError as error:
                tell(f"--exec: {error.strerror or error}")
                return
        self._started.append(_Started(process, time.monotonic() + self._timeout))

    def look_after(self) -> None:
        """Forget the commands that have ended, and kill those that take too long."""
        self._started = [started for started in self._started if not self._is_over(started)]

    def wait(self) -> None:
        """Wait for all that runs, no longer than the time-out."""
        while self._started:
            with suppress(subprocess.TimeoutExpired):
                self._started[0].process.wait(max(0.0, self._started[0].until - time.monotonic()))
            self.look_after()

    def _is_over(self, started: _Started) -> bool:
        if started.process.poll() is not None:
            return True
        if time.monotonic() < started.until:
            return False
        tell(f"--exec: killed after {self._timeout:g} s")
        with suppress(ProcessLookupError):
            os.killpg(started.process.pid, signal.SIGKILL)
        started.process.wait()
        return True


def _environment(source: str, finding: Finding) -> dict[str, str]:
    parts = {
        "RULE": finding.rule,
        "SEVERITY": finding.severity.value,
        "STEP": str(finding.flagged_step),
        "SOURCE": source,
        "MESSAGE": finding.message,
    }
    return {**os.environ, **{f"TRAINPROOF_{name}": printable(value) for name, value in parts.items()}}
