"""Make the log of an asynchronous run from its post-mortem: a drafter for speculative decoding on 8 devices, fed by prefetch threads.

The numbers are those that were published, the noise is seeded. The story that was told first was that saving corrupts the weights; the
log says otherwise: batches came from one length bucket at a time, the spikes after each save are averages over few batches, and the
one real cliff has no pause near it.

    python examples/gallery/drafter.py FOLDER       writes FOLDER/metrics.jsonl and FOLDER/config.json
    trainproof epoch FOLDER/metrics.jsonl
"""

import json
import math
import random
import sys
from collections.abc import Iterator
from pathlib import Path

CONFIG = {
    "total_steps": 11586,
    "epochs": 6,
    "warmup_ratio": 0.04,
    "save_steps": 2000,
    "learning_rate": 6e-4,
    "task_type": "CAUSAL_LM",
}
LAST_STEP = 4635
SECONDS = 10.0  # a step
#: last step before a save and first step after it, seconds between them, and the loss two steps later
SAVES = ((2000, 2027, 167.0, 13.0), (4001, 4019, 112.0, 7.2))
#: share of the batches and loss of each length bucket, and how many batches come from one before the next
BUCKETS = ((0.52, 0.66), (0.30, 0.74), (0.18, 0.83))
STRETCH = 12
CLIFF = 4229
RECOVERY = 300  # steps
WARMUP_END = 3750


def buckets(rng: random.Random) -> Iterator[float]:
    """The bucket's loss, batch by batch: a stretch from one bucket, then one from another."""
    while True:
        loss = rng.choices([loss for _, loss in BUCKETS], [share for share, _ in BUCKETS])[0]
        for _ in range(rng.randint(STRETCH // 2, 3 * STRETCH // 2)):
            yield loss


def rate(step: int) -> float:
    """The learning rate: full at step 0, then a warm-up that takes eight times as long as declared."""
    if step == 0:
        return 6e-4
    return 6.43e-7 + (6e-4 - 6.43e-7) * min(step - 2, WARMUP_END) / WARMUP_END


def records(seed: int = 42) -> Iterator[dict[str, float]]:
    """The log, one record a step; step 1 and the steps during saves are missing."""
    rng = random.Random(seed)
    losses = buckets(rng)
    clock = 0.0
    spikes = {after + 2: loss for _, after, _, loss in SAVES}
    pauses = {after: seconds for _, after, seconds, _ in SAVES}
    for step in [0, *range(2, LAST_STEP + 1)]:
        if any(before < step < after for before, after, _, _ in SAVES):
            continue
        clock += pauses.get(step, SECONDS * rng.lognormvariate(0, 0.05))
        hurt = math.exp(-(step - CLIFF) / (RECOVERY / 1.6)) if step >= CLIFF else 0.0
        loss = next(losses) * (1 + 2.5 * math.exp(-step / 600)) * rng.lognormvariate(0, 0.01)
        accuracy = 0.15 * (1 - math.exp(-(step + 50) / 800)) * (1 - 0.97 * hurt) * rng.lognormvariate(0, 0.05)
        yield {
            "step": step,
            "time": round(clock, 1),
            "loss": round(spikes.get(step, loss), 5),
            "accuracy": round(accuracy, 5),
            "learning_rate": float(f"{rate(step):.3g}"),
            "epoch": round(step / CONFIG["total_steps"], 4),
            "queue_size/0": round(300 - 80 * step / 4500 + rng.gauss(0, 4)),
            "queue_size/1": round(300 + rng.gauss(0, 4)),
            "queue_size/2": round(140 + rng.gauss(0, 4)),
        }


def main(folder: Path) -> None:
    """Write the log and what the run declared."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(record) + "\n" for record in records())
    (folder / "metrics.jsonl").write_text(lines, encoding="utf-8")
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python examples/gallery/drafter.py FOLDER")
    main(Path(sys.argv[1]))
