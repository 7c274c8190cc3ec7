"""The committed logs of the gallery, read with the standard library alone."""

import json
from pathlib import Path
from typing import Any

import pytest

GALLERY = Path(__file__).resolve().parents[2] / "examples" / "gallery"
SEEDS = (42, 43, 44)
each_seed = pytest.mark.parametrize("seed", SEEDS)


def folder(run: str, seed: int) -> Path:
    return GALLERY / run if seed == SEEDS[0] else GALLERY / run / f"seed{seed}"


def metadata(run: str, seed: int) -> dict[str, Any]:
    return dict(json.loads((folder(run, seed) / "metadata.json").read_text(encoding="utf-8")))


def records(run: str, seed: int) -> list[dict[str, float]]:
    log = folder(run, seed) / "metrics.jsonl"
    if log.exists():
        return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    state = json.loads((folder(run, seed) / "trainer_state.json").read_text(encoding="utf-8"))
    return list(state["log_history"])


def series(run: str, seed: int, name: str) -> list[float]:
    """The values of the records that have it."""
    return [record[name] for record in records(run, seed) if name in record]
