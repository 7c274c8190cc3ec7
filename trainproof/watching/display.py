"""What a watch shows: on a terminal one live line a run, anywhere else a line when a verdict changes."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from trainproof.output import print_text, terminal_width
from trainproof.report.escape import clipped, printable, shown
from trainproof.report.spark import ASCII_BLOCKS, BLOCKS, sparkline
from trainproof.verdict import Panel, Verdict
from trainproof.watching.run import Run

SPARK_WIDTH = 24
LONGEST_NAME = 40
_COLORS = {Verdict.FAIL: "31", Verdict.WARN: "33", Verdict.PASS: "32", Verdict.SKIP: "2"}


class Display:
    """Shows runs on standard output."""

    def __init__(self, live: bool, color: bool) -> None:
        self._live, self._color = live, color
        self._lines = 0  # on the terminal, to be drawn over
        self._shown: dict[int, Verdict] = {}

    def show(self, runs: Sequence[Run], now: float) -> None:
        """The runs as they stand; `now` is in seconds of the watch's clock."""
        if self._live:
            self._draw(runs, now)
            return
        for run in runs:
            if self._shown.get(id(run), Verdict.SKIP) is not run.verdict:
                self._shown[id(run)] = run.verdict
                print_text(self._changed(run) + "\n")

    def _changed(self, run: Run) -> str:
        said = f": {printable(_said(run))}" if run.findings else ""
        return f"{printable(run.name)}  step {run.step}  {self._verdict(run)}{said}"

    def _draw(self, runs: Sequence[Run], now: float) -> None:
        up = f"\x1b[{self._lines}A" if self._lines else ""
        lines = [f"\x1b[2K{self._line(run, now)}\n" for run in runs]
        print_text(up + "".join(lines))
        self._lines = len(lines)

    def _line(self, run: Run, now: float) -> str:
        """One run in one line of the terminal: name, curve, step, loss, time to go, verdict and the first finding."""
        parts = [clipped(run.name, LONGEST_NAME), _spark(run), f"step {run.step}"]
        if run.loss is not None:
            parts.append(f"loss {shown(run.loss)}")
        if (eta := run.eta(now)) is not None:
            parts.append(f"ETA {duration(eta)}")
        text = "  ".join(part for part in parts if part)
        rest = terminal_width() - len(text) - len(run.verdict.value) - 3
        said = clipped(_said(run), rest) if run.findings and rest > 20 else ""
        return f"{text}  {self._verdict(run)}{' ' + said if said else ''}"

    def _verdict(self, run: Run) -> str:
        return f"\x1b[{_COLORS[run.verdict]}m{run.verdict.value}\x1b[0m" if self._color else run.verdict.value


def _said(run: Run) -> str:
    finding = run.findings[0]
    return f"{finding.rule} {finding.name} at step {finding.flagged_step}: {finding.message}"


def _spark(run: Run) -> str:
    """The latest losses."""
    if len(run.losses) < 2 or run.losses[0][0] >= run.losses[-1][0]:
        return ""
    steps, values = zip(*run.losses, strict=True)
    encoding = (sys.stdout and sys.stdout.encoding) or "utf-8"
    blocks = BLOCKS if encoding.lower().startswith("utf") else ASCII_BLOCKS
    return sparkline(Panel("loss", "", (("loss", steps, values),)), SPARK_WIDTH, blocks)


def duration(seconds: float) -> str:
    """Seconds for people: 45s, 12m, 3h05, 2d04h."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f}s"
    if minutes < 90:
        return f"{minutes}m"
    hours = minutes // 60
    return f"{hours}h{minutes % 60:02}" if hours < 48 else f"{hours // 24}d{hours % 24:02}h"
