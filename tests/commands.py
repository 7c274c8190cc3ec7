"""The command line as a test runs it: in this process, with what it wrote and its exit code."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from trainproof import cli


class Ran(NamedTuple):
    """What a command left: its exit code and what it wrote."""

    code: int
    out: str
    err: str

    @property
    def report(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.out)
        return document

    @property
    def run(self) -> dict[str, Any]:
        """The one run of the report."""
        (only,) = self.report["runs"]
        return dict(only)


Run = Callable[..., Ran]


def runner(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """`run("epoch", ...)`: no command may end with a traceback."""

    def run(*arguments: str) -> Ran:
        monkeypatch.setattr(sys, "argv", ["trainproof", *arguments])
        with pytest.raises(SystemExit) as done:
            cli.main()
        out, err = capfd.readouterr()
        assert "Traceback" not in err
        return Ran(int(done.value.code or 0), out, err)

    return run
