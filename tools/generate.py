"""Rebuild the generated files, or check that they are what the code says: rule pages, EVIDENCE_MATRIX.md, the CLI reference, README's
verdict and table of formats.

python -m tools.generate --check
python -m tools.generate --write
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

from tools.cli_reference import cli_reference
from tools.evidence import evidence_matrix, evidence_of_rules, judged_gallery
from trainproof.api import judge_logs
from trainproof.judge import Settings
from trainproof.readers.base import READERS, reader_for
from trainproof.report.rule_page import EVIDENCE, page, summary
from trainproof.report.text import render_text
from trainproof.rules import own_rules

ROOT = Path(__file__).resolve().parent.parent
#: the run whose verdict README shows
SHOWN_RUN = "examples/gallery/lr_hot/trainer_state.json"


def generated() -> Iterator[tuple[Path, str]]:
    """(path, content) of every generated file; the evidence comes first, since the rules' pages tell it."""
    gallery = ROOT / "examples" / "gallery"
    judged = judged_gallery(gallery)
    yield EVIDENCE, evidence_of_rules(judged)
    for rule in own_rules().values():
        yield ROOT / rule.page, page(rule)
    yield ROOT / "rules" / "README.md", rule_index()
    yield ROOT / "EVIDENCE_MATRIX.md", evidence_matrix(gallery, judged)
    yield ROOT / "docs" / "cli.md", cli_reference()
    yield ROOT / "README.md", with_parts((ROOT / "README.md").read_text(encoding="utf-8"))


def with_parts(readme: str) -> str:
    """README with its generated parts made anew. Raises ValueError when it has no place for one."""
    for name, text in (("verdict", shown_verdict()), ("formats", table_of_formats())):
        opening, closing = f"<!-- {name}: made by make write-generated -->", f"<!-- /{name} -->"
        before, found, rest = readme.partition(opening)
        _, end, after = rest.partition(closing)
        if not (found and end):
            raise ValueError(f"README.md lacks {opening} ... {closing}")
        readme = f"{before}{opening}\n{text}\n{closing}{after}"
    return readme


def shown_verdict() -> str:
    """What a terminal shows of `SHOWN_RUN`, without the rules that ran and were skipped."""
    with contextlib.chdir(ROOT):
        report = judge_logs([SHOWN_RUN], Settings()).report
    text = render_text(report)
    return "```\n" + text[: text.index("      checked ")].rstrip() + "\n```"


def table_of_formats() -> str:
    rows = [f"| `{reader.name}` | {reader.description} |" for reader in map(reader_for, READERS)]
    return "\n".join(["| format | what it reads |", "|---|---|", *rows])


def rule_index() -> str:
    lines = ["# Rules", "", "Made by `make write-generated` from the rules' own docstrings and thresholds.", ""]
    lines += ["| code | name | at most | what it says |", "|---|---|---|---|"]
    for rule in own_rules().values():
        lines.append(f"| [{rule.code}]({rule.code}.md) | {rule.name} | {rule.severity.value} | {summary(rule)} |")
    return "\n".join(lines) + "\n"


def stale_pages() -> list[Path]:
    """Rule pages of rules that no longer exist."""
    pages = {ROOT / rule.page for rule in own_rules().values()} | {ROOT / "rules" / "README.md"}
    return [path for path in sorted((ROOT / "rules").glob("*.md")) if path not in pages]


def main(mode: str) -> int:
    drifted = []
    for path, content in generated():
        if path.exists() and path.read_text(encoding="utf-8") == content:
            continue
        drifted.append(path)
        if mode == "--write":
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
    for path in stale_pages():
        drifted.append(path)
        if mode == "--write":
            path.unlink()
    for path in drifted:
        print(f"{'wrote' if mode == '--write' else 'drifted'}: {path.relative_to(ROOT)}")
    if drifted and mode == "--check":
        print("generated files differ from the code; rebuild them with: make write-generated")
        return 1
    return 0


if __name__ == "__main__":
    if sys.argv[1:] not in (["--check"], ["--write"]):
        sys.exit("usage: python -m tools.generate --check | --write")
    sys.exit(main(sys.argv[1]))
