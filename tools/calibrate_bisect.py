"""Record 40 runs with one fault each (fixed seeds, `tools/trial_jobs.py`), look for its cause by `trainproof bisect`, and write the table of
what was named into docs/replay.md. Needs torch.

python -m tools.calibrate_bisect            # print the table
python -m tools.calibrate_bisect --write    # and write it
python -m tools.calibrate_bisect --seed 100 # the same of other runs: seeds from 100 on
"""

from __future__ import annotations

import argparse
import math
import os
import re
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from tools import trial_jobs
from trainproof.experiments import Cause, Mismatch
from trainproof.record.tape import Tape
from trainproof.replay.bisecting import run_bisect
from trainproof.replay.counterfactuals import Try
from trainproof.replay.recording import run_recorded
from trainproof.replay.replaying import Segment, first_mismatch, request

PAGE = Path(__file__).resolve().parent.parent / "docs" / "replay.md"
BEGIN, END = "<!-- trials -->", "<!-- end of trials -->"
STEPS, CHECKPOINT_EVERY, EVAL_EVERY, BUDGET = 120, 20, 5, 100
#: runs of each fault: 40
TRIALS = {
    "poisoned_sample": 8,
    "poisoned_shard": 6,
    "flipped_labels": 6,
    "lr_pulse": 4,
    "corrupted_gradient": 5,
    "dropped_rng": 3,
    "data_and_state": 3,
    "healthy": 5,
}


class Trial(NamedTuple):
    """What came of one run. named: what had to be named was; wrong: something was that is not so. replays: counterfactuals until shard and
    batch were settled, and in all; bound: 2 log2(batches before the bad point) + 5."""

    fault: str
    seed: int
    named: bool
    wrong: bool
    replays: int
    every: int
    bound: float
    steps: int
    told: str


def trial(fault: str, seed: int, folder: Path) -> Trial:
    """Record a run, and look for its cause as `trainproof bisect` does: fidelity first. All in this process, which saves its starts."""
    settings = {"fault": fault, "seed": seed}
    job, run = f"{trial_jobs.__file__}:make", folder / "run"
    os.environ[trial_jobs.RECORDING] = "1"
    run_recorded(job, settings, str(run), STEPS, checkpoint_every=CHECKPOINT_EVERY, eval_every=EVAL_EVERY, keyed=seed)
    del os.environ[trial_jobs.RECORDING]
    tape = Tape(run)
    segment = Segment(0, tape.checkpoints()[0], STEPS)
    run_recorded(**request(tape, folder / "again", segment))
    mismatch = first_mismatch(tape, Tape(folder / "again"), segment)
    answer: dict[str, Any] = {"bad": None, "cause": None, "tries": [], "steps": STEPS}
    if mismatch is None:
        answer = run_bisect(str(run), None, None, BUDGET)
    named, wrong = verdict(trial_jobs.truth(settings), answer["cause"], mismatch)
    bad = answer["bad"].step if answer["bad"] else STEPS
    tries = answer["tries"]
    told = str(mismatch or answer["cause"] or "nothing")
    return Trial(fault, seed, named, wrong, _settled(tries), len(tries), 2 * math.log2(bad) + 5, answer["steps"], told)


def verdict(truth: dict[str, Any], cause: Cause | None, mismatch: Mismatch | None) -> tuple[bool, bool]:
    """Whether what had to be named was named, and whether something was named that is not so."""
    if truth.get("transient"):
        right = mismatch is not None and mismatch.step == truth["step"]
        right = right and mismatch is not None and mismatch.tensor == truth.get("tensor", mismatch.tensor)
        return right, (mismatch is not None or cause is not None) and not right
    if not truth or cause is None or mismatch is not None:
        silent = cause is None and mismatch is None
        return silent and not truth, mismatch is not None or (cause is not None and not truth)
    wrong = bool(cause.shard) and cause.shard != truth.get("shard")
    wrong |= not set(cause.batches) <= set(truth.get("batches", ()))
    wrong |= not set(cause.samples) <= set(truth.get("samples", ()))
    wrong |= "kind" in truth and cause.kind not in ("UNPROVEN", "DATA, FROM THIS STATE", truth["kind"])
    single = len(truth.get("batches", ())) == 1
    right = cause.kind != "UNPROVEN" and cause.shard == truth.get("shard", "") and (bool(cause.batches) or not single)
    return right and not wrong, wrong


def _settled(tries: list[Try]) -> int:
    """The counterfactuals before the first that is about single samples, or about another checkpoint with the same data."""
    return next((i for i, one in enumerate(tries) if one.change.samples or one.change.shift), len(tries))


def table(trials: list[Trial]) -> list[str]:
    lines = [
        "| fault | runs | named | wrongly | replays (median, most) | within 2 log2(n) + 5 | with sample and class (most) | steps replayed / recorded |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for fault in TRIALS:
        mine = [t for t in trials if t.fault == fault]
        replays = sorted(t.replays for t in mine)
        within = sum(t.replays <= t.bound for t in mine)
        share = sum(t.steps for t in mine) / (STEPS * len(mine))
        middle = replays[len(replays) // 2]
        lines.append(
            f"| {fault.replace('_', ' ')} | {len(mine)} | {sum(t.named for t in mine)} | {sum(t.wrong for t in mine)} "
            f"| {middle}, {replays[-1]} | {within} of {len(mine)} | {max(t.every for t in mine)} | {share:.2f} |"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--write", action="store_true", help="write the table into docs/replay.md")
    parser.add_argument("--seed", type=int, default=0, metavar="FIRST", help="the first seed of each fault (default 0)")
    own = parser.parse_args()
    trials = []
    for fault, count in TRIALS.items():
        for seed in range(own.seed, own.seed + count):
            with tempfile.TemporaryDirectory(prefix="trainproof-") as folder:
                trials.append(trial(fault, seed, Path(folder)))
            print(*trials[-1], flush=True)
    text = "\n".join(table(trials))
    print(text)
    if own.write:
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(re.sub(f"(?s){BEGIN}.*{END}", lambda _: f"{BEGIN}\n{text}\n{END}", page), encoding="utf-8")


if __name__ == "__main__":
    main()
