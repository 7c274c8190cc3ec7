"""The CLI reference: the commands' own help."""

from __future__ import annotations

import os
import subprocess
import sys

COMMANDS = (
    *((), ("epoch",), ("watch",), ("compare",), ("checkpoint",), ("data",), ("merge",), ("objective",), ("tokenizer",)),
    *(("env",), ("resume",), ("record-check",), ("record",), ("replay",), ("bisect",)),
    *(("baseline",), ("baseline", "add"), ("rule",), ("rules",)),
)


def cli_reference() -> str:
    """docs/cli.md: `--help` of the program and of each command, at 100 columns."""
    parts = ["# Command line", "", "Made by `make write-generated` from `--help`.", ""]
    for command in COMMANDS:
        parts += [f"## trainproof {' '.join(command)}".rstrip(), "", "```", help_of(command), "```", ""]
    return "\n".join(parts)


def help_of(command: tuple[str, ...]) -> str:
    environment = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"}
    run = subprocess.run(
        [sys.executable, "-m", "trainproof", *command, "--help"],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
        encoding="utf-8",
    )
    usage = run.stdout.replace("python -m trainproof", "trainproof")
    return "\n".join(line.rstrip() for line in usage.strip().splitlines())
