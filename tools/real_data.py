"""False alarms on real data that packages ship: texts of the documentation on this machine, and recorded prompts.

python -m tools.real_data texts ROOT...   (documentation below the roots: README, licences, manuals; as documents and as paragraphs)
python -m tools.real_data sounds FOLDER   (where Debian's asterisk-core-sounds-*-wav and asterisk-core-sounds-en are unpacked by dpkg -x)

Prints what is told of each set: severity, check, count, and the first places.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from trainproof.judge import Settings
from trainproof.preflight.found import Found, Options
from trainproof.preflight.inputs import plan_of
from trainproof.preflight.judging import judge_found
from trainproof.preflight.running import run_pieces, whole_of

_ENDINGS = (".md", ".rst", ".txt")
_NAMES = ("readme", "license", "licence", "copying", "copyright", "changelog", "metadata", "news", "authors")
MOST_BYTES = 1 << 20


def documents(roots: Iterable[str]) -> Iterator[str]:
    """Texts below folders, each once, in UTF-8 only."""
    seen: set[str] = set()
    for root in roots:
        for folder, below, names in os.walk(root):
            below.sort()
            for name in sorted(names):
                path = Path(folder) / name
                known = name.lower().endswith(_ENDINGS) or name.lower().startswith(_NAMES)
                if not known or name.endswith((".py", ".html", ".gz")) or path.is_symlink():
                    continue
                try:
                    text = path.read_text("utf-8") if path.stat().st_size < MOST_BYTES else ""
                except (OSError, UnicodeDecodeError):
                    continue
                if text.strip() and text not in seen:
                    seen.add(text)
                    yield text


def paragraphs(texts: Iterable[str]) -> Iterator[str]:
    """Paragraphs of at least eight words, each once."""
    found = (" ".join(part.split()) for text in texts for part in text.split("\n\n"))
    yield from dict.fromkeys(part for part in found if part.count(" ") >= 7)


def told(path: Path, title: str, workers: int = 1) -> None:
    """Judge a set and print what is told of it."""
    plan = plan_of([str(path)], [], None, Options())
    found = Found(plan.kind, plan.files, whole_of(plan, run_pieces(plan, plan.pieces, workers)), plan.options)
    report = judge_found(found, title, plan.kind, Settings())
    print(f"{title}: {plan.kind}, {found.rows:,} records: {report.verdict}")
    for finding in report.findings:
        first = "; ".join(f"{point.line}: {point.excerpt[:50]}" for point in finding.evidence[:3])
        print(f"  {finding.severity} {finding.rule} {finding.name}: {finding.message} [{first}]")


def judge_texts(roots: list[str]) -> None:
    texts = list(documents(roots))
    with tempfile.TemporaryDirectory() as folder:
        for title, records in (("documents", texts), ("paragraphs", list(paragraphs(texts)))):
            path = Path(folder) / f"{title}.jsonl"
            path.write_text("".join(json.dumps({"text": text}) + "\n" for text in records), encoding="utf-8")
            told(path, title)


def judge_sounds(folder: str) -> None:
    texts = dict(_prompts(Path(folder) / "usr/share/doc/asterisk-core-sounds-en/core-sounds-en.txt.gz"))
    with tempfile.TemporaryDirectory() as work:
        for voice in sorted((Path(folder) / "usr/share/asterisk/sounds").iterdir()):
            rows = []
            for sound in sorted(voice.rglob("*.wav")):
                name = str(sound.relative_to(voice).with_suffix(""))
                text = texts.get(name, name.replace("/", " ").replace("-", " "))
                if not name.startswith("silence") and text[:1] not in "[<(":  # those are tones
                    rows.append(json.dumps({"audio_filepath": str(sound.resolve()), "text": text}) + "\n")
            if rows:
                path = Path(work) / f"{voice.name}.jsonl"
                path.write_text("".join(rows), encoding="utf-8")
                told(path, voice.name)


def _prompts(path: Path) -> Iterator[tuple[str, str]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            name, colon, text = line.partition(":")
            if colon and not line.startswith(";"):
                yield name.strip(), text.strip()


if __name__ == "__main__":
    if sys.argv[1] == "texts":
        judge_texts(sys.argv[2:])
    else:
        judge_sounds(sys.argv[2])
