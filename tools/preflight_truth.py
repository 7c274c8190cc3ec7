"""Find every fault of the made sets at full size, and nothing in their clean twins: 2,000 clips, 200,000 rows, the tokenizers.

python -m tools.preflight_truth [CLIPS ROWS]

Prints a line a set, and exits 1 when a fault is missed or a clean record is told.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tools import speech_faults, text_faults
from trainproof.apart import Subject, judge_apart
from trainproof.judge import Settings
from trainproof.preflight.found import Found, Options
from trainproof.preflight.inputs import plan_of
from trainproof.preflight.judging import judge_found
from trainproof.preflight.running import run_pieces, usual_workers, whole_of
from trainproof.verdict import RunReport

Truth = dict[str, list[int]]
#: checks that tell the other record of a pair, or a file, too
_BOTH = ("TPD156", "TPD242")


def judged(path: Path) -> tuple[RunReport, Found]:
    options = Options(keep=1 << 40)
    plan = plan_of([str(path)], [], None, options)
    found = Found(plan.kind, plan.files, whole_of(plan, run_pieces(plan, plan.pieces, usual_workers())), options)
    return judge_found(found, str(path), plan.kind, Settings()), found


def missed(faulty: Path, truth: Truth, checks: dict[str, str]) -> tuple[list[str], int]:
    """(kinds of fault that are not named at every one of their rows, rows without a fault that are told)."""
    report, found = judged(faulty)
    told = {finding.rule for finding in report.findings}
    rows = {code: {found.where(place)[1] for place, _ in found.rejected(code)} for code in told}
    broken = {row for places in truth.values() for row in places}
    wrong = {row for code, places in rows.items() if code not in _BOTH for row in places - broken}
    return [name for name, places in truth.items() if not set(places) <= rows.get(checks[name], set())], len(wrong)


def told(title: str, kinds: int, lost: list[str], wrong: int, clean: int) -> bool:
    print(
        f"{title}: {kinds - len(lost)} of {kinds} kinds of fault found, {wrong} sound records told; clean twin: {clean} findings"
    )
    for name in lost:
        print(f"  missed: {name}")
    return not (lost or wrong or clean)


def speech(folder: Path, clips: int) -> bool:
    speech_faults.main(folder, clips)
    truth: Truth = json.loads((folder / "truth.json").read_text())
    checks = {name: code for name, (code, _) in speech_faults.SPEECH_FAULTS.items()}
    lost, wrong = missed(folder / "faults", truth, checks)
    return told(f"speech, {clips:,} clips", len(checks), lost, wrong, len(judged(folder / "clean")[0].findings))


def texts(folder: Path, rows: int) -> Iterable[bool]:
    text_faults.main(folder, rows)
    for name, faults in (("chat", text_faults.CHAT_FAULTS), ("pairs", text_faults.PAIR_FAULTS)):
        truth: Truth = json.loads((folder / f"{name}-faults.truth.json").read_text())
        lost, wrong = missed(folder / f"{name}-faults.jsonl", truth, {kind: code for kind, (code, _) in faults.items()})
        clean = len(judged(folder / f"{name}-clean.jsonl")[0].findings)
        yield told(f"{name}, {rows:,} rows", len(faults), lost, wrong, clean)


def tokenizers(folder: Path) -> bool:
    from tools import tokenizer_faults
    from trainproof.preflight.encoding import tokenized

    tokenizer_faults.main(folder)

    def codes(name: str) -> set[str]:
        found = tokenized(str(folder / name), (str(folder / name / "texts.txt"),), None)
        report = judge_apart("tokenizer", found, Subject(name, "tokenizer", "", len(found.texts)), Settings())
        return {finding.rule for finding in report.findings}

    truth = json.loads((folder / "truth.json").read_text())
    lost = [kind for name, (kind, code) in truth.items() if code not in codes(name)]
    return told("tokenizers", len(truth), lost, 0, len(codes("clean")))


def main(clips: int, rows: int) -> int:
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        good = [speech(folder / "speech", clips), *texts(folder / "text", rows), tokenizers(folder / "tokenizers")]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main(*(int(size) for size in sys.argv[1:] or ("2000", "200000"))))
