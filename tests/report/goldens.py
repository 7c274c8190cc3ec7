"""What the text report looks like, kept in files so that a change of it is seen in review.

python -m tests.report.goldens --write
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from tests.report import corpus
from trainproof.report.text import render_text

FOLDER = Path(__file__).parent.parent / "data" / "goldens"

GOLDENS: dict[str, Callable[[], str]] = {
    "pass": lambda: render_text(corpus.healthy()),
    "fail": lambda: render_text(corpus.diverged()),
    "fail-color": lambda: render_text(corpus.diverged(), color=True),
    "fail-narrow": lambda: render_text(corpus.diverged(), width=60),
    "fail-ascii": lambda: render_text(corpus.dead(), encoding="ascii"),
    "several": lambda: render_text(corpus.several()),
    "several-quiet": lambda: render_text(corpus.several(), quiet=True),
    "nothing": lambda: render_text(corpus.nothing()),
    "one-record": lambda: render_text(corpus.one_record()),
    "hostile": lambda: render_text(corpus.hostile()),
}


def path(name: str) -> Path:
    return FOLDER / f"{name}.txt"


def write() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for old in FOLDER.glob("*.txt"):
        old.unlink()
    for name, render in GOLDENS.items():
        path(name).write_text(render(), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit("usage: python -m tests.report.goldens --write")
    write()
